"""BatchNorm over numbers of the table whose batch statistics the server does not know.

The network sees ``u = (x - mean) / deviation`` of every such column, with one mean and one deviation for the whole
batch. Any mean and deviation explain the gradient as well as the true ones: what it determines is u, beside the other
columns and the labels. So rows are searched for in a table whose columns hold u, without bounds or whole numbers of
their own, behind a layer that leaves them as they are.
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
    """

    update: ClientUpdate
    encoder: TableEncoder
    columns: tuple[int, ...]

    @classmethod
    def of(cls, update: ClientUpdate, encoder: TableEncoder, prior: RowPrior) -> "NormalizedTable | None":
        """None where statistics are known, and where BatchNorm normalizes anything but single numbers by its batch.

        Args:
            update: the observation.
            encoder: its encoder.
            prior: what is believed of cells.
        """
        module = client_network(update)
        if update.batch_statistics or not any(over_batch(layer) for layer in batch_norms(module).values()):
            return None
        module.load_state_dict({**update.parameters, **update.buffers}, strict=False)
        norms = {name: layer for name, layer in batch_norms(module).items() if over_batch(layer)}
        probes, inputs = normalized_data(module, encoded_width(update))
        if inputs.keys() != norms.keys():
            return None
        at = torch.tensor(encoder.numerical_positions)
        columns: list[int] = []
        for seen in inputs.values():
            alike = (seen.unsqueeze(2) == probes[:, at].unsqueeze(1)).all(0)  # [channels, numerical columns]
            if not bool((alike.sum(1) == 1).all()):
                return None
            columns += alike.int().argmax(1).tolist()
        n = update.facts.n_rows
        unchanged: dict[str, Tensor] = {}
        for name, layer in norms.items():
            ones = torch.ones(inputs[name].shape[1], dtype=torch.float64)
            unchanged |= {f"{name}.mean": 0 * ones, f"{name}.var": (1 - layer.eps) * n / max(1, n - 1) * ones}
        table = _table(encoder, prior, columns, n)
        facts, tensors = table.to_state()
        seen_as = replace(update, encoder=facts, encoder_tensors=tensors, batch_statistics=unchanged, marginals=None)
        return cls(seen_as, table, tuple(columns))

    def of_client(self, rows: CertifiedRows, encoder: TableEncoder, prior: RowPrior) -> CertifiedRows:
        """Rows of this table as rows of the client's, with the prior's mean and deviation of normalized numbers.

        Args:
            rows: as `CertifyingInversion.invert` returns them.
            encoder: the client's.
            prior: what is believed of its cells.
        """
        codes, numbers = self.encoder.project(rows.encoded.double(), clamp=False)
        names = tuple(encoder.schema.numerical[j].name for j in self.columns)
        unknown = cell_uncertainty(encoder, prior, 0, len(rows.encoded))
        why = f"BatchNorm's statistics are unknown: numbers of {', '.join(names)} are open up to a shift and a scale"
        return replace(
            rows,
            encoded=encoder.assemble(codes, numbers),
            uncertainty=rows.uncertainty.assign(**{name: unknown[name] for name in names}),
            proof=Proof(rows.proof.cells, torch.zeros_like(rows.proof.digits)),
            feasibility=replace(rows.feasibility, reason=f"{rows.feasibility.reason}; {why}"),
            normalized_columns=names,
            normalized=rows.proof.digits,
        )


def _table(encoder: TableEncoder, prior: RowPrior, columns: list[int], n_rows: int) -> TableEncoder:
    """The encoder of the table whose ``columns`` are normalized: |u| is at most sqrt(n - 1)."""
    normalized = {encoder.schema.numerical[j].name for j in columns}
    schema = replace(
        encoder.schema,
        columns=tuple(Column.continuous(c.name) if c.name in normalized else c for c in encoder.schema.columns),
    )
    _, tensors = encoder.to_state()
    tensors = {name: value.clone() for name, value in tensors.items()}
    positions, within = [encoder.numerical_positions[j] for j in columns], n_rows**0.5
    mean, deviation = prior.mean[columns], prior.deviation[columns]
    tensors["shift"][positions], tensors["scale"][positions] = mean, deviation
    tensors["lower"][columns], tensors["upper"][columns] = mean - within * deviation, mean + within * deviation
    tensors["deviation"][columns] = deviation
    facts = {"encoding": encoder.encoding, "schema": schema.to_dict()}
    return TableEncoder.from_state(facts, tensors).to(encoder.shift.device)
