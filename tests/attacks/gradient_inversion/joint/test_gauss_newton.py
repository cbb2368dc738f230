"""The joint fit of numbers, held against differences of the gradient itself."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.joint.gauss_newton import _normal_equations, gauss_newton
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem
from lightleak.core.seeds import generator

STEP = 1e-6
"""Of a difference quotient; no mask changes within it."""


@pytest.mark.parametrize("n_classes", [2, 3])
def test_normal_equations_are_those_of_difference_quotients(posed: Any, n_classes: int) -> None:
    problem, truth = posed(whitened=True, n=3, n_classes=n_classes)
    n, free = truth.numbers.shape
    columns = []
    for i in range(n):
        for q in range(free):
            moved = truth.numbers.clone()
            moved[i, q] += STEP
            ahead, here = problem.residual(replace(truth, numbers=moved)), problem.residual(truth)
            columns.append(tuple((h - a) / STEP for h, a in zip(here, ahead, strict=True)))
    applied = [problem.kernels.apply(column) for column in columns]
    expected = torch.tensor(
        [[sum(float((a * b).sum()) for a, b in zip(one, other, strict=True)) for other in columns] for one in applied],
        dtype=torch.float64,
    )
    normal, _ = _normal_equations(problem, truth)
    torch.testing.assert_close(normal, expected, rtol=1e-4, atol=1e-6 * float(expected.abs().max()))


def slightly_off(problem: JointProblem, numbers: torch.Tensor) -> torch.Tensor:
    noise = torch.randn(numbers.shape, generator=generator(4), dtype=torch.float64)
    return problem.space.clamp(numbers + 1e-5 * noise)


def test_numbers_that_are_slightly_off_are_mended(posed: Any) -> None:
    problem, truth = posed(whitened=True, n=6)
    start = replace(truth, numbers=slightly_off(problem, truth.numbers))
    found, value = gauss_newton(problem, start, 6)
    assert value < 1e-3 * problem.value(start)
    torch.testing.assert_close(found.numbers, truth.numbers, atol=1e-7, rtol=0)


def test_only_the_columns_named_move(posed: Any) -> None:
    problem, truth = posed(whitened=True, n=6)
    start = replace(truth, numbers=slightly_off(problem, truth.numbers))
    found, _ = gauss_newton(problem, start, 3, columns=(1,))
    moved = (found.numbers != start.numbers).any(0)
    assert bool(moved[1]) and not bool(moved[torch.arange(len(moved)) != 1].any())


def test_rows_never_become_worse(posed: Any) -> None:
    problem, truth = posed(n=6)
    start = replace(truth, numbers=problem.space.draw(6, generator(8))[1])
    found, value = gauss_newton(problem, start, 4)
    assert value <= problem.value(start)
    assert value == problem.value(found)
