"""The course of the exact inversion of a weight update: tests first, a fit of all layers for what they leave open."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.certify.proven import Proof
from lightleak.attacks.gradient_inversion.exact.enumerate.row_equations import RowEquations
from lightleak.attacks.gradient_inversion.exact.shell import CertifiedRows
from lightleak.attacks.gradient_inversion.fedavg.exact.agreement import Agreed
from lightleak.attacks.gradient_inversion.fedavg.exact.config import ExactFedAvgConfig
from lightleak.attacks.gradient_inversion.fedavg.exact.counts import (
    LEAST,
    class_counts,
    possible_scales,
    predicted_shares,
    scale_of_single_rows,
    single_counts,
)
from lightleak.attacks.gradient_inversion.fedavg.exact.decomposition import Decomposition, decompose, refine
from lightleak.attacks.gradient_inversion.fedavg.exact.explain import gather
from lightleak.attacks.gradient_inversion.fedavg.exact.leftovers import SAMPLE, Known, fit_layers, problem_of
from lightleak.attacks.gradient_inversion.fedavg.exact.observed import WeightUpdate
from lightleak.attacks.gradient_inversion.fedavg.exact.proof import EXPLAINED_WITHIN, proven_alone, proven_together
from lightleak.attacks.gradient_inversion.fedavg.exact.shares import Fit, fit_shares, with_better_numbers
from lightleak.attacks.gradient_inversion.joint.problem import JointRows
from lightleak.attacks.gradient_inversion.optimize.labels import each_row
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.attacks.gradient_inversion.tables.schema_inference import infer_domain
from lightleak.data.encoder import TableEncoder

COMPLETE_BELOW = 10.0
"""What rows may leave of the first layer's update, relative to rounding, when they are all of the batch: measured 0.2
to 4 where every row was right, and over 50 with one wrong category."""

SETTLED = 3e-3
"""Squared distance, relative to that of no rows, at which no further fit is tried: where all rows were right it was
1e-3 or less, by which the straight way of the weights differs from the true one, and with a wrong cell over 1e-2."""

MATCHES = 0.3
"""Part of a row's share that its predicted share may miss while its label is taken as known: the way of the weights
is known to 5 to 15 %, and the wrong label or a wrong scale misses by all of it."""


RESCALED = 1.2
"""Factor by which rows' shares must fall short of their predictions before the update is taken to be clipped: the
predictions themselves miss by 5 to 15 %."""

MOST_RESCALINGS = 4
"""Where training ended shows only with the scale known, and the scale by where it ended: both are found in turn."""


@dataclass(frozen=True)
class Inverted:
    """Rows of an update.

    Attributes:
        space: whose coordinates.
        rows: all of them.
        multiplicity: rows that are equal to each ``[n]``.
        proof: what is proven of them.
        left: norm of what they leave of the first layer's update, relative to its own.
        equations: of the update.
        observed: the update, at the scale that the rows show.
        fitted: rows that were fitted to all layers; then ``rows`` are these, or those that single tests found.
    """

    space: RowDomain
    rows: JointRows
    multiplicity: Tensor
    proof: Proof
    left: float
    equations: RowEquations
    observed: WeightUpdate
    fitted: CertifiedRows | None = None

    def is_whole(self, n_rows: int) -> bool:
        """Whether all rows of the update are here and proven."""
        return len(self.rows.labels) == n_rows and bool(self.proof.cells.all())

    def proven(self) -> tuple[Tensor, Proof]:
        """The rows that are proven, encoded ``[m, d]``, and their proof."""
        sure = self.proof.cells
        cells = self.space.cells(self.rows.codes[sure], self.rows.numbers[sure])
        return self.space.encoder.assemble(*cells), self.proof[sure]


@dataclass(frozen=True)
class Inversion:
    """Finds the rows behind an update.

    Attributes:
        encoder: on the update's device.
        prior: what is believed of cells.
        n_rows: rows behind the update.
        config: limits of the work.
        generator: a CPU generator.
    """

    encoder: TableEncoder
    prior: RowPrior
    n_rows: int
    config: ExactFedAvgConfig
    generator: torch.Generator

    def run(self, observed: WeightUpdate, by_layers: Callable[[], CertifiedRows | None] | None = None) -> Inverted:
        """The rows of one update.

        Args:
            observed: the update.
            by_layers: fits rows to all layers of the update as it was sent, behind its noise, where tests of rows do
                not suffice; None where they do not explain it.
        """
        sent, n_rows = observed, self.n_rows
        observed, equations, rows = self._first_rows(sent)
        space = equations.space
        if 0 < equations.rank <= len(rows) + 1:
            found = decomposed(observed, equations, rows)
            sharp = sharpened(observed, space, found)
            # With fewer distinct rows than rows, one might hide in the noise instead of being equal to another.
            if sharp.left < (COMPLETE_BELOW if equations.rank == n_rows else EXPLAINED_WITHIN):
                return _of_decomposition(observed, equations, sharp, n_rows)
        fitted = None if by_layers is None else by_layers()
        if fitted is not None and observed.scale != sent.scale and not fitted.guesses:
            return self.run(replace(sent, may_be_rescaled=False), lambda: fitted)
        single = single_counts(*_shares(observed, equations, rows, n_rows))
        fixed = rows.unique & (single.misfit < MATCHES)
        known = Known(rows.codes, rows.numbers, single.counts.argmax(1), fixed, rows.precise)
        if fitted is not None and (not fitted.guesses or not len(rows)):
            return _proven_with_fit(observed, equations, known, fitted, n_rows)
        if observed.may_be_rescaled and not len(rows):
            whole = RowDomain.whole(self.encoder, self.prior)
            drawn = whole.draw(SAMPLE, self.generator, from_prior=True)
            scales = possible_scales(observed, whole.rows.of(*drawn))
            if 0 < min(scales) < 1 / RESCALED:
                return self._at_scales(observed, scales)
        return self._fitted(observed, equations, known)

    def _at_scales(self, observed: WeightUpdate, scales: Sequence[float]) -> Inverted:
        """The best of one fit at each scale, the first that is proven."""
        once = replace(self, config=replace(self.config, restarts=1))
        found: list[Inverted] = []
        for scale in scales:
            found.append(once.run(replace(observed.rescaled(1 / scale), may_be_rescaled=False)))
            if bool(found[-1].proof.cells.any()):
                return found[-1]
        return min(found, key=lambda one: one.left)

    def _first_rows(self, observed: WeightUpdate) -> tuple[WeightUpdate, RowEquations, Agreed]:
        """The rows that tests find, with the update at the scale that they show."""
        for left in reversed(range(MOST_RESCALINGS + 1)):
            space = infer_domain(observed.gradient[0], self.encoder, self.prior, self.n_rows, noise=observed.noise)
            equations = RowEquations.of(observed.gradient[0], space, self.n_rows, observed.noise)
            _, rows = gather(observed, equations, self.config.limits, self.generator)
            if not (left and observed.may_be_rescaled and len(rows)):
                break
            scale = scale_of_single_rows(*_shares(observed, equations, rows, self.n_rows))
            if not 0 < scale < 1 / RESCALED:
                break
            observed = observed.rescaled(1 / scale)
        return observed, equations, rows

    def _fitted(self, observed: WeightUpdate, equations: RowEquations, known: Known) -> Inverted:
        """The best of several fits: the first that is proven, else the one of least distance."""
        space, n_rows = equations.space, self.n_rows
        problem = problem_of(observed, space, n_rows, self.generator)
        best, least, left = None, float("inf"), 1.0
        for _ in range(self.config.restarts):
            rows, value = fit_layers(problem, known, n_rows, self.config.steps, self.generator)
            sharp = sharpened(observed, space, refine(observed, equations, rows.codes, rows.numbers))
            if sharp.left < EXPLAINED_WITHIN:
                return _of_fit(observed, equations, sharp, rows.labels, n_rows)
            if best is None or value < least:
                best, least, left = rows, value, _relative(observed, sharp)
            if least < SETTLED:
                break
        assert best is not None
        others = Proof.nothing(best.codes[len(known.codes) :])
        proof = _alone(observed, equations, known, n_rows).joined(others)
        return Inverted(space, best, torch.ones_like(best.labels), proof, left, equations, observed)


def _shares(observed: WeightUpdate, equations: RowEquations, rows: Agreed, n_rows: int) -> tuple[Tensor, Tensor]:
    """What each row adds to the first layer's update ``[r, h]``, and what one of each class would."""
    scale = (rows.vectors * equations.coordinates(rows.codes, rows.numbers)).sum(1, keepdim=True)
    x = equations.space.rows.of(rows.codes, rows.numbers)
    return (rows.vectors @ equations.gradient.T) / scale, predicted_shares(observed, x, n_rows)


def decomposed(observed: WeightUpdate, equations: RowEquations, rows: Agreed) -> Decomposition:
    """The update as rows, given all duals; or all but one, whose dual is what is orthogonal to the other rows."""
    vectors = rows.vectors
    if len(rows) < equations.rank:
        others = equations.coordinates(rows.codes, rows.numbers)
        vectors = torch.cat([vectors, equations.orthogonal_to(others).span])
    found = decompose(equations, vectors)
    return found if found.left < COMPLETE_BELOW else refine(observed, equations, found.codes, found.numbers)


def sharpened(observed: WeightUpdate, space: RowDomain, found: Decomposition) -> Fit:
    """The rows of a decomposition with the numbers that leave least of the update."""
    return with_better_numbers(observed, space, fit_shares(observed, space, found.codes, found.numbers))


def _of_decomposition(observed: WeightUpdate, equations: RowEquations, fit: Fit, n_rows: int) -> Inverted:
    """All distinct rows are found: each as often as its share says."""
    space = equations.space
    predicted = predicted_shares(observed, fit.x, n_rows)
    counts = class_counts(fit.shares, predicted, n_rows, observed.fit_scale).counts
    proof = proven_together(observed, space, fit, counts, n_rows, equations.rank)
    each, labels = each_row(counts)
    rows = JointRows(fit.codes[each], fit.numbers[each], labels)
    return Inverted(space, rows, counts.sum(1)[each], proof[each], _relative(observed, fit), equations, observed)


def _relative(observed: WeightUpdate, fit: Fit) -> float:
    """What rows leave of the first layer's update, relative to it."""
    return float(fit.remains.norm() / observed.gradient[0].norm().clamp_min(LEAST))


def _proven_with_fit(
    observed: WeightUpdate, equations: RowEquations, known: Known, fitted: CertifiedRows, n_rows: int
) -> Inverted:
    """The fitted rows proven together; or if they do not explain the first layer, single rows."""
    space, left = equations.space, 1.0
    if not fitted.guesses:
        codes, numbers = space.coordinates(space.encoder.project(fitted.encoded))
        sharp = sharpened(observed, space, refine(observed, equations, codes, numbers))
        if sharp.left < EXPLAINED_WITHIN:
            return replace(_of_fit(observed, equations, sharp, fitted.labels, n_rows), fitted=fitted)
        left = _relative(observed, sharp)
    rows, proof = JointRows(known.codes, known.numbers, known.labels), _alone(observed, equations, known, n_rows)
    return Inverted(space, rows, torch.ones_like(rows.labels), proof, left, equations, observed, fitted)


def _alone(observed: WeightUpdate, equations: RowEquations, known: Known, n_rows: int) -> Proof:
    """What is proven of the rows that tests found, whatever the others are."""
    alone = proven_alone(observed, equations, known.codes, known.numbers, known.labels, n_rows)
    taken = known.fixed & known.sure
    return Proof(alone.cells & taken, alone.digits & taken)


def _of_fit(observed: WeightUpdate, equations: RowEquations, fit: Fit, labels: Tensor, n_rows: int) -> Inverted:
    """All rows are found, some of them perhaps more than once."""
    space = equations.space
    codes, values = space.cells(fit.codes, fit.numbers)
    _, source = torch.cat([codes.to(values.dtype), values], 1).unique(dim=0, return_inverse=True)
    first = torch.stack([(source == i).nonzero()[0, 0] for i in range(int(source.max()) + 1)])
    counts = labels.new_zeros(len(first), observed.start.n_classes)
    counts.index_put_((source, labels), torch.ones_like(labels), accumulate=True)
    distinct = fit_shares(observed, space, fit.codes[first], fit.numbers[first])
    proof = proven_together(observed, space, distinct, counts, n_rows, equations.rank)
    rows = JointRows(fit.codes, fit.numbers, labels)
    return Inverted(space, rows, counts.sum(1)[source], proof[source], _relative(observed, fit), equations, observed)
