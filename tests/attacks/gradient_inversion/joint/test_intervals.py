"""The cost of bounds on the elements of a gradient."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.joint.capacity import believed_rows
from lightleak.attacks.gradient_inversion.joint.intervals import Intervals, objective
from lightleak.attacks.gradient_inversion.joint.signed import of_signs
from lightleak.core.seeds import generator


@pytest.fixture(params=["signs", "pruned"])
def held(request: pytest.FixtureRequest, make_batch: Any, held_against: Any, halved: Any, signed: Any) -> Any:
    """Four rows, their problem and its intervals."""
    batch, is_pruned = make_batch(n=4), request.param == "pruned"
    return held_against(batch, (halved if is_pruned else signed)(batch.update), is_pruned)


def test_the_derivative_of_the_cost_is_autograds(held: Any) -> None:
    _, signs, _ = held
    signs, draws = signs.at(0.5), generator(1)
    noise = [torch.randn(layer.shape, generator=draws).double() for layer in signs.sizes]
    at = [(size * one).requires_grad_() for size, one in zip(signs.sizes, noise, strict=True)]
    value, by_gradients = signs(at)
    for own, expected in zip(by_gradients, torch.autograd.grad(value, at), strict=True):
        torch.testing.assert_close(own, expected)


def test_what_is_beyond_intervals_with_a_row_is_that_of_the_whole_gradient(held: Any) -> None:
    problem, signs, truth = held
    terms = problem.terms(truth.codes, truth.numbers)
    errors = tuple(e[0] for e in terms.weighted(terms.of_labels(truth.labels, 4)))
    hidden = tuple(h[0] for h in terms.hidden)
    for i in range(4):
        whole = problem.gradient(truth)
        rest = tuple(g - torch.outer(e[i], h[i]) for g, e, h in zip(whole, errors, hidden, strict=True))
        torch.testing.assert_close(signs.with_term(rest, errors, hidden)[i], signs.beyond(whole))


def test_the_truth_has_all_signs_and_costs_least(make_batch: Any, held_against: Any, signed: Any) -> None:
    batch = make_batch(n=6)
    problem, signs, truth = held_against(batch, signed(batch.update))
    assert signs.missed(problem.gradient(truth)) < 1e-3  # float32 rounds some elements of nearly zero
    believed = believed_rows(problem, truth.labels, 6, generator(1))
    assert signs.missed(problem.gradient(believed)) > 0.1
    assert objective(problem, signs.at(1.0), truth) < objective(problem, signs.at(1.0), believed)


def test_a_layer_that_believed_rows_leave_silent_has_a_size(make_batch: Any, held_against: Any, signed: Any) -> None:
    batch = make_batch(n=3)
    problem, _, truth = held_against(batch, signed(batch.update))
    silent = replace(problem.nodes, biases=(problem.nodes.biases[0] - 1e6, *problem.nodes.biases[1:]))
    found = Intervals.of(replace(problem, nodes=silent), of_signs(problem.target), truth.labels, generator(0))
    assert all(bool((size > 0).all() and size.isfinite().all()) for size in found.sizes)
