"""Numbers of a few rows fitted together, held against the gradient itself."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.exact.repair.group_fit import GroupProblem, Groups, fit
from lightleak.attacks.gradient_inversion.tables.schema_inference import infer_domain
from lightleak.core.seeds import generator

STEP = 1e-6
"""Of a difference quotient; no mask changes within it."""

SETTINGS = [((40, 40), 2), ((20, 20, 20), 3)]


def posed(batch: Any) -> tuple[GroupProblem, Groups]:
    """A batch as a problem of its own, and the truth as one reading of it."""
    n = len(batch.x)
    space = infer_domain(batch.observed[0], batch.encoder, batch.prior, n)
    codes, numbers = space.coordinates(batch.cells)
    problem = GroupProblem(batch.chain, space, batch.observed, (1e-3, 2e-3, 3e-3, 4e-3)[: batch.chain.depth], n)
    return problem, Groups(codes[None], numbers[None], batch.truth.labels[None])


def moved(groups: Groups, deviation: float, copies: int = 1) -> Groups:
    """Copies with numbers a little off."""
    noise = torch.randn(copies, *groups.numbers.shape[1:], generator=generator(3, "noise"), dtype=torch.float64)
    codes, labels = groups.codes.expand(copies, -1, -1), groups.labels.expand(copies, -1)
    return Groups(codes, groups.numbers + deviation * noise, labels)


@pytest.mark.parametrize(("hidden", "n_classes"), SETTINGS)
def test_misfit_is_that_of_the_gradient(make_batch: Any, hidden: tuple[int, ...], n_classes: int) -> None:
    problem, truth = posed(make_batch(4, hidden, n_classes, seed=2))
    readings = moved(truth, 0.3, copies=3)
    for i, value in enumerate(problem.value(readings).tolist()):
        x = problem.space.rows.of(readings.codes[i], readings.numbers[i])
        counts = torch.nn.functional.one_hot(readings.labels[i], n_classes).double()
        explained = problem.network.gradient(x, counts, problem.n_rows)
        each = zip(problem.target, explained, problem.noise, strict=True)
        assert value == pytest.approx(sum(float(((t - e) / s).square().sum()) for t, e, s in each), rel=1e-9)


@pytest.mark.parametrize(("hidden", "n_classes"), SETTINGS)
def test_derivatives_are_those_of_difference_quotients(
    make_batch: Any, hidden: tuple[int, ...], n_classes: int
) -> None:
    problem, truth = posed(make_batch(3, hidden, n_classes, seed=2))
    readings = moved(truth, 1e-3)

    def explained(numbers: torch.Tensor) -> torch.Tensor:
        x = problem.space.rows.of(readings.codes[0], numbers)
        counts = torch.nn.functional.one_hot(readings.labels[0], n_classes).double()
        layers = problem.network.gradient(x, counts, problem.n_rows)
        return torch.cat([(layer / s).flatten() for layer, s in zip(layers, problem.noise, strict=True)])

    numbers = readings.numbers[0]
    target = torch.cat([(t / s).flatten() for t, s in zip(problem.target, problem.noise, strict=True)])
    columns = []
    for i in range(numbers.numel()):
        step = torch.zeros(numbers.numel(), dtype=torch.float64)
        step[i] = STEP
        step = step.view_as(numbers)
        columns.append((explained(numbers + step) - explained(numbers - step)) / (2 * STEP))
    jacobian = torch.stack(columns, 1)
    expansion = problem.expand(readings)
    scale = float((jacobian.T @ jacobian).abs().max())
    torch.testing.assert_close(expansion.normal[0], jacobian.T @ jacobian, rtol=1e-5, atol=1e-7 * scale)
    slope = jacobian.T @ (target - explained(numbers))
    torch.testing.assert_close(expansion.slope[0], slope, rtol=1e-5, atol=1e-7 * float(slope.abs().max()))


def test_every_reading_is_fitted_alone_and_none_gets_worse(make_batch: Any) -> None:
    problem, truth = posed(make_batch(4, seed=2))
    start = moved(truth, 0.3, copies=5)
    start = replace(start, numbers=problem.space.clamp(start.numbers))
    found, value = fit(problem, start, 6)
    assert (value <= problem.value(start)).all()
    torch.testing.assert_close(value, problem.value(found), rtol=1e-6, atol=1e-9 * float(value.max()))
    for i in range(5):
        alone, _ = fit(problem, start[torch.tensor([i])], 6)
        torch.testing.assert_close(alone.numbers[0], found.numbers[i], rtol=0, atol=1e-6)


def test_numbers_near_the_truth_come_back_and_held_ones_stay(make_batch: Any) -> None:
    problem, truth = posed(make_batch(4, seed=2))
    start = moved(truth, 1e-4)
    start = replace(start, numbers=problem.space.clamp(start.numbers))
    found, value = fit(problem, start, 12)
    torch.testing.assert_close(found.numbers, truth.numbers, rtol=0, atol=1e-6)
    assert float(value) < 1e-4 * float(problem.value(start))
    held = torch.zeros_like(truth.numbers[0], dtype=torch.bool)
    held[1] = True
    partly, _ = fit(problem, start, 12, held)
    assert torch.equal(partly.numbers[0][held], start.numbers[0][held])
    assert not torch.equal(partly.numbers[0][~held], start.numbers[0][~held])
    everything, same = fit(problem, start, 12, torch.ones_like(held))
    assert torch.equal(everything.numbers, start.numbers) and torch.equal(same, problem.value(start))
