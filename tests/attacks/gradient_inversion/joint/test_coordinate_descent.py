"""Exact single moves, held against the objective itself."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.joint.cell_prior import CellPrior
from lightleak.attacks.gradient_inversion.joint.coordinate_descent import (
    NEAR,
    WIDE,
    add_term,
    descend,
    energies,
    neighbor,
    number_moves,
)
from lightleak.attacks.gradient_inversion.joint.problem import JointRows
from lightleak.core.seeds import generator


@pytest.mark.parametrize("n_classes", [2, 3])
def test_energies_are_differences_of_the_objective(posed: Any, changed: Any, n_classes: int) -> None:
    problem, truth = posed(whitened=True, n_classes=n_classes)
    codes, numbers = problem.space.draw(6, generator(2))
    terms = problem.terms(codes, numbers)
    own = problem.terms(truth.codes[:1], truth.numbers[:1])
    without = add_term(
        problem.kernels.apply(problem.residual(truth)),
        own,
        own.of_labels(truth.labels[:1], problem.n_rows),
        problem.kernels,
    )
    found = energies(terms, terms.coefficients(problem.n_rows), without, problem.kernels)
    for label in range(n_classes):
        others = JointRows(codes, numbers, torch.full((6,), label))
        expected = [problem.objective(changed(truth, 0, others, i)) for i in range(6)]
        differences = torch.tensor(expected, dtype=torch.float64) - expected[0]
        torch.testing.assert_close(found[:, label] - found[0, label], differences)


def test_terms_and_penalties_around_a_row_are_those_of_its_neighbors(posed: Any) -> None:
    problem, truth = posed()
    problem = replace(problem, prior=CellPrior.of(problem.space), prior_weight=1.0)
    tried = number_moves(problem.space, truth.numbers, generator(0))[0]
    row = truth.codes[0], truth.numbers[0]
    around = problem.terms_around(*row, tried, torch.float64)
    count = around.probabilities.shape[1]
    each = [neighbor(problem.space, *row, tried, i) for i in range(count)]
    codes, numbers = torch.stack([c for c, _ in each]), torch.stack([n for _, n in each])
    cells = (codes != truth.codes[0]).sum(-1) + (numbers != truth.numbers[0]).sum(-1)
    assert cells[0] == 0 and cells.max() == 1
    for k, size in enumerate(problem.space.sizes):
        assert set(codes[:, k].tolist()) == set(range(size))
    expected = problem.terms(codes, numbers)
    for found, one in zip((*around.hidden, *around.errors), (*expected.hidden, *expected.errors), strict=True):
        torch.testing.assert_close(found, one)
    torch.testing.assert_close(problem.penalties_around(*row, tried), problem.penalties(codes, numbers))


def test_moves_of_numbers_stay_inside_the_bounds_and_reach_the_lower_one(posed: Any) -> None:
    problem, truth = posed()
    tried = number_moves(problem.space, truth.numbers, generator(0))
    lower, upper = problem.space.lower.unsqueeze(-1), problem.space.upper.unsqueeze(-1)
    assert tried.shape == (*truth.numbers.shape, NEAR + WIDE + 2)
    assert bool(((tried >= lower) & (tried <= upper)).all())
    assert bool((tried == lower).any(-1).all())


@pytest.mark.parametrize("n_classes", [2, 3])
def test_wrong_cells_and_a_wrong_label_are_mended(posed: Any, wrong_cell: Any, n_classes: int) -> None:
    problem, truth = posed(whitened=True, n=8, n_classes=n_classes)
    start = wrong_cell(problem, wrong_cell(problem, truth, 1, 0), 4, 2)
    start.labels[3] = (start.labels[3] + 1) % n_classes
    found = descend(problem, start, 3, generator(0))
    assert torch.equal(found.codes, truth.codes) and torch.equal(found.labels, truth.labels)


def test_no_sweep_makes_rows_worse(posed: Any) -> None:
    problem, truth = posed(n=8)
    codes, numbers = problem.space.draw(8, generator(5))
    rows = JointRows(codes, numbers, truth.labels.clone())
    values = [problem.objective(rows)]
    for sweep in range(3):
        rows = descend(problem, rows, 1, generator(sweep))
        values.append(problem.objective(rows))
    assert values == sorted(values, reverse=True) and values[-1] < 0.5 * values[0]


def test_the_same_draws_give_the_same_rows(posed: Any) -> None:
    problem, truth = posed(n=6)
    start = JointRows(*problem.space.draw(6, generator(5)), truth.labels)
    one, other = (descend(problem, start, 2, generator(7), temperature=1e-3) for _ in range(2))
    assert torch.equal(one.codes, other.codes) and torch.equal(one.numbers, other.numbers)


def test_warm_sweeps_leave_a_minimum_that_cold_ones_keep(posed: Any) -> None:
    problem, truth = posed(n=6)
    cold = descend(problem, truth, 1, generator(0))
    warm = descend(problem, truth, 1, generator(0), temperature=problem.target_value)
    assert torch.equal(cold.codes, truth.codes)
    assert not torch.equal(warm.codes, truth.codes)
