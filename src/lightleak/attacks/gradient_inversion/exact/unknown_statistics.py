"""BatchNorm over numbers of the table whose batch statistics the server does not know.

The network sees ``u = (x - mean) / sqrt(variance + eps)`` of every such column, with one mean and one variance for a
client's whole batch. The gradient determines u, the other columns and the labels. So rows are searched for in a table
whose columns hold u, without bounds or whole numbers of their own, behind a layer that changes nothing.

Of the way back to the table's numbers the mean stays open. The variance does not where all rows of one client's only
batch are found, as ``mean(u^2) = variance / (variance + eps)``; whole numbers then make it exact.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from lightleak.attacks.gradient_inversion.exact.certify.proven import Proof
from lightleak.attacks.gradient_inversion.exact.shell import CertifiedRows
from lightleak.attacks.gradient_inversion.network.batch_normalized import normalized_data
from lightleak.attacks.gradient_inversion.network.checks import is_accumulated
from lightleak.attacks.gradient_inversion.network.client import batch_norms, client_network
from lightleak.attacks.gradient_inversion.network.traced import over_batch
from lightleak.attacks.gradient_inversion.tables.entropy import cell_uncertainty
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.core.observations import ClientUpdate
from lightleak.data.column import Column, ColumnKind
from lightleak.data.encoder import TableEncoder
from lightleak.targets.normalization import frozen_statistics

SAME_OUTPUT = 1e-3
"""Relative change of the outputs that eps makes where normalized columns are moved and stretched."""

SEEN_BY_EPS = 1e-6
"""How far the mean of u^2 must stay below 1 for the variance to be guessed from it: a few times its error."""

SCALE_KNOWN = 5e-5
"""How far it must stay below 1 for the deviation to follow to 0.3%, so that a number 3 deviations from the mean is
known to `NUMBERS_WITHIN` of one (30 batches of 8 rows: worst error 0.15% at 1e-4, 1.1% at 1e-5)."""

WHOLE_WITHIN = 0.2
"""How near to whole numbers the distances of a column of whole numbers must come out."""


def normalizes_by_batch(update: ClientUpdate) -> bool:
    """Whether a BatchNorm layer of the client's network normalized by the statistics of its batch."""
    return any(over_batch(layer) for layer in batch_norms(client_network(update)).values())


def normalized_columns(module: nn.Module, encoder: TableEncoder) -> list[int]:
    """Numerical columns, by index among them, that a network sees only as BatchNorm normalizes them by the batch.

    Args:
        module: in train mode, without dropout, with its weights.
        encoder: of the rows.

    Returns:
        None of them where a BatchNorm layer normalizes anything else.
    """
    norms = {name: layer for name, layer in batch_norms(module).items() if over_batch(layer)}
    probes, inputs = normalized_data(module, encoder.width)
    if inputs.keys() != norms.keys() or len({layer.eps for layer in norms.values()}) != 1:
        return []
    at = torch.tensor(encoder.numerical_positions, device=probes.device)
    found: set[int] = set()
    for seen in inputs.values():
        alike = (seen.unsqueeze(2) == probes[:, at].unsqueeze(1)).all(0)  # [channels, numerical columns]
        if not bool((alike.sum(1) == 1).all()):
            return []
        found.update(alike.int().argmax(1).tolist())
    columns, moved = sorted(found), probes.clone()
    moved[:, at[columns]] = 3 * moved[:, at[columns]] + 0.4
    with torch.no_grad(), frozen_statistics(module):
        before, after = module(probes), module(moved)
    return [] if bool((after - before).norm() > SAME_OUTPUT * before.norm()) else columns


@dataclass(frozen=True)
class NormalizedTable:
    """An update as one on rows whose numbers a BatchNorm layer has normalized.

    Attributes:
        update: with this table's encoder, and statistics that change nothing.
        encoder: of this table: 0 and 1 of a normalized number stand for mean and mean plus deviation of the prior.
        columns: the normalized numerical columns, by index among them.
        eps: of the layers, in units of encoded numbers, squared.
    """

    update: ClientUpdate
    encoder: TableEncoder
    columns: tuple[int, ...]
    eps: float

    @classmethod
    def of(cls, update: ClientUpdate, encoder: TableEncoder, prior: RowPrior) -> "NormalizedTable | None":
        """The table; None where statistics are known, or a layer normalizes what is no number seen by it alone.

        Args:
            update: the observation.
            encoder: its encoder.
            prior: what is believed of cells.
        """
        if update.batch_statistics or not normalizes_by_batch(update):
            return None
        module = client_network(update)
        module.load_state_dict({**update.parameters, **update.buffers}, strict=False)
        columns = normalized_columns(module, encoder)
        if not columns:
            return None
        norms = {name: layer for name, layer in batch_norms(module).items() if over_batch(layer)}
        n, eps = update.facts.n_rows, next(iter(norms.values())).eps
        unchanged: dict[str, Tensor] = {}
        for name in norms:
            ones = torch.ones(norms[name].num_features, dtype=torch.float64)
            unchanged |= {f"{name}.mean": 0 * ones, f"{name}.var": (1 - eps) * n / max(1, n - 1) * ones}
        table = _table(encoder, prior, columns, n)
        facts, tensors = table.to_state()
        seen_as = replace(update, encoder=facts, encoder_tensors=tensors, batch_statistics=unchanged, marginals=None)
        return cls(seen_as, table, tuple(columns), eps)

    def of_client(self, rows: CertifiedRows, encoder: TableEncoder, prior: RowPrior) -> CertifiedRows:
        """Rows of this table as rows of the client's, whose numbers have a mean that is assumed.

        Args:
            rows: as `CertifyingInversion.invert` returns them.
            encoder: the client's.
            prior: what is believed of its cells.
        """
        codes, numbers = self.encoder.project(rows.encoded.double(), clamp=False)
        is_one = self.update.facts.n_clients == 1 and not is_accumulated(self.update.facts)
        is_whole = is_one and bool(rows.proof.digits.all()) and not rows.guesses
        assumed: dict[str, tuple[float, float]] = {}
        open_scales: list[str] = []
        for j in self.columns:
            u = (numbers[:, j] - prior.mean[j]) / prior.deviation[j]
            scale, is_known = self._deviation(u, encoder, j) if is_whole else (None, False)
            open_scales += [] if is_known else [encoder.schema.numerical[j].name]
            deviation = prior.deviation[j] if scale is None else scale
            mean = _within_bounds(deviation * u, encoder, prior, j)
            numbers[:, j] = mean + deviation * u
            assumed[encoder.schema.numerical[j].name] = float(mean), float(deviation)
        unknown = cell_uncertainty(encoder, prior, 0, len(rows.encoded))
        scaled = f", those of {', '.join(open_scales)} up to a scale as well" if open_scales else ""
        why = f"BatchNorm's statistics are unknown: numbers of {', '.join(assumed)} are open up to a shift{scaled}"
        return replace(
            rows,
            encoded=encoder.assemble(codes, numbers),
            uncertainty=rows.uncertainty.assign(**{name: unknown[name] for name in assumed}),
            proof=Proof(rows.proof.cells, torch.zeros_like(rows.proof.digits)),
            feasibility=replace(rows.feasibility, reason=f"{rows.feasibility.reason}; {why}"),
            assumed_statistics=assumed,
            normalized_proven=rows.proof.digits,
        )

    def _deviation(self, u: Tensor, encoder: TableEncoder, j: int) -> tuple[Tensor | None, bool]:
        """``sqrt(variance + eps)`` of a column in the table's units, from all of its normalized numbers ``[n]``.

        Returns:
            The best guess, None where nothing is seen of it; whether it is known to 0.3%.
        """
        below = 1 - u.square().mean()
        if float(below) < SEEN_BY_EPS:
            return None, False
        deviation = (self.eps / below).sqrt() * encoder.scale[encoder.numerical_positions[j]]
        if encoder.schema.numerical[j].kind is ColumnKind.INTEGER:
            apart = u - u[0]
            whole = (deviation * apart).round()
            if bool(whole.any()) and bool((deviation * apart - whole).abs().max() < WHOLE_WITHIN):
                return (whole * apart).sum() / apart.square().sum(), True
        return deviation, float(below) > SCALE_KNOWN


def _within_bounds(centered: Tensor, encoder: TableEncoder, prior: RowPrior, j: int) -> Tensor:
    """The mean next to the prior's with which a column's numbers keep their bounds, and whole ones are whole."""
    lowest, highest = encoder.lower[j] - centered.min(), encoder.upper[j] - centered.max()
    mean = prior.mean[j] if bool(lowest > highest) else prior.mean[j].clamp(lowest, highest)
    if encoder.schema.numerical[j].kind is ColumnKind.INTEGER:
        mean = (mean + centered[0]).round() - centered[0]
    return mean


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
