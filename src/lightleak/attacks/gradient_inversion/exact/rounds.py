"""The course of exact inversion: infer the columns, find rows, verify them, take them out, and again."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from lightleak.attacks.gradient_inversion.exact.chain import ReLUChain
from lightleak.attacks.gradient_inversion.exact.config import ExactConfig
from lightleak.attacks.gradient_inversion.exact.enumeration import enumerate_rows
from lightleak.attacks.gradient_inversion.exact.leftovers import explain_together
from lightleak.attacks.gradient_inversion.exact.prior import RowPrior
from lightleak.attacks.gradient_inversion.exact.proof import EXPLAINED, proven_rows
from lightleak.attacks.gradient_inversion.exact.refit import refit_numbers
from lightleak.attacks.gradient_inversion.exact.residual import Residual
from lightleak.attacks.gradient_inversion.exact.rows import RowSpace
from lightleak.attacks.gradient_inversion.exact.schema_inference import infer_space
from lightleak.attacks.gradient_inversion.exact.search import Candidates, RowSearch
from lightleak.attacks.gradient_inversion.exact.spaces import Spaces, spaces_of, unit_scale
from lightleak.attacks.gradient_inversion.exact.verification import verify
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import ColumnKind

LAYER = 1
"""Index of the layer whose gradient is searched: the second, whose input depends on one matrix alone."""

ROW_TOLERANCE = 2e-5
"""Part of ``(h_1, 1)`` that may lie outside the row space: rounding leaves about 1e-6 of it."""

BLUR = 1e-6
"""Tolerance of rows whose part of the gradient is 1, by rounding: 1e-7 of the gradient, and ten times that for what the
pseudo-inverse makes of it."""

UNIT_FACTOR = 30.0
"""The column space is known less well, as its vectors are 0 or 1 times a weight: its tolerance is this many times that
of rows."""

COEFFICIENT_TOLERANCE = 0.02
"""Relative error of a coefficient; those of different counts differ by a fifth or more."""

FLOORS = (1e-6, 1e-3, 1e-2, 1e-1)
"""Floors of `whitened` that searches draw from, more often those that found rows."""

POLISHED = 64
"""Candidates of a search that are polished and verified, or a third of them where that is more."""

FIRST_LAYER_FLOOR = 5e-7
"""Singular values of what is left of the first layer's gradient below this part of the whole's largest are rounding."""

POLISH_ROUNDS = 5

REFITS = 2
"""Corrections of all rows found after every new ones."""

WIDEN_EVERY, SEARCH_MORE_EVERY = 2, 4
"""Fruitless searches after which the tolerance grows by `WIDEN` and the number of chains doubles."""

WIDEN, WIDEST = 4.0, 3e-3

MANY_TESTS, WIDEST_OF_MANY = 30, 2e-2
"""Where either space leaves this many equations, no wrong row comes anywhere near all of them, and the weak rows of a
trained network, whose directions rounding blurs, are taken at a wider tolerance. What is proven is decided later."""

COEFFICIENT_FACTOR = 5.0
"""A coefficient is blurred this many times as much as a row."""

TOGETHER_EVERY = 2
"""One in so many fruitless searches is followed by a fit of the last rows together; equal rows are looked for first."""

COPIES = 4
"""Candidates of equal categories that are polished before those of others get their turn."""


@dataclass(frozen=True)
class Found:
    """Where the rounds ended.

    Attributes:
        residual: explained rows and what is left.
        cells: of the explained rows, as `TableEncoder.project` returns them.
        certain: which of them are proven, see `proven_rows`, bool ``[r]``.
        rank: distinct rows that the gradient showed at the beginning.
        space: rows that may be behind what is left.
        searches: searches done.
        factor: by which the gradient was multiplied, as its client had scaled it down.
    """

    residual: Residual
    cells: tuple[Tensor, Tensor]
    certain: Tensor
    rank: int
    space: RowSpace
    searches: int
    factor: float


State = tuple[Residual, tuple[Tensor, Tensor], RowSpace, tuple[Spaces, Spaces]]
"""Explained rows and what is left, their cells, the rows that may be behind it, and the spaces of it."""


class Rounds:
    """Find the rows behind one gradient.

    Args:
        chain: the network, float64.
        observed: ``[G_l gb_l]`` per layer, float64.
        n_rows: rows of the batch.
        encoder: on the same device.
        prior: what is believed of cells.
        config: how much work.
        generator: of all random numbers, on the CPU.
    """

    def __init__(
        self,
        chain: ReLUChain,
        observed: tuple[Tensor, ...],
        n_rows: int,
        encoder: TableEncoder,
        prior: RowPrior,
        config: ExactConfig,
        generator: torch.Generator,
    ) -> None:
        self.chain, self.encoder, self.prior, self.config, self.generator = chain, encoder, prior, config, generator
        self.n_rows = n_rows
        self.factor = 1.0
        self.before_equal: State | None = None
        self._begin(observed)
        device = observed[0].device
        self.cells = (
            torch.empty(0, len(encoder.schema.categorical), dtype=torch.long, device=device),
            torch.empty(0, len(encoder.schema.numerical), dtype=torch.float64, device=device),
        )

    def _begin(self, observed: tuple[Tensor, ...]) -> None:
        """Nothing found yet of this gradient."""
        self.residual = Residual.of(self.chain, observed, self.n_rows)
        self.scale, self.first_scale = unit_scale(observed[LAYER]), unit_scale(observed[0])
        self.space = self.whole_space = infer_space(observed[0], self.encoder, self.prior, self.n_rows)
        self.spaces = (
            spaces_of(observed[0], self.first_scale, most=self.n_rows),
            spaces_of(observed[LAYER], self.scale, most=self.n_rows),
        )
        self.whole = self.spaces
        self.largest = float(torch.linalg.svdvals(observed[0] / self.first_scale.unsqueeze(-1))[0])
        self.first_rank, self.rank = self.spaces[0].rank, self.spaces[LAYER].rank

    def run(self) -> Found:
        """Search until every distinct row is found or nothing new turns up.

        Nothing is searched where the numbers of a row alone could be bent to meet all equations on it.
        """
        second = self.spaces[LAYER]
        if second.row_null.shape[1] + second.unit_null.shape[1] <= len(self.space.free):
            return self.found()
        config, floors = self.config, torch.ones(len(FLOORS))
        fruitless, chains, tolerance, searches = 0, config.chains, ROW_TOLERANCE, 0
        while self.spaces[LAYER].rank > 0 and self.residual.rows_left > 0 and fruitless < config.patience:
            choice = int(torch.multinomial(floors, 1, generator=self.generator))
            search = RowSearch(self.chain, self.space, self.spaces[LAYER], FLOORS[choice], self.generator)
            candidates = search.run(chains, config.sweeps)
            kept = varied(candidates.codes)[: max(POLISHED, chains // 3)]
            best = Candidates(candidates.codes[kept], candidates.numbers[kept], candidates.distance[kept])
            best = search.polish(best, POLISH_ROUNDS)
            accepted = self.accept(best, tolerance, LAYER)
            if not accepted and self.residual.rows_left <= config.enumerate_below:
                accepted = self._enumerate(tolerance)
            if not accepted and fruitless > 0:
                accepted = self._not_alone(best, tolerance, together=fruitless % TOGETHER_EVERY == 0)
            searches += 1
            floors[choice] = 0.5 * floors[choice] + 0.5 * accepted * config.chains / chains + 0.02
            if accepted:
                fruitless, tolerance = 0, max(self._blur(), tolerance / 2)
                continue
            fruitless += 1
            if fruitless % WIDEN_EVERY == 0:
                tolerance = min(self._widest(), WIDEN * tolerance)
            if fruitless % SEARCH_MORE_EVERY == 0:
                chains = min(config.most_chains, 2 * chains)
        if self.before_equal is not None and not self._explained:
            self._instead(self.before_equal)
        return self.found(searches)

    def _widest(self) -> float:
        """Largest tolerance of rows."""
        spaces = self.spaces[LAYER]
        many = min(spaces.row_null.shape[1], spaces.unit_null.shape[1]) >= MANY_TESTS
        return WIDEST_OF_MANY if many else WIDEST

    def _blur(self) -> float:
        """Tolerance of rows: rounding is that of the whole gradient, however little of it is left."""
        left, whole = self.residual.left[LAYER].norm(), self.residual.observed[LAYER].norm()
        return max(
            ROW_TOLERANCE, min(self._widest(), BLUR * float(whole / left.clamp_min(torch.finfo(left.dtype).tiny)))
        )

    def found(self, searches: int = 0) -> Found:
        """Where the rounds stand, with whole numbers rounded."""
        whole = [column.kind is ColumnKind.INTEGER for column in self.encoder.schema.numerical]
        integer = torch.tensor(whole, dtype=torch.bool, device=self.cells[1].device)
        self.cells = (self.cells[0], torch.where(integer, self.cells[1].round(), self.cells[1]))
        self.residual = self.residual.explaining(self.space.encode(self.cells), self.residual.counts)
        certain = proven_rows(self.residual, self.space, self.whole, free=len(self.encoder.schema.numerical))
        return Found(self.residual, self.cells, certain, self.rank, self.space, searches, self.factor)

    def _enumerate(self, tolerance: float) -> int:
        """Rows that the first layer's row space admits, verified there.

        Of rows that share every mask of the second layer only a sum lies in that layer's spaces; the first layer tells
        them apart once few rows are left.
        """
        found = enumerate_rows(self.residual.left[0], self.space, self.spaces[0].rank)
        candidates = Candidates(found.codes, found.numbers, found.distance)
        return self.accept(candidates, tolerance, layer=0) if len(found.codes) else 0

    def _not_alone(self, best: Candidates, tolerance: float, together: bool) -> int:
        """Rows that occur more than once; where they do not explain all, the last few by `explain_together` instead.

        Different rows that share all masks look like equal ones half-way between them.
        """
        before = self._state
        equal = self.accept(best, tolerance, LAYER, alone=False)
        if equal and self.residual.rows_left:
            self.before_equal = self.before_equal or before
        if not together or (equal and (self.residual.rows_left or self._explained)):
            return equal
        return self._instead(before) or equal

    def _instead(self, before: State) -> int:
        """Rows by `explain_together` from an earlier state on; back to the present one where there are none."""
        after = self._state
        self._return_to(before)
        fitted = self._together()
        if not fitted:
            self._return_to(after)
        return fitted

    @property
    def _explained(self) -> bool:
        return self.residual.rows_left == 0 and self.residual.relative < EXPLAINED

    @property
    def _state(self) -> State:
        return self.residual, self.cells, self.space, self.spaces

    def _return_to(self, state: State) -> None:
        self.residual, self.cells, self.space, self.spaces = state

    def _together(self) -> int:
        """The last few rows by `explain_together`."""
        found = explain_together(self.residual, self.space, self.whole_space, self.spaces[0].rank, self.generator)
        if found is None:
            return 0
        cells, labels = found[0], one_hot(found[1], self.chain.n_classes).to(self.residual.counts)
        cells, x, group = _distinct(cells, self.space.encode(cells))
        self._take(cells, x, labels.new_zeros(len(x), labels.shape[1]).index_add(0, group, labels))
        return len(x)

    def accept(self, candidates: Candidates, tolerance: float, layer: int, alone: bool = True) -> int:
        """Verify candidates, explain the gradient by those that pass, and see what is left.

        Args:
            candidates: rows.
            tolerance: part of a row that may lie outside of the row space.
            layer: index of the layer whose spaces they are held against.
            alone: pass only rows that no other row of the batch is equal to.

        Returns:
            How many passed.
        """
        cells = self.space.cells(candidates.codes, candidates.numbers)
        cells, x, _ = _distinct(cells, self.space.encode(cells))
        verdict = verify(self.chain, layer, self.spaces[layer], x, self.residual.n_rows)
        inside = verdict.row_distance < tolerance
        passed = (
            inside
            & (verdict.unit_distance < UNIT_FACTOR * tolerance)
            & (verdict.coefficient_error < max(COEFFICIENT_TOLERANCE, COEFFICIENT_FACTOR * tolerance))
        )
        if alone:
            passed &= verdict.counts.sum(-1) == 1
        if not len(self.residual.x):
            near = inside & (verdict.single_distance < UNIT_FACTOR * tolerance)
            best = verdict.row_distance.argsort(stable=True)
            factor = common_factor(verdict.single[self._unlike(cells, best[near[best]])])  # a reading counts once
            if factor is not None and abs(factor - 1) > COEFFICIENT_TOLERANCE:
                self.factor *= factor
                self._begin(tuple(layer * factor for layer in self.residual.observed))
                return self.accept(candidates, tolerance, layer, alone)
        order = verdict.row_distance.argsort(stable=True)
        chosen = self._unlike(cells, order[passed[order]])[: self.spaces[layer].rank]
        chosen = chosen[verdict.counts[chosen].sum(-1).cumsum(0) <= self.residual.rows_left]
        if not len(chosen):
            return 0
        self._take((cells[0][chosen], cells[1][chosen]), x[chosen], verdict.counts[chosen])
        return len(chosen)

    def _take(self, cells: tuple[Tensor, Tensor], x: Tensor, counts: Tensor) -> None:
        """Explain the gradient by further rows, correct the numbers of all, and see what is left."""
        self.residual = self.residual.with_rows(x, counts)
        self.cells = (torch.cat([self.cells[0], cells[0]]), torch.cat([self.cells[1], cells[1]]))
        rows = self.residual.rows_left
        left = max(self.spaces[LAYER].rank - len(x), min(1, rows))
        # A last row that is only nearly right would be made up for by all others.
        for _ in range(REFITS if rows or self.residual.relative < EXPLAINED else 0):
            # The spaces of what is left sharpen with every correction.
            self._decompose(left)
            self.residual, self.cells = refit_numbers(self.residual, self.cells, self.space, self.spaces, turns=1)
        self._decompose(left)
        if rows:
            self.space = infer_space(
                self.residual.left[0], self.encoder, self.prior, rows, self.residual.observed[0], self.space.ties
            )

    def _decompose(self, rank: int) -> None:
        """Spaces of what is left; equal masks may make the second layer's rank less than the number of rows."""
        singular = torch.linalg.svdvals(self.residual.left[0] / self.first_scale.unsqueeze(-1))
        there = int((singular > FIRST_LAYER_FLOOR * self.largest).sum())
        first = min(self.residual.rows_left, self.first_rank, max(1, there))
        self.spaces = (
            spaces_of(self.residual.left[0], self.first_scale, first),
            spaces_of(self.residual.left[LAYER], self.scale, rank),
        )

    def _unlike(self, cells: tuple[Tensor, Tensor], order: Tensor) -> Tensor:
        """Of these candidates, best first, those that are no second reading of a better one.

        Candidates of equal categories and nearly equal numbers are taken one at a time: should both be true, the other
        passes again once the first is taken out.
        """
        codes, values = cells
        kept: list[int] = []
        for i in order.tolist():
            same = (codes[kept] == codes[i]).all(-1)
            close = ((values[kept] - values[i]).abs() <= NEAR * self.encoder.deviation).all(-1)
            if not bool((same & close).any()):
                kept.append(i)
        return torch.tensor(kept, dtype=torch.long, device=order.device)


NEAR = 0.1
"""Deviations within which two numbers may be readings of one."""


SCALED_WITHIN, LEAST_SCALED = 0.01, 3
"""Coefficients of at least this many rows within 1% of their median say that the client scaled its gradient."""


def common_factor(coefficients: Tensor) -> float | None:
    """What all of a gradient must be multiplied by, where a client clipped it: rows that are alone agree on it.

    >>> common_factor(torch.tensor([3.0, 3.001, 2.999, 1.5]))
    3.0
    >>> common_factor(torch.tensor([3.0, 1.5, 0.2])) is None
    True
    """
    if len(coefficients) < LEAST_SCALED:
        return None
    # Two rows that are equal have half the coefficient: they stay in the minority.
    median = coefficients.quantile(0.5) if len(coefficients) % 2 else coefficients.sort().values[len(coefficients) // 2]
    agree = (coefficients / median - 1).abs() < SCALED_WITHIN
    enough = int(agree.sum()) >= max(LEAST_SCALED, (len(agree) + 1) // 2)
    return float(median) if enough and float(median) > 0 else None


def varied(codes: Tensor, copies: int = COPIES) -> Tensor:
    """Order of candidates, best first: at most so many of equal categories before those of others come.

    >>> varied(torch.tensor([[1], [1], [1], [2]]), copies=2).tolist()
    [0, 1, 3, 2]
    """
    # A table without categorical columns has codes of width 0, which `unique` refuses.
    _, group = torch.nn.functional.pad(codes, (0, 1)).unique(dim=0, return_inverse=True)
    before = (group.unsqueeze(0) == group.unsqueeze(1)).tril(-1).sum(1)
    return (before // copies).argsort(stable=True)


def _distinct(cells: tuple[Tensor, Tensor], x: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
    """Cells and encoded rows without repetitions, and which of them every row is."""
    merged = torch.cat([cells[0].double(), cells[1]], -1)
    _, group = merged.unique(dim=0, return_inverse=True)
    first = torch.full((int(group.max()) + 1,), len(group), device=group.device)
    first = first.scatter_reduce(0, group, torch.arange(len(group), device=group.device), "amin")
    return (cells[0][first], cells[1][first]), x[first], group
