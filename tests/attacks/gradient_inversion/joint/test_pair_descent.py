"""Moves of two rows together, held against the objective itself."""

from dataclasses import replace
from typing import Any

import torch

from lightleak.attacks.gradient_inversion.joint.coordinate_descent import descend
from lightleak.attacks.gradient_inversion.joint.pair_descent import (
    Candidates,
    Weighted,
    alike_pairs,
    cross_products,
    descend_pairs,
    inner_products,
    pair_energies,
)
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows
from lightleak.core.seeds import generator


def weighted(problem: JointProblem, rows: JointRows) -> Weighted:
    return Weighted.of(problem, rows.codes, rows.numbers, rows.labels, torch.float64)


def test_energies_are_differences_of_the_objective(posed: Any, changed: Any) -> None:
    problem, truth = posed(whitened=True, n_classes=3)
    steps = 0.1 * torch.randn(len(problem.space.free), 2, generator=generator(0), dtype=torch.float64)
    applied = problem.kernels.apply(problem.residual(truth))
    sides = [
        Candidates.of(problem, truth.codes[i], truth.numbers[i], int(label), steps, problem.kernels, torch.float64)
        for i, label in enumerate(truth.labels[:2])
    ]
    inner = [inner_products(side.weighted, applied) for side in sides]
    found = pair_energies(*sides, *inner, problem.kernels)
    count = len(sides[0].labels)
    assert found.shape == (count, count)
    for i, j in zip(range(0, count, 3), reversed(range(count)), strict=False):
        rows = truth
        for at, index in enumerate((i, j)):
            codes, numbers, label = sides[at].row(index)
            new = JointRows(codes.unsqueeze(0), numbers.unsqueeze(0), torch.tensor([label]))
            rows = changed(rows, at, new, 0)
        expected = problem.objective(rows) - problem.objective(truth)
        torch.testing.assert_close(float(found[i, j] - found[0, 0]), expected, rtol=1e-6, atol=1e-12)


def test_cross_products_of_a_row_with_itself_are_its_square(posed: Any) -> None:
    problem, truth = posed(whitened=True)
    rows = weighted(problem, truth)
    alone = tuple(e.transpose(-1, -2) @ h for e, h in zip(rows.row(2).errors, rows.row(2).hidden, strict=True))
    square = problem.kernels.value(tuple(a.sum(0) for a in alone))
    torch.testing.assert_close(cross_products(rows, rows, problem.kernels)[2, 2], square)


def twins(posed: Any) -> tuple[JointProblem, JointRows]:
    """A problem in which rows 0 and 1 are equal but for a number and their labels."""
    problem, truth = posed(whitened=True, n=10, hidden=(30, 30))
    codes, numbers, labels = truth.codes.clone(), truth.numbers.clone(), truth.labels.clone()
    codes[1], numbers[1], labels[1] = codes[0], numbers[0], 1 - labels[0]
    numbers[1, 0] += 0.4 if float(numbers[0, 0]) < 0 else -0.4
    rows = JointRows(codes, numbers, labels)
    terms = problem.terms(codes, numbers)
    return replace(problem, target=terms.gradient(terms.of_labels(labels, problem.n_rows))), rows


def test_twins_are_found(posed: Any) -> None:
    problem, rows = twins(posed)
    assert (0, 1) in alike_pairs(weighted(problem, rows), problem.kernels)


def test_a_cell_that_is_wrong_in_both_twins_is_mended(posed: Any, wrong_cell: Any) -> None:
    problem, rows = twins(posed)
    start = wrong_cell(problem, wrong_cell(problem, rows, 0, 0), 1, 0)
    alone = descend(problem, start, 1, generator(0))
    together, changes = descend_pairs(problem, start, generator(0))
    assert changes > 0
    assert torch.equal(together.codes, rows.codes)
    assert problem.objective(together) < problem.objective(alone)


def test_the_truth_stays(posed: Any) -> None:
    problem, rows = twins(posed)
    found, changes = descend_pairs(problem, rows, generator(0), torch.float64)
    assert changes == 0 and torch.equal(found.numbers, rows.numbers)
