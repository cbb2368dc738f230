"""Where a search stands: the rows that explain a part of the gradient, and what may be behind the rest."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.peel.refit import refit_numbers
from lightleak.attacks.gradient_inversion.exact.spaces.layer_spaces import LEAST_SCALE, Spaces, spaces_of, unit_scale
from lightleak.attacks.gradient_inversion.exact.spaces.residual import EXPLAINED, Residual
from lightleak.attacks.gradient_inversion.network.row_network import RowNetwork
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain, Tie
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.attacks.gradient_inversion.tables.schema_inference import infer_domain
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import ColumnKind

FIRST_LAYER_FLOOR = 5e-7
"""Singular values of what is left of the first layer's gradient below this part of the whole's largest are rounding."""

HAIRS = (1e-7, 1e-6, 1e-5)
"""Deviations by which a number is moved to put a unit on the other side of its kink."""

SWITCHED = 1e-3
"""A row's errors that change by this part of the largest one over a `HAIRS` have a unit at its kink."""

REFITS = 2
"""Corrections of all rows found after every new ones."""


@dataclass(frozen=True)
class State:
    """Where a search stands.

    Attributes:
        residual: explained rows and what is left.
        cells: of the explained rows, as `TableEncoder.project` returns them.
        space: rows that may be behind what is left.
        spaces: of what is left of the first and the searched layer, by layer.
    """

    residual: Residual
    cells: tuple[Tensor, Tensor]
    space: RowDomain
    spaces: Mapping[int, Spaces]

    @classmethod
    def start(
        cls, network: RowNetwork, observed: tuple[Tensor, ...], n_rows: int, encoder: TableEncoder, prior: RowPrior
    ) -> "State":
        """Nothing found yet.

        Args:
            network: float64.
            observed: ``[G_l gb_l]`` per layer, float64.
            n_rows: rows of the batch.
            encoder: on the same device.
            prior: what is believed of cells.
        """
        residual, schema = Residual.of(network, observed, n_rows), encoder.schema
        codes = residual.x.new_empty(0, len(schema.categorical), dtype=torch.long)
        cells = codes, residual.x.new_empty(0, len(schema.numerical))
        # Tables of embeddings show categories in other rows than numbers: nothing of how the two depend on each other.
        ties: dict[int, Tie] | None = None if network.first_sees_cells and network.first_input is None else {}
        space = infer_domain(residual.columns, encoder, prior, n_rows, ties=ties)
        used = {layer: observed[layer] for layer in (0, network.searched)}
        least = LEAST_SCALE if network.errors_bend else 0.0
        spaces = {layer: spaces_of(part, unit_scale(part, least), most=n_rows) for layer, part in used.items()}
        return cls(residual, cells, space, spaces)

    @property
    def searched(self) -> Spaces:
        """Spaces of the layer whose gradient is searched."""
        return self.spaces[self.residual.network.searched]

    @property
    def is_explained(self) -> bool:
        """Whether all rows are there and leave no more than rounding."""
        return self.residual.rows_left == 0 and self.residual.relative < EXPLAINED

    def with_rows(self, start: "State", cells: tuple[Tensor, Tensor], x: Tensor, counts: Tensor) -> "State":
        """Explain the gradient by further rows, correct the numbers of all, and see what is left.

        Args:
            start: of the same gradient.
            cells: of the new rows.
            x: the same encoded ``[n, d]``.
            counts: rows of each class that are equal to them ``[n, classes]``.
        """
        residual = self.residual.with_rows(x, counts)
        cells = torch.cat([self.cells[0], cells[0]]), torch.cat([self.cells[1], cells[1]])
        rows = residual.rows_left
        rank = max(self.searched.rank - len(x), min(1, rows))
        fitted = residual, cells
        for _ in range(REFITS):
            # The spaces of what is left sharpen with every correction.
            fitted = refit_numbers(*fitted, self.space, start.spaces_left(fitted[0], rank), turns=1)
        # A last row that is only nearly right would be made up for by all others.
        if rows or min(residual.relative, fitted[0].relative) < EXPLAINED:
            residual, cells = fitted
        spaces, space = start.spaces_left(residual, rank), self.space
        if rows:
            whole = start.residual.columns
            space = infer_domain(residual.columns, space.encoder, space.prior, rows, whole, space.ties)
        return State(residual, cells, space, spaces)

    def spaces_left(self, residual: Residual, rank: int) -> dict[int, Spaces]:
        """Of the gradient that this state is the start of: spaces of what rows leave.

        Args:
            residual: explained rows and what is left.
            rank: of the searched layer; equal masks may make it less than the number of rows.
        """
        first, searched = self.spaces[0], self.residual.network.searched
        there = int((_first_singular_values(residual, first.unit_scale) > FIRST_LAYER_FLOOR * self._largest).sum())
        first_rank = min(residual.rows_left, first.rank, max(1, there))
        ranks = {0: first_rank, searched: rank if searched else first_rank}
        scales = {layer: self.spaces[layer].unit_scale for layer in ranks}
        return {layer: spaces_of(residual.left[layer], scales[layer], rank) for layer, rank in ranks.items()}

    @cached_property
    def _largest(self) -> float:
        return float(_first_singular_values(self.residual, self.spaces[0].unit_scale)[0])

    def rounded(self) -> "State":
        """The same with numbers as a table holds them: inside their bounds, whole in integer columns."""
        codes, values = self.cells
        encoder = self.space.encoder
        whole = [column.kind is ColumnKind.INTEGER for column in encoder.schema.numerical]
        integer = torch.tensor(whole, dtype=torch.bool, device=values.device)
        cells = codes, torch.where(integer, values.round(), values).clamp(encoder.lower, encoder.upper)
        residual = self.residual.explaining(self.space.encode(cells), self.residual.counts)
        return State(residual, cells, self.space, self.spaces)

    def off_kinks(self) -> "State":
        """The same with rows moved by a hair, where that explains a gradient that all rows leave a part of.

        The client's rounding decides on which side of its kink a unit lies whose input is zero but for it. Rows with
        such a unit in the searched layer are not found to begin with.
        """
        if self.residual.rows_left or self.is_explained:
            return self
        best, network = self, self.residual.network
        codes, values = self.cells
        errors = network.errors_of_rows(network.forward(self.residual.x), self.residual.counts)
        for hair, j, sign in product(HAIRS, range(values.shape[1]), (-1, 1)):
            moved = values.clone()
            moved[:, j] += sign * hair * self.space.encoder.deviation[j]
            other = network.errors_of_rows(network.forward(self.space.encode((codes, moved))), self.residual.counts)
            jumps = [(a - b).abs().amax(-1) > SWITCHED * b.abs().amax(-1) for a, b in zip(other, errors, strict=True)]
            for row in torch.stack(jumps).any(0).nonzero().flatten().tolist():
                numbers = best.cells[1].clone()
                numbers[row, j] = moved[row, j]
                residual = best.residual.explaining(self.space.encode((codes, numbers)), self.residual.counts)
                if residual.relative < best.residual.relative:
                    best = replace(best, residual=residual, cells=(codes, numbers))
            if best.is_explained:
                return best
        return self


def _first_singular_values(residual: Residual, scale: Tensor) -> Tensor:
    """Singular values of what is left of the first layer's gradient, units scaled as `unit_scale` says."""
    return torch.linalg.svdvals(residual.left[0] / scale.unsqueeze(-1))
