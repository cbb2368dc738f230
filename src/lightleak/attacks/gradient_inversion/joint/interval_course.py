"""The search for rows given bounds on every element of a gradient.

Several starts of the engine on the cost of intervals (`intervals`), all at once, then single cells, and rows exchanged
between the starts (`interval_descent`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.config import ExactSettings
from lightleak.attacks.gradient_inversion.joint.continuous import one_hot_start, optimize, prior_start, widths_of
from lightleak.attacks.gradient_inversion.joint.course import WIDTH, WIDTH_END, Report, Solution, fresh
from lightleak.attacks.gradient_inversion.joint.decision import Cells, is_guess_better
from lightleak.attacks.gradient_inversion.joint.interval_descent import descend_within, exchange
from lightleak.attacks.gradient_inversion.joint.intervals import Intervals, objective
from lightleak.attacks.gradient_inversion.joint.pooling import pooled
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows
from lightleak.core.bounds import bounded

PRIOR_WEIGHT = 0.25
"""What a nat of the prior counts, in units of the cost; the engine counts it `BELIEF` times. Measured on signs as
`FACTOR`, share of cells after the engine: 81% at a tenth of it, 77% at ten times."""

AMPLITUDES = (3.0, 6.0)
"""Logits of the present categories where the engine resumes: low enough for it to leave them. Either was better on
some of three gradients."""

RESUMED = 0.1
"""Factor from which intervals narrow where the engine resumes: at 0.3 it ends further off than it began, mostly."""

LEAST_SHARE = 0.01
"""Share of the cost that a round must save for another one to follow: the last rounds gain few cells (not tuned)."""

COUNTING_STARTS, COUNTING_SHARE = 2, 0.25
"""Starts, and the share of their steps, by which counts of labels are compared. Adult, 32 rows, 10 pruned gradients of
seeds 70000 and 70001: the best count is within 2 rows of the true one on 9, and 5 off on one."""

WORSE = 2
"""Counts in a row that are no better, after which no further ones are tried: one may be worse by chance."""


@dataclass(frozen=True)
class IntervalsConfig(ExactSettings):
    """Settings of inversion within intervals.

    Attributes:
        restarts: starts.
        steps: the engine's steps of each.
        sweeps: most sweeps over single cells after every run of the engine.
        rounds: in each, rows are exchanged, and the engine resumes from the best ones.
        round_steps: its steps then.

    Raises:
        UsageError: a value of the wrong type or out of range.
    """

    owner: ClassVar[str] = "intervals"

    restarts: int = bounded(6, ge=1)
    # With half the steps gradients of GELU pruned to 10% give 90% of the cells in place of 98 (seed 70000).
    steps: int = bounded(2400, ge=1)
    sweeps: int = bounded(2, ge=0)
    rounds: int = bounded(3, ge=0)
    round_steps: int = bounded(1200, ge=1)

    @property
    def for_few_rows(self) -> Self:
        """The same work as more and shorter starts, which is better where a few rows are left."""
        return replace(self, restarts=SHORTER * self.restarts, steps=max(1, self.steps // SHORTER))


SHORTER = 4
"""Two rows next to 30 (Adult, trained ReLU, 10% pruned, seed 52000; three clients of German Credit): all cells; with 1
and 2, which take as long, a cell or two are wrong on one of four."""


def solve_within(
    problem: JointProblem,
    intervals: Intervals,
    labels: Tensor,
    config: IntervalsConfig,
    draws: torch.Generator,
    seed: int,
    report: Report,
    guess: Cells | None = None,
) -> Solution:
    """The rows whose gradient is least beyond the intervals, of several starts and rounds.

    Args:
        problem: with plain kernels and a prior.
        intervals: what rows are held against.
        labels: to start from ``[n]``.
        config: the settings.
        draws: a CPU generator, for moves.
        seed: root of the starts.
        report: called with the share of the work done.
        guess: rows that were guessed without the update.
    """
    widths, sharp = widths_of(problem), intervals.at(1.0)

    def value(rows: JointRows) -> float:
        return objective(problem, sharp, rows)

    def run(starts: list[Tensor], labels: Tensor, steps: int, blurred: Intervals) -> list[JointRows]:
        moved = optimize(
            problem, torch.stack(starts), labels, fresh(steps, WIDTH, WIDTH_END), widths, blurred.to(torch.float32)
        )
        return [descend_within(problem, sharp, rows, config.sweeps, draws) for rows in moved]

    starts = [prior_start(problem.space, problem.n_rows, seed, restart) for restart in range(config.restarts)]
    found = run(starts, labels, config.steps, intervals)
    first, best = list(found), min(found, key=value)
    report(1 / (1 + config.rounds))
    for done in range(config.rounds):
        before = value(best)
        best = exchange(problem, sharp, best, found[0].joined(*found[1:]), draws)
        best = descend_within(problem, sharp, best, config.sweeps, draws)
        again = [one_hot_start(problem.space, best, amplitude) for amplitude in AMPLITUDES]
        resumed = run(again, best.labels, config.round_steps, replace(intervals, factor=RESUMED))
        found += [best, *resumed]
        best = min([best, *resumed], key=value)
        report((done + 2) / (1 + config.rounds))
        if value(best) > (1 - LEAST_SHARE) * before:
            break
    report(1.0)
    _, ensemble = pooled(problem.space, [best, *first], 0)
    is_better = guess is not None and is_guess_better(problem, first, guess)
    return Solution(best, problem.value(best), tuple(ensemble), is_better)


def labels_by_starts(
    problem: JointProblem, intervals: Intervals, labels: Tensor, config: IntervalsConfig, seed: int
) -> Tensor:
    """Labels of two classes in class order ``[n]``, of the count under which short starts come nearest.

    With a row too many of a class the engine ends far from the intervals. Of three classes short starts mislead: on 12
    pruned gradients of Diabetes-130 they put 63 of 384 rows into a wrong class, the counts that they start from 44.

    Args:
        problem: see `solve_within`.
        intervals: likewise.
        labels: to start from ``[n]``.
        config: the settings.
        seed: root of the starts.
    """
    n = problem.n_rows
    if problem.nodes.weights[-1].shape[1] != 2 or n < 2:
        return labels
    widths, sharp, blurred = widths_of(problem), intervals.at(1.0), intervals.to(torch.float32)
    starts = torch.stack([prior_start(problem.space, n, seed, restart) for restart in range(COUNTING_STARTS)])
    settings = fresh(max(1, int(COUNTING_SHARE * config.steps)), WIDTH, WIDTH_END)

    def value(ones: int) -> float:
        found = optimize(problem, starts, _ordered(labels, ones), settings, widths, blurred)
        return min(objective(problem, sharp, rows) for rows in found)

    return _ordered(labels, least_around(value, int(labels.sum()), n))


def least_around(value: Callable[[int], float], start: int, most: int) -> int:
    """Where a function of 0 to ``most`` is least, seen from a start, up and down until `WORSE` in a row are no better.

    >>> least_around(lambda at: abs(at - 6), 4, 9)
    6
    """
    best, least = start, value(start)
    for step in (1, -1):
        at, worse = start + step, 0
        while worse < WORSE and 0 <= at <= most:
            found = value(at)
            worse = 0 if found < least else worse + 1
            best, least = (at, found) if found < least else (best, least)
            at += step
        if step == 1 and best != start:
            break
    return best


def _ordered(labels: Tensor, ones: int) -> Tensor:
    """Labels of two classes in class order, so many of them 1."""
    return (torch.arange(len(labels), device=labels.device) >= len(labels) - ones).to(labels.dtype)
