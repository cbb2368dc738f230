"""The distance of rows from a gradient."""

from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.joint.cell_prior import CellPrior
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem
from lightleak.core.seeds import generator


@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("encoding", ["standardized", "minmax"])
def test_the_batch_itself_explains_its_gradient(posed: Any, wrong_cell: Any, whitened: bool, encoding: str) -> None:
    problem, truth = posed(whitened, encoding=encoding, n_classes=3)
    assert problem.value(truth) < 1e-12
    assert problem.value(wrong_cell(problem, truth, 0, 0)) > 1e-4


def test_terms_of_coordinates_are_those_of_encoded_rows(posed: Any) -> None:
    problem, _ = posed()
    codes, numbers = problem.space.draw(5, generator(1))
    found, expected = problem.terms(codes, numbers), problem.nodes.terms(problem.space.rows.of(codes, numbers))
    for one, other in zip((*found.hidden, *found.errors), (*expected.hidden, *expected.errors), strict=True):
        torch.testing.assert_close(one, other)


def test_the_objective_adds_what_the_prior_is_worth(posed: Any) -> None:
    problem, truth = posed()
    prior = CellPrior.of(problem.space)
    believed = JointProblem(problem.space, problem.nodes, problem.kernels, problem.target, problem.n_rows, prior, 0.5)
    nats = float(prior.penalties(truth.codes, truth.numbers).sum())
    torch.testing.assert_close(believed.objective(truth), problem.objective(truth) + 0.5 * nats)
