"""The course of exact inversion: infer the columns, find rows, verify them, take them out, and again."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from lightleak.attacks.gradient_inversion.exact.certify.proof import proven_rows
from lightleak.attacks.gradient_inversion.exact.certify.proven import Proof
from lightleak.attacks.gradient_inversion.exact.config import ExactConfig
from lightleak.attacks.gradient_inversion.exact.enumerate.enumeration import enumerate_rows
from lightleak.attacks.gradient_inversion.exact.peel.state import State
from lightleak.attacks.gradient_inversion.exact.repair.leftovers import explain_together, split_equal
from lightleak.attacks.gradient_inversion.exact.row_tests.tolerances import (
    COEFFICIENT_TOLERANCE,
    ROW_TOLERANCE,
    narrower,
    passing,
    passing_but_for_scale,
    wider,
)
from lightleak.attacks.gradient_inversion.exact.row_tests.verification import Verdict, verify
from lightleak.attacks.gradient_inversion.exact.search.readings import common_factor, distinct, unlike
from lightleak.attacks.gradient_inversion.exact.search.row_search import Candidates, RowSearch
from lightleak.attacks.gradient_inversion.exact.spaces.residual import Residual
from lightleak.attacks.gradient_inversion.network.row_network import RowNetwork
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.data.encoder import TableEncoder

FLOORS = (1e-6, 1e-3, 1e-2, 1e-1)
"""Floors of `whitened` that searches draw from, more often those that found rows."""

WIDEN_EVERY, SEARCH_MORE_EVERY = 2, 4
"""Fruitless searches after which the tolerance grows and the number of chains doubles."""

TOGETHER_EVERY = 2
"""One in so many fruitless searches is followed by a fit of the last rows together; equal rows are looked for first."""


MOST_REPEATED = 0.5
"""Share of the candidates that pass as repeated rows from which on the gradient is not taken to be enlarged."""


@dataclass(frozen=True)
class Found:
    """Where the rounds ended.

    Attributes:
        residual: explained rows and what is left.
        cells: of the explained rows, as `TableEncoder.project` returns them.
        proof: which of them are proven.
        rank: distinct rows that the gradient showed at the beginning.
        space: rows that may be behind what is left.
        searches: searches done.
        factor: by which the gradient was multiplied, as its client had scaled it down.
    """

    residual: Residual
    cells: tuple[Tensor, Tensor]
    proof: Proof
    rank: int
    space: RowDomain
    searches: int
    factor: float


class Rounds:
    """Find the rows behind one gradient.

    Args:
        network: float64.
        observed: ``[G_l gb_l]`` per layer, float64.
        n_rows: rows of the batch.
        encoder: on the same device.
        prior: what is believed of cells.
        config: how much work.
        generator: of all random numbers, on the CPU.
    """

    def __init__(
        self,
        network: RowNetwork,
        observed: tuple[Tensor, ...],
        n_rows: int,
        encoder: TableEncoder,
        prior: RowPrior,
        config: ExactConfig,
        generator: torch.Generator,
    ) -> None:
        self.network, self.encoder, self.config, self.generator = network, encoder, config, generator
        self.start = self.state = State.start(network, observed, n_rows, encoder, prior)
        self.before_equal: State | None = None
        self.factor = 1.0

    def run(self) -> Found:
        """Search until every distinct row is found or nothing new turns up.

        Nothing is searched where the numbers of a row alone could be bent to meet all equations on it.
        """
        spaces = self.state.searched
        if spaces.row_null.shape[1] + spaces.unit_null.shape[1] <= len(self.state.space.free):
            return self.found()
        config, floors, searched = self.config, torch.ones(len(FLOORS)), self.network.searched
        least = max(1, round(config.chains * self.network.search_share))
        fruitless, chains, tolerance, searches = 0, least, ROW_TOLERANCE, 0
        while self.state.searched.rank > 0 and self.state.residual.rows_left > 0 and fruitless < config.patience:
            if self.network.first_input is not None and self._enumerate(tolerance):
                continue
            choice = int(torch.multinomial(floors, 1, generator=self.generator))
            best = self._search(chains, FLOORS[choice])
            accepted = self.accept(best, tolerance, searched)
            if not accepted and self.state.residual.rows_left <= config.enumerate_below:
                accepted = self._enumerate(tolerance)
            if not accepted and fruitless > 0:
                accepted = self._not_alone(best, tolerance, together=fruitless % TOGETHER_EVERY == 0)
            searches += 1
            floors[choice] = 0.5 * floors[choice] + 0.5 * accepted * least / chains + 0.02
            state = self.state
            if accepted:
                fruitless = 0
                tolerance = narrower(
                    tolerance, state.searched, state.residual.left[searched], state.residual.observed[searched]
                )
                continue
            fruitless += 1
            if fruitless % WIDEN_EVERY == 0:
                tolerance = wider(tolerance, state.searched)
            if fruitless % SEARCH_MORE_EVERY == 0:
                chains = min(config.most_chains, 2 * chains)
        if self.before_equal is not None and not self.state.is_explained:
            self._instead(self.before_equal)
        if self.state.residual.rows_left == 0 and not self.state.is_explained:
            self._move_apart()
        return self.found(searches)

    def found(self, searches: int = 0) -> Found:
        """Where the rounds stand, with whole numbers rounded."""
        state = self.state.rounded().off_kinks()
        proof = proven_rows(state.residual, self.start.space, scaled=self.factor != 1)
        return Found(state.residual, state.cells, proof, self.start.searched.rank, state.space, searches, self.factor)

    def _search(self, chains: int, floor: float) -> Candidates:
        """The best candidates of one search, polished."""
        search = RowSearch(self.network, self.state.space, self.state.searched, floor, self.generator)
        return search.best(chains, self.config.sweeps)

    def _enumerate(self, tolerance: float) -> int:
        """Rows that the first layer's row space admits, verified there.

        Of rows that share every mask of the second layer only a sum lies in that layer's spaces; the first layer shows
        them apart once few rows are left.
        """
        if not self.network.first_sees_cells:
            return 0
        state = self.state
        seen = self.network.first_input
        found = enumerate_rows(state.residual.left[0], state.space, state.spaces[0].rank, seen=seen)
        candidates = Candidates(found.codes, found.numbers, found.distance)
        return self.accept(candidates, tolerance, layer=0) if len(found.codes) else 0

    def _not_alone(self, best: Candidates, tolerance: float, together: bool) -> int:
        """Rows that occur more than once; where they do not explain all, the last few by `explain_together` instead.

        Different rows that share all masks look like equal ones half-way between them.
        """
        before = self.state
        equal = self.accept(best, tolerance, self.network.searched, alone=False)
        if equal and self.state.residual.rows_left:
            self.before_equal = self.before_equal or before
        if not together or (equal and (self.state.residual.rows_left or self.state.is_explained)):
            return equal
        return self._instead(before) or equal

    def _instead(self, before: State) -> int:
        """Rows by `explain_together` from an earlier state on; the present one stays where there are none."""
        rank = before.spaces[0].rank
        if not self.network.first_sees_cells:
            return 0
        found = explain_together(before.residual, before.space, self.start.space, rank, self.generator)
        if found is None:
            return 0
        self.state = before.with_rows(self.start, *self._distinct(*found))
        return len(self.state.residual.x) - len(before.residual.x)

    def _move_apart(self) -> None:
        """Read rows that seem to occur several times as different ones, where that explains the gradient better."""
        state = self.state
        if not bool((state.residual.counts.sum(-1) > 1).any()):
            return
        found = split_equal(state.residual, state.cells, self.start.space, self.generator)
        if found is not None:
            apart = self.start.with_rows(self.start, *self._distinct(*found))
            self.state = apart if apart.residual.relative < state.residual.relative else state

    def _distinct(self, cells: tuple[Tensor, Tensor], labels: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
        """Cells and encoded rows without repetitions, and how many rows of each class are equal to them."""
        each = one_hot(labels, self.network.n_classes).to(self.start.residual.counts)
        cells, x, group = distinct(cells, self.start.space.encode(cells))
        return cells, x, each.new_zeros(len(x), each.shape[1]).index_add(0, group, each)

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
        state = self.state
        cells = state.space.cells(candidates.codes, candidates.numbers)
        cells, x, _ = distinct(cells, state.space.encode(cells))
        most_equal = 1 if alone else state.residual.rows_left
        verdict = verify(self.network, layer, state.spaces[layer], x, state.residual.n_rows, most_equal)
        if not len(state.residual.x) and self._scale_back(cells, verdict, tolerance):
            return self.accept(candidates, tolerance, layer, alone)
        passed = passing(verdict, tolerance, alone)
        order = verdict.row_distance.argsort(stable=True)
        # Where the first layer is searched, few equations test numbers: rows of equal categories come one at a time.
        apart = self.encoder.deviation * (1.0 if self.network.searched else torch.inf)
        chosen = unlike(cells, order[passed[order]], apart)[: state.spaces[layer].rank]
        chosen = chosen[verdict.counts[chosen].sum(-1).cumsum(0) <= state.residual.rows_left]
        if not len(chosen):
            return 0
        taken = cells[0][chosen], cells[1][chosen]
        self.state = state.with_rows(self.start, taken, x[chosen], verdict.counts[chosen])
        return len(chosen)

    def _scale_back(self, cells: tuple[Tensor, Tensor], verdict: Verdict, tolerance: float) -> bool:
        """Begin again with the gradient as it was before its client scaled it, where candidates agree that it did.

        A gradient that seems to have been enlarged may as well be that of rows which occur several times.
        """
        near = passing_but_for_scale(verdict, tolerance)
        best = verdict.row_distance.argsort(stable=True)
        one_each = unlike(cells, best[near[best]], self.encoder.deviation)  # a reading counts once
        factor = common_factor(verdict.single[one_each], self.start.residual.n_rows)
        if factor is None or (self.factor != 1 and abs(factor - 1) <= COEFFICIENT_TOLERANCE):
            return False  # nothing to scale, or what the first factor has left
        if factor < 1 and self._repeated((cells[0][one_each], cells[1][one_each]), tolerance):
            return False
        self.factor *= factor
        self.network = self.network.scaled(factor)
        whole, space = self.start.residual, self.start.space
        scaled = tuple(layer * factor for layer in whole.observed)
        self.start = self.state = State.start(self.network, scaled, whole.n_rows, self.encoder, space.prior)
        return True

    def _repeated(self, cells: tuple[Tensor, Tensor], tolerance: float) -> bool:
        """Whether most of these rows pass as rows that occur several times, and the batch has room for all of them."""
        state, n = self.state, self.state.residual.n_rows
        verdict = verify(
            self.network, self.network.searched, state.searched, state.space.encode(cells), n, most_equal=n
        )
        passed = passing(verdict, tolerance, alone=False)
        if float(passed.double().mean()) < MOST_REPEATED:
            return False
        return state.searched.rank * float(verdict.counts[passed].sum(-1).mean()) < n + 1
