"""The course of joint inversion: when it stops, what it returns, and what it tells of its work."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.joint.attack import pose
from lightleak.attacks.gradient_inversion.joint.config import JointConfig
from lightleak.attacks.gradient_inversion.joint.course import Solution, Work, solve, solve_noised
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows
from lightleak.attacks.gradient_inversion.joint.refinement import SOLVED
from lightleak.core.seeds import generator

EASY = JointConfig(restarts=3, steps=250, sweeps=4, rounds=2, round_steps=100, reopenings=1)
"""Enough for a few rows at a wide network, from the first start on."""

HOPELESS = JointConfig(steps=3, sweeps=0, rounds=0)
"""Solves nothing."""


def run(problem: JointProblem, labels: torch.Tensor, config: JointConfig) -> tuple[Solution, list[float]]:
    told: list[float] = []
    course = solve if problem.prior is None else solve_noised
    return course(problem, labels, Work(config, generator(0, "moves"), 5, told.append)), told


def test_a_start_that_explains_the_gradient_is_the_last(posed: Any) -> None:
    problem, truth = posed(whitened=True, n=4)
    found, told = run(problem, truth.labels, EASY)
    assert found.solved and found.value < SOLVED and not found.ensemble
    assert found.value == pytest.approx(problem.value(found.rows))
    assert told == [1 / 3]
    table = (problem.space.center + found.rows.numbers * problem.space.unit)[:, problem.space.integer]
    torch.testing.assert_close(table, table.round(), atol=1e-6, rtol=0)


def test_the_best_of_all_starts_is_returned(posed: Any) -> None:
    problem, truth = posed(whitened=True, n=20, hidden=(12, 12))
    values = []
    for restarts in (1, 2, 3):
        found, told = run(problem, truth.labels, replace(HOPELESS, restarts=restarts))
        assert not found.solved and found.value == pytest.approx(problem.value(found.rows))
        assert told == [(i + 1) / restarts for i in range(restarts)]
        values.append(found.value)
    # The first starts are the same, however many follow.
    assert values == sorted(values, reverse=True) and values[2] < values[0]


def test_a_course_depends_on_seed_and_draws_alone(posed: Any) -> None:
    problem, truth = posed(whitened=True, n=6)
    one, other = (run(problem, truth.labels, HOPELESS)[0].rows for _ in range(2))
    assert torch.equal(one.codes, other.codes) and torch.equal(one.numbers, other.numbers)
    elsewhere = solve(problem, truth.labels, Work(HOPELESS, generator(0, "moves"), 6, lambda _: None)).rows
    assert not torch.equal(one.numbers, elsewhere.numbers)


def test_starts_on_a_noised_gradient_are_pooled_and_none_is_more_probable(make_batch: Any, noised: Any) -> None:
    batch = noised(make_batch(n=4, hidden=(30, 30)), 0.02, seed=0, on_zeros=True)
    config = JointConfig(noised_restarts=2, noised_steps=60)
    deviation = 0.02 * float(batch.observed[0].square().mean().sqrt())
    problem = pose(batch.update, batch.encoder, batch.observed, deviation, config.prior)
    found, told = run(problem, batch.truth.labels, config)
    assert told == [1 / 3, 1.0], "the first start explains all but the noise"
    assert not found.solved and len(found.ensemble) == 2
    first, *starts = found.ensemble
    assert torch.equal(first.codes, found.rows.codes) and torch.equal(first.numbers, found.rows.numbers)
    assert problem.objective(found.rows) <= min(problem.objective(rows) for rows in starts) * (1 + 1e-9)


def test_rows_that_are_known_stay_until_the_others_are_solved(make_batch: Any, noised: Any) -> None:
    batch = noised(make_batch(n=4, hidden=(30, 30)), 1e-4, seed=0, on_zeros=True)
    config = JointConfig(noised_restarts=1, noised_steps=1, noised_rounds=0)
    deviation = 1e-4 * float(batch.observed[0].square().mean().sqrt())
    problem = pose(batch.update, batch.encoder, batch.observed, deviation, config.prior)
    codes, numbers = problem.space.coordinates(batch.cells)
    truth = JointRows(codes, numbers, batch.truth.labels)
    for known in (2, 4):
        visible = JointRows(codes[:known], numbers[:known], truth.labels[:known])
        draws = generator(0, "moves")
        found = solve_noised(problem, truth.labels, Work(config, draws, 5, lambda _: None), visible)
        assert torch.equal(found.rows.codes[:known], codes[:known])
        assert len(found.rows.labels) == 4 and found.ensemble
    assert torch.equal(found.rows.codes, codes), "nothing is left to solve"
