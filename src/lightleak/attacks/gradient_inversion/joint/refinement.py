"""From a batch that is nearly right to one that explains the gradient: ever narrower masks, exact moves, fresh pairs.

One round lets the engine move all cells from the present rows, with mask widths that fit the distance left, then sweeps
over single cells and pairs of rows, then fits all numbers. A round that gains little means that some rows are wrong
together; those that have another row like them are then solved anew, and what comes of it has one round to show that
it is better.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.config import EngineConfig
from lightleak.attacks.gradient_inversion.joint.continuous import one_hot_start, optimize, prior_start, stage_config
from lightleak.attacks.gradient_inversion.joint.coordinate_descent import descend
from lightleak.attacks.gradient_inversion.joint.gauss_newton import gauss_newton
from lightleak.attacks.gradient_inversion.joint.pair_descent import Weighted, alike_pairs, descend_pairs
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows

SOLVED = 1e-10
"""Relative whitened distance below which a batch explains its gradient: the truth leaves 2e-12 (rounding of float32),
the least wrong cell 1e-8."""

SWEEPS, PAIR_ROUNDS, NEWTON_STEPS = 6, 2, 6
"""Most sweeps over single cells, over pairs, and Gauss-Newton steps of a round."""

RATE = 0.1
"""Adam's step of the categories' logits in a round."""

TEMPERATURE_END = 0.3

GAIN = 0.5
"""A round that leaves more than this part of the distance gained little."""

LOST = 3.0
"""A round that ends this many times above the best goes back to the best; less is taken as a way around."""

REOPEN_RATES, REOPEN_WIDTHS, REOPEN_TEMPERATURE = (0.2, 0.05), (0.2, 0.02), 0.2
"""As for the first stage: rows solved anew start from the prior too."""


@dataclass(frozen=True)
class Stage:
    """Settings of a round.

    Attributes:
        above: relative distance from which on it applies.
        width: of the masks at the beginning, in deviations of pre-activations.
        width_end: at the end.
        number_rate: Adam's step of numbers, in their deviations.
        amplitude: logit of the present categories; the higher, the firmer they hold.
    """

    above: float
    width: float
    width_end: float
    number_rate: float
    amplitude: float


STAGES = (
    Stage(5e-4, 0.03, 0.003, 0.03, 4.0),
    Stage(1e-5, 0.01, 0.001, 0.01, 5.0),
    Stage(1e-6, 0.003, 0.0003, 0.003, 6.0),
    Stage(0.0, 0.001, 0.0001, 0.001, 7.0),
)
"""A number that is wrong by a part of a deviation blurs masks by as much, and so does the distance it leaves; wider
masks than that undo what is right already, narrower ones do not see the way."""


@dataclass(frozen=True)
class Effort:
    """How much work refinement does at most.

    Attributes:
        rounds: rounds.
        steps: the engine's steps of a round.
        reopenings: fresh starts of doubtful rows after a round that gained little; 0 never.
        reopening_steps: the engine's steps for them.
        solved: relative distance below which there is nothing more to do.
    """

    rounds: int = 10
    steps: int = 1500
    reopenings: int = 3
    reopening_steps: int = 1000
    solved: float = SOLVED


def refine(
    problem: JointProblem,
    rows: JointRows,
    effort: Effort,
    widths: Tensor,
    generator: torch.Generator,
    seed: int,
) -> tuple[JointRows, float]:
    """The best rows met, and their relative distance.

    Args:
        problem: what rows are held against.
        rows: where to start.
        effort: how much work.
        widths: of the problem's network.
        generator: a CPU generator, for the moves.
        seed: root of the fresh starts.
    """
    best, least = settle(problem, rows, generator)
    current, value, stalled, fresh = best, least, 0, False
    for number in range(effort.rounds):
        if least < effort.solved:
            break
        found = moved(problem, current, stage_of(value, 0 if fresh else stalled), effort.steps, widths)
        found, value = settle(problem, found, generator)
        stalled = 0 if value < GAIN * least else stalled + 1
        if value < LOST * least and not (fresh and value >= least):
            current = found
        else:
            current, value = best, least
        if value < least:
            best, least = found, value
        fresh = bool(stalled and effort.reopenings)
        if fresh:
            current, value = _reopened(problem, best, effort, widths, generator, seed + number)
    return (current, value) if value < least else (best, least)


def stage_of(value: float, stalled: int) -> Stage:
    """The stage for a relative distance; after fruitless rounds its neighbors take turns.

    >>> stage_of(1e-4, 0).width, stage_of(1e-4, 1).width, stage_of(1e-4, 2).width
    (0.01, 0.003, 0.03)
    """
    at = next(i for i, stage in enumerate(STAGES) if value >= stage.above)
    turn = (0, 1, -1)[stalled % 3]
    return STAGES[min(max(at + turn, 0), len(STAGES) - 1)]


def settle(problem: JointProblem, rows: JointRows, generator: torch.Generator) -> tuple[JointRows, float]:
    """Single cells, then pairs of rows, then all numbers: rows that none of these improves much, and their distance."""
    rows = descend(problem, rows, SWEEPS, generator)
    for _ in range(PAIR_ROUNDS):
        rows, changes = descend_pairs(problem, rows, generator)
        if not changes:
            break
        rows = descend(problem, rows, 1, generator)
    return gauss_newton(problem, rows, NEWTON_STEPS)


def moved(problem: JointProblem, rows: JointRows, stage: Stage, steps: int, widths: Tensor) -> JointRows:
    """All cells moved by the engine from given rows; labels stay."""
    config = stage_config(
        steps=steps,
        learning_rate=RATE,
        numerical_learning_rate=stage.number_rate,
        mask_width=stage.width,
        mask_width_end=stage.width_end,
        temperature_end=TEMPERATURE_END,
    )
    start = one_hot_start(problem.space, rows, stage.amplitude)
    return optimize(problem, start.unsqueeze(0), rows.labels, config, widths)[0]


def _reopened(
    problem: JointProblem, rows: JointRows, effort: Effort, widths: Tensor, generator: torch.Generator, seed: int
) -> tuple[JointRows, float]:
    chosen = doubtful_rows(problem, rows)
    if not len(chosen):
        return rows, problem.value(rows)
    (rate, number_rate), (width, width_end) = REOPEN_RATES, REOPEN_WIDTHS
    config = stage_config(
        steps=effort.reopening_steps,
        learning_rate=rate,
        numerical_learning_rate=number_rate,
        mask_width=width,
        mask_width_end=width_end,
        temperature_end=REOPEN_TEMPERATURE,
    )
    starts = reopen(problem, rows, chosen, effort.reopenings, config, widths, seed)
    # Of fresh starts only the best is worth the sweeps.
    first = [descend_pairs(problem, start, generator)[0] for start in starts]
    chosen_start = min(first, key=problem.value)
    return settle(problem, chosen_start, generator)


def doubtful_rows(problem: JointProblem, rows: JointRows) -> Tensor:
    """Rows with another one like them (`alike_pairs`), LongTensor ascending: these may be wrong together unseen."""
    terms = Weighted.of(problem, rows.codes, rows.numbers, rows.labels, torch.float32)
    doubtful = sorted({i for pair in alike_pairs(terms, problem.kernels.to(torch.float32)) for i in pair})
    return torch.tensor(doubtful, dtype=torch.long, device=rows.codes.device)


def reopen(
    problem: JointProblem,
    rows: JointRows,
    chosen: Tensor,
    restarts: int,
    config: EngineConfig,
    widths: Tensor,
    seed: int,
) -> list[JointRows]:
    """The batch with some rows found again from fresh starts, one result per start; labels stay.

    A small batch is far easier than a large one.

    Args:
        problem: what rows are held against.
        rows: the batch.
        chosen: which rows, LongTensor, at least one.
        restarts: starts.
        config: of the engine.
        widths: of the problem's network.
        seed: root of the random streams.
    """
    others = torch.ones(len(rows.codes), dtype=torch.bool, device=chosen.device)
    others[chosen] = False
    part = problem.without(rows[others])
    starts = torch.stack([prior_start(problem.space, len(chosen), seed, restart) for restart in range(restarts)])
    return [_with(rows, chosen, found) for found in optimize(part, starts, rows.labels[chosen], config, widths)]


def _with(rows: JointRows, chosen: Tensor, found: JointRows) -> JointRows:
    codes, numbers, labels = rows.codes.clone(), rows.numbers.clone(), rows.labels.clone()
    codes[chosen], numbers[chosen], labels[chosen] = found.codes, found.numbers, found.labels
    return JointRows(codes, numbers, labels)
