"""Integer columns of a solved batch."""

from dataclasses import replace
from typing import Any

import torch

from lightleak.attacks.gradient_inversion.joint.gauss_newton import round_integers
from lightleak.core.seeds import generator


def test_a_batch_that_is_nearly_solved_becomes_whole(posed: Any) -> None:
    problem, truth = posed(whitened=True, n=6)
    noise = 1e-6 * torch.randn(truth.numbers.shape, generator=generator(1), dtype=torch.float64)
    start = replace(truth, numbers=problem.space.clamp(truth.numbers + noise))
    found, value = round_integers(problem, start, 1e-10)
    integer = problem.space.integer
    torch.testing.assert_close(found.numbers[:, integer], truth.numbers[:, integer], atol=1e-9, rtol=0)
    assert value <= problem.value(start)


def test_a_column_that_rounding_would_spoil_is_left(posed: Any) -> None:
    problem, truth = posed(whitened=True, n=6)
    off = truth.numbers.clone()
    q = int(problem.space.integer.nonzero()[0])
    off[:, q] += 0.4 / float(problem.space.unit[q])
    terms = problem.terms(truth.codes, off)
    target = terms.gradient(terms.of_labels(truth.labels, problem.n_rows))
    rows = replace(truth, numbers=off)
    found, value = round_integers(replace(problem, target=target), rows, 1e-20)
    assert value < 1e-20
    torch.testing.assert_close(found.numbers[:, q], off[:, q])
