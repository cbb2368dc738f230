"""Joint inversion of pruned updates, by an attacker who knows how they were pruned.

What a client sent is exact. What it left out is zero in the update, but not in the gradient: under magnitude pruning
(top-k compression) it is at most as large as the smallest element sent, and what was cut off at a largest size is at
least as large. So every element has an interval, and rows are looked for whose gradient lies in all of them
(`interval_course`); their numbers are then fitted to what is known exactly.

Where most elements were sent, the others of the last hidden layer follow from its low rank (`completion`), and rows
are read off it one at a time; the others are looked for within what these leave.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from lightleak.attacks.attack import Progress
from lightleak.attacks.gradient_inversion.exact.certify.feasibility import estimate_feasibility, row_kind
from lightleak.attacks.gradient_inversion.exact.shell import CertifiedRows
from lightleak.attacks.gradient_inversion.joint.attack import (
    OneGradientInversion,
    certified_rows,
    pose,
    rows_that_stand_out,
)
from lightleak.attacks.gradient_inversion.joint.completion import completed, one_hot_basis
from lightleak.attacks.gradient_inversion.joint.course import Report, Solution, reporting
from lightleak.attacks.gradient_inversion.joint.gauss_newton import gauss_newton
from lightleak.attacks.gradient_inversion.joint.guess import Guess
from lightleak.attacks.gradient_inversion.joint.interval_course import (
    PRIOR_WEIGHT,
    IntervalsConfig,
    labels_by_starts,
    solve_within,
)
from lightleak.attacks.gradient_inversion.joint.intervals import Intervals, objective
from lightleak.attacks.gradient_inversion.joint.kernels import Gradient
from lightleak.attacks.gradient_inversion.joint.labels import labels_within, labels_without, starting_labels
from lightleak.attacks.gradient_inversion.joint.noise import ROUNDING, rounding_variances
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows
from lightleak.attacks.gradient_inversion.joint.refinement import SOLVED
from lightleak.attacks.gradient_inversion.network.chain import observed_gradient
from lightleak.core.errors import ObservationError
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import derive_seed, generator
from lightleak.data.encoder import TableEncoder

LeftOut = Literal["smallest", "any"]

UNIFORM = 3**-0.5
"""Deviation of an element that lies anywhere between minus and plus a bound of 1."""


@dataclass(frozen=True)
class PrunedConfig(IntervalsConfig):
    """Settings of the attack on pruned updates; see `IntervalsConfig` for the others.

    Attributes:
        left_out: which elements of a tensor the client left out: the ``smallest``, or ``any`` (random pruning).

    Raises:
        UsageError: a value of the wrong type or out of range.
    """

    owner: ClassVar[str] = "exact_pruned"

    left_out: LeftOut = "smallest"


@dataclass(frozen=True)
class Pruned:
    """A gradient of which some elements were left out, or cut off at a largest size.

    Attributes:
        sent: the gradient as it was sent ``[out, in + 1]`` per layer, zero where elements were left out.
        variance: of what was sent about the gradient, element by element.
        lowest: least value that an element of the gradient may have; the element itself where it was sent whole.
        highest: largest value.
        open: elements that were cut off at a largest size and do not follow from the others, bool.
        follows: what was not sent of the last hidden layer follows from the rest.
    """

    sent: Gradient
    variance: Gradient
    lowest: Gradient
    highest: Gradient
    open: Gradient
    follows: bool = False

    @property
    def rounding(self) -> float:
        """Root mean square of the rounding of what was sent."""
        return ROUNDING * _mean_square(list(self.sent))

    def bounds_beside(self, explained: Gradient, share: float) -> tuple[Gradient, Gradient]:
        """Bounds on the mean gradient of that share of the rows, given what the others explain."""
        each = zip(self.lowest, self.highest, explained, strict=True)
        pairs = [((low - own) / share, (high - own) / share) for low, high, own in each]
        return tuple(low for low, _ in pairs), tuple(high for _, high in pairs)

    @property
    def error_variances(self) -> Gradient:
        """Variance of every element's error as certificates take it.

        What was left out of a column has one row's sign in all its units, at worst. Counted as often as the column has
        such elements, its squares bound their sum in any direction (Cauchy and Schwarz). What is open may be anything.
        """
        anything = (ANYTHING * max(float(layer.abs().max()) for layer in self.sent)) ** 2
        each = zip(self.lowest, self.highest, self.open, rounding_variances(self.sent), strict=True)
        found = []
        for low, high, is_open, rounding in each:
            is_left = ((high - low) > 0) & ~is_open
            square = torch.where(is_left, high.square() * is_left.sum(0), 0.0)
            found.append((square + rounding).masked_fill(is_open, anything))
        return tuple(found)

    @property
    def was_cut(self) -> bool:
        """Whether elements were cut off at a largest size: several have it, where one always does."""
        return sum(int((o & (v != 0)).sum()) for o, v in zip(self.open, self.sent, strict=True)) > 1

    @classmethod
    def of(cls, sent: Gradient, left_out: LeftOut) -> "Pruned":
        """Read off the values what was left out: zeros, and the largest size, where elements may have been cut off.

        A tensor of zeros was not sent at all. Weights and biases were pruned each on their own.
        """
        lowest, highest, variance = [], [], []
        cut_at = max(layer.abs().max() for layer in sent)
        for layer in sent:
            size, unknown = layer.abs(), layer.clone().zero_()
            bound = torch.full_like(layer, torch.inf)
            for part in (slice(None, -1), slice(-1, None)):
                is_sent = layer[:, part] != 0
                if bool(is_sent.any()) and left_out == "smallest":
                    bound[:, part] = size[:, part][is_sent].min()
            is_out, is_cut = layer == 0, size == cut_at
            typical = layer.square().mean().sqrt()
            unknown = torch.where(is_out, torch.where(bound.isinf(), typical, UNIFORM * bound), 0.0)
            variance.append(unknown.square() + torch.where(is_cut, size, 0.0).square())
            lowest.append(torch.where(is_out, -bound, torch.where(is_cut & (layer < 0), -torch.inf, layer)))
            highest.append(torch.where(is_out, bound, torch.where(is_cut & (layer > 0), torch.inf, layer)))
        bounds = zip(lowest, highest, strict=True)
        return cls(
            sent, tuple(variance), tuple(lowest), tuple(highest), tuple(a.isinf() | b.isinf() for a, b in bounds)
        )

    def completed(self, n_rows: int, encoder: TableEncoder) -> "Pruned":
        """With elements of the last hidden layer that were not sent as they follow from the rest; see `completion`.

        Where too little is known nothing changes. Rows are looked for by that layer; they then explain the others.

        Args:
            n_rows: behind the gradient.
            encoder: of its rows.
        """
        at = len(self.sent) - 2
        layer, variance, is_open = self.sent[at], self.variance[at], self.open[at]
        is_known = variance == 0
        follows = ~is_known & (is_known.sum(1, keepdim=True) >= n_rows) & (is_known.sum(0) >= n_rows)
        basis, rounding = None if at else one_hot_basis(encoder), ROUNDING * float(layer.square().mean().sqrt())
        is_again = bool((is_open & (layer != 0)).any()) and float(is_known.double().mean()) > KNOWN
        sizes = FIRST_SIZES if is_again else FIRST_SIZES[:1]
        for times in sizes if bool(follows.any()) else ():
            first = torch.where(is_open, times * layer, layer)
            done = completed(first, is_known, ~is_known & ~is_open, n_rows, basis)
            if done is None:
                continue
            found, missed = done
            beyond = (found - found.clamp(self.lowest[at], self.highest[at]))[follows].square().mean()
            left = beyond + missed**2
            if left < rounding**2:
                break
        else:
            return self
        left = COMPLETED * (left + rounding**2)
        sent, variances, still_open = list(self.sent), list(self.variance), list(self.open)
        sent[at], variances[at] = torch.where(follows, found, layer), torch.where(follows, left, variance)
        still_open[at] = is_open & ~follows
        return replace(
            self,
            sent=self.filled(tuple(sent)),
            variance=tuple(variances),
            open=tuple(still_open),
            follows=True,
        )

    def filled(self, explained: Gradient) -> Gradient:
        """The gradient with what is not known of its elements as rows explain them."""
        each = zip(explained, self.lowest, self.highest, strict=True)
        return tuple(own.clamp(low, high) for own, low, high in each)


ANYTHING = 1e3
"""Deviation of an open element, in the largest one sent, for certificates."""

FIRST_SIZES = (1.0, 2.0, 4.0)
"""What completions start from, in the size at which elements were cut off: some end where they do not fit."""

KNOWN = 0.75
"""Share of the elements from which on a completion that does not fit is worth another start. With half of them three
starts took 91 CPU seconds in vain (GELU, seed 70001)."""

COMPLETED = 4.0
"""Variance of an element that follows from the others, in that of rounding, of what the completion misses of known
elements, and of by how much it leaves the bounds of others."""


def _mean_square(layers: list[Tensor]) -> float:
    """Root mean square of all elements."""
    elements = sum(layer.numel() for layer in layers)
    return float((sum(layer.square().sum() for layer in layers) / elements) ** 0.5)


class PrunedInversion(OneGradientInversion[PrunedConfig]):
    """Recover all rows of a FedSGD batch of which a client sent some elements of the gradient only.

    Needs what joint inversion needs, and how the update was pruned. Rows are certified by what was sent, which they
    must explain to rounding. Where they do not, and independent starts have less in common with each other than with
    the best guess, the guess is returned.
    """

    name = "exact_pruned"
    title = "Exact inversion of pruned updates"

    def check_protocol(self, update: ClientUpdate) -> None:
        """See `OneGradientInversion`; an update without zeros was not pruned."""
        super().check_protocol(update)
        if all(bool(value.all()) for value in update.update.values()):
            raise ObservationError(f"{self.name} inverts pruned updates, and this one has no element of zero")

    def invert(
        self, update: ClientUpdate, encoder: TableEncoder, seed: int, progress: Progress | None
    ) -> CertifiedRows:
        """See `CertifyingInversion.invert`."""
        sent = Pruned.of(observed_gradient(update, encoder.shift.device), self.config.left_out)
        pruned = sent.completed(update.facts.n_rows, encoder)
        problem = pose(update, encoder, pruned.sent, pruned.rounding, self.config.prior)
        draws, report = generator(seed, "pruned"), reporting(progress)
        problem, first = replace(problem, prior_weight=PRIOR_WEIGHT), starting_labels(update, problem.space, draws)
        intervals = Intervals.of(problem, (sent.lowest, sent.highest), first, draws)
        labels, guess = labels_within(problem, intervals, draws), Guess.of(problem, update, seed)
        visible, root = self._visible(update, sent, pruned, problem, draws), derive_seed(seed, "pruned")
        if visible is None:
            labels = labels_by_starts(problem, intervals, labels, self.config, derive_seed(seed, "counts"))
            solution = solve_within(problem, intervals, labels, self.config, draws, root, report, guess.cells)
        else:
            solution = self._beside(sent, problem, visible, labels, draws, root, report)
        problem, solution = _fitted(pruned, problem, intervals, solution)
        left = _mean_square(list(problem.residual(solution.rows)))
        is_near = left < NEAR * _mean_square(list(problem.target))
        feasibility = estimate_feasibility(problem.target, problem.n_rows, left, row_kind(update, encoder))
        if solution.is_guess_better and not is_near:
            report(1.0)
            return guess.reconstruction(problem, labels, feasibility)
        assert not solution.solved  # the target that it explains is filled in: proofs rest on what was sent
        errors = [sent.error_variances] if is_near or visible is not None else None
        rows = certified_rows(problem, update, solution, feasibility, [sent.sent], errors)
        report(1.0)
        return rows

    def _visible(
        self, update: ClientUpdate, sent: Pruned, pruned: Pruned, problem: JointProblem, draws: torch.Generator
    ) -> JointRows | None:
        """Rows that stand out of a completed layer; None if too few do."""
        if not (sent.was_cut or pruned.follows) or not all(bool(layer.any()) for layer in sent.sent):
            return None
        errors = tuple(v + r for v, r in zip(pruned.variance, rounding_variances(pruned.sent), strict=True))
        visible = rows_that_stand_out(problem, update, errors, draws)
        return visible if len(visible.labels) >= VISIBLE * problem.n_rows else None

    def _beside(
        self,
        sent: Pruned,
        problem: JointProblem,
        visible: JointRows,
        labels: Tensor,
        draws: torch.Generator,
        seed: int,
        report: Report,
    ) -> Solution:
        """Rows that stand out, and the others within what these leave."""
        members: tuple[JointRows, ...] = (visible, visible)  # all agree on what stands out
        if len(visible.labels) < problem.n_rows:
            others = replace(problem.without(visible), prior_weight=PRIOR_WEIGHT)
            bounds = sent.bounds_beside(problem.gradient(visible), others.n_rows / problem.n_rows)
            intervals = Intervals.of(others, bounds, labels_without(labels, visible.labels), draws)
            left, few = labels_within(others, intervals, draws), self.config.for_few_rows
            found = solve_within(others, intervals, left, few, draws, seed, report)
            members = tuple(visible.joined(rows) for rows in (found.rows, *found.ensemble))
        return Solution(members[0], problem.value(members[0]), members)


NEAR = 1e-3
"""Share of the gradient that rows within intervals may leave for a proof to be tried, and not to be given up for a
guess: a proof needs what was sent explained to rounding, and takes up to 14 CPU seconds in vain."""

VISIBLE = 0.75
"""Minimum share of rows that stand out for the others to be looked for by themselves. With 14 of 32 of them (ReLU, half
of the elements, seed 70001) 86% of the cells were right, within intervals of all rows all."""


def _fitted(
    pruned: Pruned, problem: JointProblem, intervals: Intervals, found: Solution
) -> tuple[JointProblem, Solution]:
    """Rows within intervals, with their numbers fitted to what is known where that lowers their cost."""
    _, rows = _refit(pruned, problem, found.rows)
    sharp = intervals.at(1.0)
    if objective(problem, sharp, rows) < objective(problem, sharp, found.rows):
        found = replace(found, rows=rows)
    problem = _filled(pruned, problem, found.rows)
    return problem, replace(found, value=problem.value(found.rows))


def _filled(pruned: Pruned, problem: JointProblem, rows: JointRows) -> JointProblem:
    """The problem with what is not known of its gradient as rows explain it."""
    return replace(problem, target=pruned.filled(problem.gradient(rows)))


def _refit(pruned: Pruned, problem: JointProblem, rows: JointRows) -> tuple[JointProblem, JointRows]:
    """Fit the numbers of rows of which nothing else is open, and what is not known of the gradient, in turns."""
    before = torch.inf
    for _ in range(REFITS):
        problem = _filled(pruned, problem, rows)
        rows, value = gauss_newton(problem, rows, NEWTON_STEPS)
        if value < SOLVED or value > SETTLED * before:
            break
        before = value
    return problem, rows


REFITS, NEWTON_STEPS, SETTLED = 40, 4, 0.9
"""Turns at most, Gauss-Newton steps of each, and the part of the distance that is left where no further one follows."""
