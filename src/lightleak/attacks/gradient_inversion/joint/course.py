"""The course of joint inversion: one for gradients as they were computed, one for noised gradients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lightleak.attacks.attack import Progress
from lightleak.attacks.gradient_inversion.config import EngineConfig
from lightleak.attacks.gradient_inversion.joint.config import JointConfig
from lightleak.attacks.gradient_inversion.joint.continuous import optimize, prior_start, stage_config, widths_of
from lightleak.attacks.gradient_inversion.joint.coordinate_descent import descend
from lightleak.attacks.gradient_inversion.joint.decision import Cells, is_no_better
from lightleak.attacks.gradient_inversion.joint.gauss_newton import gauss_newton, round_integers
from lightleak.attacks.gradient_inversion.joint.kernels import Kernels
from lightleak.attacks.gradient_inversion.joint.labels import labels_without
from lightleak.attacks.gradient_inversion.joint.pair_descent import descend_pairs
from lightleak.attacks.gradient_inversion.joint.pooling import pooled
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows
from lightleak.attacks.gradient_inversion.joint.refinement import SOLVED, Effort, Stage, moved, refine
from lightleak.core.seeds import derive_seed, generator

ROUND_BELOW = 1e-6
"""Relative distance from which on integers are rounded for good: every category is then right, and numbers nearly."""

RATE, NUMBER_RATE, TEMPERATURE_END = 0.2, 0.05, 0.2
"""Adam's steps of logits and of numbers (in deviations) from a fresh start; the softmax's temperature at the end."""

WIDTH, WIDTH_END = 0.2, 0.02
"""Widths of the masks from a fresh start. Narrower ones from the beginning see too few rows' masks, wider ones at the
end leave the masks that decide between like rows blurred."""

NOISED_WIDTH, NOISED_WIDTH_END = 0.4, 0.1
"""The same under noise, which hides what narrow masks would tell."""

TEMPERATURES = (4.0, 2.0)
"""Of two sweeps before the descent, in units of the posterior's own: single rows leave poor minima."""

WHITENED_LONGER = 2
"""Times the engine's steps of a start that goes by a whitened distance."""

NOISED_SWEEPS, SETTLING_SWEEPS = 3, 4
"""Most sweeps of every start, and between two passes over pairs of rows."""

SETTLING = 6
"""Most passes over pairs of rows."""

POLISHING = Stage(0.0, 0.1, 0.01, 0.03, 4.0)
"""Where the engine resumes from the pooled rows, most of whose masks are right."""

COOLING = (2.0, 1.5, 1.0, 1.0, 0.7, 0.5, 0.3)
"""Temperatures of the sweeps that lead out of a minimum, in units of the posterior's own."""

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
"""Of whitened distances, one of which some starts and the refinement go by where the noise is weak."""

MOST_NOISE = 0.25
"""Share of the noise in such a distance, at most: the least ridge within it is taken. Measured on Adult, 32 rows, cells
after one start, ReLU: float16 95% plainly and 100% whitened, noise of 1e-4 95 and 99%; GELU: noise of 1e-5 79 and 96%.
Where it hides more (noise of 1e-3: all of it), whitened starts end below guessing."""

EXPLAINED = 1.25
"""Rows are refined where they leave more than so many times the noise's variance, which is known to a few per cent."""

NUMBER_STEPS = 10
"""Most steps that move all numbers of a batch together."""

LEAST_NATS = 1.0
"""What a round must gain for another one to follow, in units of the posterior."""

Report = Callable[[float], None]
"""Called with the share of the work that is done."""


def reporting(progress: Progress | None) -> Report:
    """Report the share done in all as work done since the last call."""
    done = 0.0

    def report(share: float) -> None:
        nonlocal done
        if progress is not None and share > done:
            progress(share - done)
        done = max(done, share)

    return report


@dataclass(frozen=True)
class Work:
    """How much a course does, and where its random numbers come from.

    Attributes:
        config: the settings.
        draws: a CPU generator, for moves.
        seed: root of the starts.
        report: called with the share of the work that is done.
    """

    config: JointConfig
    draws: torch.Generator
    seed: int
    report: Report


@dataclass(frozen=True)
class Solution:
    """Where a course ended.

    Attributes:
        rows: the batch.
        value: relative distance, under the problem's kernels, of what the rows explain.
        ensemble: rows of every start, matched to ``rows``; empty where starts are not pooled.
        is_guess_better: a guess without the update is expected to have as many cells right.
    """

    rows: JointRows
    value: float
    ensemble: tuple[JointRows, ...] = ()
    is_guess_better: bool = False

    @property
    def solved(self) -> bool:
        """Whether the rows explain the gradient to rounding."""
        return not self.ensemble and self.value < SOLVED


def solve(problem: JointProblem, labels: Tensor, work: Work) -> Solution:
    """Rows behind a gradient without noise: start, refine, and start again where that did not explain it.

    Args:
        problem: with whitened kernels.
        labels: to start from ``[n]``.
        work: see there.
    """
    config, draws, seed = work.config, work.draws, work.seed
    widths, first = widths_of(problem), fresh(config.steps, WIDTH, WIDTH_END)
    effort = Effort(config.rounds, config.round_steps, config.reopenings)
    best: Solution | None = None
    for restart in range(config.restarts):
        start = prior_start(problem.space, problem.n_rows, seed, restart).unsqueeze(0)
        rows = optimize(problem, start, labels, first, widths)[0]
        rows = descend(problem, rows, config.sweeps, draws)
        rows, value = refine(problem, rows, effort, widths, draws, derive_seed(seed, "reopened", restart))
        work.report((restart + 1) / config.restarts)
        if best is None or value < best.value:
            best = Solution(rows, value)
        if value < SOLVED:
            break
    assert best is not None  # restarts are at least one
    if best.value < ROUND_BELOW:
        best = Solution(*round_integers(problem, best.rows, SOLVED))
    return best


def solve_noised(
    problem: JointProblem, labels: Tensor, work: Work, visible: JointRows | None = None, guess: Cells | None = None
) -> Solution:
    """The most probable rows behind a noised gradient: several starts descend the posterior, are pooled, and continue.

    Rows that stand out of the noise are where every start begins; only the others are drawn, and where there are none
    and the rows leave no more than noise, nothing else is tried.
    Rounds follow as long as they gain: the true rows' posterior is often above that of the pooled ones, and then
    search is what lacks, not information. Where the noise is weak, every other start goes by a whitened distance, and
    rows that leave more than noise are refined by it as without noise.
    A guess that is expected to have as many cells right as the first start's rows ends the search.

    Args:
        problem: with plain kernels and a prior, whose weight is twice the noise's variance.
        labels: to start from ``[n]``.
        work: see there.
        visible: rows that are known already, see `visible_rows`; at most n.
        guess: rows that were guessed without the update.
    """
    config, draws, report = work.config, work.draws, work.report
    widths, white = widths_of(problem), whitened(problem)
    if visible is None or not len(visible.labels):
        found = _started(problem, white, labels, work, widths, range(1))
        if guess is not None and white is None and is_no_better(problem, found[0], guess, draws):
            report(1.0)
            return Solution(found[0], problem.value(found[0]), tuple(found), is_guess_better=True)
        if white is None or not is_explained(problem, found[0]):
            found += _started(problem, white, labels, work, widths, range(1, config.noised_restarts))
    else:
        found = _beside(problem, labels, work, visible)
        found[0] = _finer(problem, found[0])
        if len(visible.labels) == problem.n_rows and is_explained(problem, found[0]):
            report(1.0)
            return Solution(found[0], problem.value(found[0]), tuple(found))
    objectives = [problem.objective(rows) for rows in found]
    merged, _ = pooled(problem.space, found, objectives.index(min(objectives)))
    rows = min([_settled(problem, merged, draws), *found], key=problem.objective)
    for _ in range(config.noised_rounds):
        before = problem.objective(rows)
        for by_engine in (True, False):
            tried = moved(problem, rows, POLISHING, config.noised_round_steps, widths) if by_engine else rows
            rows = min([rows, _settled(problem, _cooled(problem, tried, draws), draws)], key=problem.objective)
        if problem.objective(rows) > before - LEAST_NATS * problem.prior_weight:
            break
    if config.noised_rounds:
        rows = _refined(problem, white, rows, work, widths)
    if visible is not None and len(visible.labels) and not is_explained(problem, rows):
        rows = found[0]  # what leaves more than noise is no reason to give up rows that stand out of it
    report(1.0)
    _, ensemble = pooled(problem.space, [rows, *found], 0)
    return Solution(rows, problem.value(rows), tuple(ensemble))


def _refined(problem: JointProblem, white: "Whitened | None", rows: JointRows, work: Work, widths: Tensor) -> JointRows:
    """Rows that leave more than the noise, refined as without noise: by a whitened distance where it is weak."""
    if is_explained(problem, rows):
        return rows
    by, solved = (problem, SOLVED) if white is None else (white.problem, white.noise)
    effort = Effort(work.config.rounds, work.config.round_steps, work.config.reopenings, solved=solved)
    tried, _ = refine(by, rows, effort, widths, work.draws, derive_seed(work.seed, "reopened"))
    return min([rows, _settled(problem, tried, work.draws)], key=problem.objective)


def _finer(problem: JointProblem, rows: JointRows) -> JointRows:
    """The rows, their numbers moved together where they leave more than the noise: one at a time misses weak noise."""
    if is_explained(problem, rows):
        return rows
    return min([rows, gauss_newton(problem, rows, NUMBER_STEPS)[0]], key=problem.objective)


def _beside(problem: JointProblem, labels: Tensor, work: Work, visible: JointRows) -> list[JointRows]:
    """Batches of the rows that are known already and all others, solved by themselves; the best first.

    A weak row would be bent to whatever the others leave.
    """
    if len(visible.labels) == problem.n_rows:
        return [visible]
    left = labels_without(labels, visible.labels)
    others = solve_noised(problem.without(visible), left, replace(work, seed=derive_seed(work.seed, "others")))
    return [visible.joined(rows) for rows in others.ensemble]


def _started(
    problem: JointProblem,
    white: "Whitened | None",
    labels: Tensor,
    work: Work,
    widths: Tensor,
    restarts: range,
) -> list[JointRows]:
    """Batches from draws of the prior; every other one goes by a whitened distance where the noise is weak."""
    config, draws = work.config, work.draws
    plain = fresh(config.noised_steps, NOISED_WIDTH, NOISED_WIDTH_END)
    starts = [prior_start(problem.space, problem.n_rows, work.seed, restart) for restart in restarts]
    if white is None and starts:
        moved_rows = optimize(problem, torch.stack(starts), labels, plain, widths)
    found: list[JointRows] = []
    for restart, start in zip(restarts, starts, strict=True):
        if white is None:
            rows = moved_rows[len(found)]
        elif restart % 2:
            rows = optimize(problem, start.unsqueeze(0), labels, plain, widths)[0]
        else:
            first = fresh(WHITENED_LONGER * config.noised_steps, WIDTH, WIDTH_END)
            rows = optimize(white.problem, start.unsqueeze(0), labels, first, widths)[0]
            rows = descend(white.problem, rows, NOISED_SWEEPS, draws)
        rows = _cooled(problem, rows, draws, TEMPERATURES)
        found.append(descend(problem, rows, NOISED_SWEEPS, draws))
        work.report((restart + 1) / (config.noised_restarts + 1))
        if white is not None and is_explained(problem, found[-1]):
            break
    return found


@dataclass(frozen=True)
class Whitened:
    """A noised problem by a whitened distance, which shows what distinguishes rows.

    Attributes:
        problem: without a prior, whose weight would be another.
        noise: relative distance that the noise is expected to leave.
    """

    problem: JointProblem
    noise: float


def whitened(problem: JointProblem) -> Whitened | None:
    """None where the noise would hide what the distance shows, and for several releases."""
    if problem.nodes.apart:
        return None
    for ridge in RIDGES:
        kernels = Kernels.whitened(problem.nodes, problem.space, ridge, generator(0, "second moments"))
        white = replace(problem, kernels=kernels, prior=None)
        noise = kernels.of_noise([layer.shape for layer in problem.target]) * problem.prior_weight / 2
        if noise <= MOST_NOISE * white.target_value:
            return Whitened(white, noise / white.target_value)
    return None


def is_explained(problem: JointProblem, rows: JointRows) -> bool:
    """Whether what the rows leave is no more than the noise."""
    elements = sum(layer.numel() for layer in problem.target)
    return problem.value(rows) * problem.target_value < EXPLAINED * elements * problem.prior_weight / 2


def _settled(problem: JointProblem, rows: JointRows, draws: torch.Generator) -> JointRows:
    """Sweeps over single cells and passes over pairs of rows in turns, until these gain little."""
    for _ in range(SETTLING):
        before = problem.objective(rows)
        rows, _ = descend_pairs(problem, descend(problem, rows, SETTLING_SWEEPS, draws), draws)
        if problem.objective(rows) > before - LEAST_NATS / 2 * problem.prior_weight:
            break
    return descend(problem, rows, NOISED_SWEEPS, draws)


def _cooled(
    problem: JointProblem, rows: JointRows, draws: torch.Generator, temperatures: Sequence[float] = COOLING
) -> JointRows:
    """A sweep at each temperature, in units of the posterior's own."""
    for temperature in temperatures:
        rows = descend(problem, rows, 1, draws, temperature=temperature * problem.prior_weight)
    return rows


def fresh(steps: int, width: float, width_end: float) -> EngineConfig:
    """The engine's settings from a fresh start."""
    return stage_config(
        steps=steps,
        learning_rate=RATE,
        numerical_learning_rate=NUMBER_RATE,
        mask_width=width,
        mask_width_end=width_end,
        temperature_end=TEMPERATURE_END,
    )
