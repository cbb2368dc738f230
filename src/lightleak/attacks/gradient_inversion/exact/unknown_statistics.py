"""BatchNorm over numbers of the table whose batch statistics the server does not know.

The network sees ``u = (x - mean) / deviation`` of every such column, with one mean and one deviation for the whole
batch. Any mean and deviation explain the gradient as well as the true ones: what it determines is u, beside the other
columns and the labels. So rows are searched for in a table whose columns hold u, without bounds or whole numbers of
their own, behind a layer that leaves them as they are. Statistics that are known, but not to the last digit (read off
running buffers), do for the way back to the table's numbers, not for a certificate with them.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.certify.proven import Proof
from lightleak.attacks.gradient_inversion.exact.shell import CertifiedRows
from lightleak.attacks.gradient_inversion.network.batch_normalized import normalized_data
from lightleak.attacks.gradient_inversion.network.checks import encoded_width
from lightleak.attacks.gradient_inversion.network.client import batch_norms, client_network
from lightleak.attacks.gradient_inversion.network.traced import over_batch
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.attacks.gradient_inversion.tables.uncertainty import cell_uncertainty
from lightleak.core.observations import ClientUpdate
from lightleak.data.column import Column
from lightleak.data.encoder import TableEncoder


@dataclass(frozen=True)
class NormalizedTable:
    """An update as one on rows whose numbers a BatchNorm layer has normalized.

    Attributes:
        update: with this table's encoder, and statistics that change nothing.
        encoder: of this table: 0 and 1 of a normalized number stand for mean and mean plus deviation of the prior.
        columns: the normalized numerical columns, by index among them.
        statistics: the batch's mean and deviation of these columns in the table's units ``[columns, 2]``, where they
            are known after all, if not precisely enough for a certificate; else None.
    """

    update: ClientUpdate
    encoder: TableEncoder
    columns: tuple[int, ...]
    statistics: Tensor | None

    @classmethod
    def of(cls, update: ClientUpdate, encoder: TableEncoder, prior: RowPrior) -> "NormalizedTable | None":
        """None where a BatchNorm layer normalizes anything but single numbers of the table by its batch.

        Args:
            update: the observation.
            encoder: its encoder.
            prior: what is believed of cells.
        """
        module = client_network(update)
        if not any(over_batch(layer) for layer in batch_norms(module).values()):
            return None
        module.load_state_dict({**update.parameters, **update.buffers}, strict=False)
        norms = {name: layer for name, layer in batch_norms(module).items() if over_batch(layer)}
        probes, inputs = normalized_data(module, encoded_width(update))
        if inputs.keys() != norms.keys():
            return None
        at = torch.tensor(encoder.numerical_positions)
        found: dict[int, tuple[str, int]] = {}
        for name, seen in inputs.items():
            alike = (seen.unsqueeze(2) == probes[:, at].unsqueeze(1)).all(0)  # [channels, numerical columns]
            if not bool((alike.sum(1) == 1).all()):
                return None
            found |= {int(row.int().argmax()): (name, channel) for channel, row in enumerate(alike)}
        columns = tuple(sorted(found))
        n = update.facts.n_rows
        unchanged: dict[str, Tensor] = {}
        for name, layer in norms.items():
            ones = torch.ones(inputs[name].shape[1], dtype=torch.float64)
            unchanged |= {f"{name}.mean": 0 * ones, f"{name}.var": (1 - layer.eps) * n / max(1, n - 1) * ones}
        table = _table(encoder, prior, columns, n)
        facts, tensors = table.to_state()
        seen_as = replace(update, encoder=facts, encoder_tensors=tensors, batch_statistics=unchanged, marginals=None)
        known = _known(update, encoder, [(found[j], norms[found[j][0]].eps, j) for j in columns])
        return cls(seen_as, table, columns, known)

    def of_client(self, rows: CertifiedRows, encoder: TableEncoder, prior: RowPrior) -> CertifiedRows:
        """Rows of this table as rows of the client's: by the statistics, else by the prior's mean and deviation.

        Args:
            rows: as `CertifyingInversion.invert` returns them.
            encoder: the client's.
            prior: what is believed of its cells.
        """
        normalized, columns = rows.encoded.double(), list(self.columns)
        codes, numbers = self.encoder.project(normalized, clamp=False)
        if self.statistics is not None:
            mean, deviation = self.statistics.unbind(1)
            numbers[:, columns] = (
                mean + deviation * normalized[:, [self.encoder.numerical_positions[j] for j in columns]]
            )
            return replace(rows, encoded=encoder.assemble(codes, numbers))
        names = tuple(encoder.schema.numerical[j].name for j in columns)
        unknown = cell_uncertainty(encoder, prior, 0, len(rows.encoded))
        why = f"BatchNorm's statistics are unknown: numbers of {', '.join(names)} are known up to a shift and a scale"
        return replace(
            rows,
            encoded=encoder.assemble(codes, numbers),
            uncertainty=rows.uncertainty.assign(**{name: unknown[name] for name in names}),
            proof=Proof(rows.proof.cells, torch.zeros_like(rows.proof.digits)),
            feasibility=replace(rows.feasibility, reason=f"{rows.feasibility.reason}; {why}"),
            normalized_columns=names,
            normalized=rows.proof.digits,
        )


def _table(encoder: TableEncoder, prior: RowPrior, columns: tuple[int, ...], n_rows: int) -> TableEncoder:
    """The encoder of the table whose ``columns`` are normalized: |u| is at most sqrt(n - 1)."""
    normalized = {encoder.schema.numerical[j].name for j in columns}
    schema = replace(
        encoder.schema,
        columns=tuple(Column.continuous(c.name) if c.name in normalized else c for c in encoder.schema.columns),
    )
    _, tensors = encoder.to_state()
    tensors = {name: value.clone() for name, value in tensors.items()}
    at, within = list(columns), n_rows**0.5
    positions = [encoder.numerical_positions[j] for j in columns]
    mean, deviation = prior.mean[at], prior.deviation[at]
    tensors["shift"][positions], tensors["scale"][positions] = mean, deviation
    tensors["lower"][at], tensors["upper"][at] = mean - within * deviation, mean + within * deviation
    tensors["deviation"][at] = deviation
    facts = {"encoding": encoder.encoding, "schema": schema.to_dict()}
    return TableEncoder.from_state(facts, tensors).to(encoder.shift.device)


def _known(
    update: ClientUpdate, encoder: TableEncoder, columns: list[tuple[tuple[str, int], float, int]]
) -> Tensor | None:
    """Mean and deviation of columns in the table's units, from statistics of encoded ones."""
    if any(f"{name}.mean" not in update.batch_statistics for (name, _), _, _ in columns):
        return None
    n, found = update.facts.n_rows, []
    for (name, channel), eps, j in columns:
        position = encoder.numerical_positions[j]
        scale, shift = encoder.scale[position], encoder.shift[position]
        mean = update.batch_statistics[f"{name}.mean"][channel].to(scale)
        variance = update.batch_statistics[f"{name}.var"][channel].to(scale) * (n - 1) / n
        found.append(torch.stack([mean * scale + shift, (variance + eps).sqrt() * scale]))
    return torch.stack(found)
