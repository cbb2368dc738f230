"""Refinement of rows that are nearly right."""

from typing import Any

import torch

from lightleak.attacks.gradient_inversion.joint.continuous import widths_of
from lightleak.attacks.gradient_inversion.joint.problem import JointRows
from lightleak.attacks.gradient_inversion.joint.refinement import SOLVED, STAGES, Effort, refine, stage_of
from lightleak.core.seeds import generator


def test_stages_narrow_with_the_distance() -> None:
    widths = [stage_of(value, 0).width for value in (1e-2, 1e-4, 1e-6, 1e-9)]
    assert widths == sorted(widths, reverse=True) and len(set(widths)) == len(STAGES)
    assert {stage_of(1e-4, stalled) for stalled in range(3)} == set(STAGES[:3])


def test_a_batch_with_blurred_numbers_is_solved(posed: Any) -> None:
    problem, truth = posed(whitened=True, n=8)
    noise = 0.05 * torch.randn(truth.numbers.shape, generator=generator(2), dtype=torch.float64)
    start = JointRows(truth.codes, problem.space.clamp(truth.numbers + noise), truth.labels)
    effort = Effort(rounds=3, steps=200, reopenings=1, reopening_steps=100)
    found, value = refine(problem, start, effort, widths_of(problem), generator(0), 0)
    assert value < SOLVED
    assert torch.equal(found.codes, truth.codes)


def test_no_effort_still_settles_and_never_makes_rows_worse(posed: Any) -> None:
    problem, truth = posed(whitened=True, n=6)
    start = JointRows(*problem.space.draw(6, generator(3)), truth.labels)
    _, value = refine(problem, start, Effort(rounds=0), widths_of(problem), generator(0), 0)
    assert value < problem.value(start)
