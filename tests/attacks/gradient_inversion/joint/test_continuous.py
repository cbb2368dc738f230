"""The engine on a problem's own space and distance."""

from typing import Any

import torch

from lightleak.attacks.gradient_inversion.joint.continuous import (
    SpaceRelaxation,
    belief_of,
    one_hot_start,
    optimize,
    prior_start,
    stage_config,
)
from lightleak.attacks.gradient_inversion.optimize.priors import RowBelief
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.core.seeds import generator

FIRM = 60.0
"""A logit whose softmax is one-hot in float64."""


def test_a_firm_start_relaxes_to_the_rows_with_ties_and_constants(posed: Any) -> None:
    problem, truth = posed(n=20)
    assert problem.space.constants and problem.space.ties
    start = one_hot_start(problem.space, truth, FIRM)
    relaxed, _ = SpaceRelaxation(problem.space, 1.0, torch.float64).forward(start[None, None])
    torch.testing.assert_close(relaxed[0, 0], problem.space.rows.of(truth.codes, truth.numbers))


def test_the_derivative_is_that_of_difference_quotients(posed: Any) -> None:
    problem, _ = posed()
    relaxation = SpaceRelaxation(problem.space, 1.0, torch.float64)
    z = prior_start(problem.space, 2, 0, 0)[None, None]
    weights = torch.randn(z.shape, generator=generator(1), dtype=torch.float64)
    x, state = relaxation.forward(z)
    found = relaxation.backward(weights.clone(), state)
    for i in range(z.shape[-1]):
        ahead = z.clone()
        ahead[0, 0, 1, i] += 1e-6
        quotient = ((relaxation.forward(ahead)[0] - x) * weights).sum() / 1e-6
        torch.testing.assert_close(found[0, 0, 1, i], quotient, atol=1e-5, rtol=1e-4)


def test_absent_categories_never_appear(posed: Any) -> None:
    problem, _ = posed(n=3)
    encoder = problem.space.encoder
    x, _ = SpaceRelaxation(problem.space, 1.0, torch.float64).forward(prior_start(problem.space, 4, 0, 0)[None, None])
    raw = x[0, 0] * encoder.scale + encoder.shift
    absent = torch.ones(encoder.width, dtype=torch.bool)
    absent[encoder.numerical_positions] = False
    for block, present in zip(encoder.layout.categorical, problem.space.present, strict=True):
        absent[block.start + present] = False
    assert bool(absent.any())
    assert float(raw[:, absent].abs().max()) < 1e-12


def test_the_engine_stays_at_the_truth(posed: Any) -> None:
    problem, truth = posed(whitened=True, n=6)
    config = stage_config(steps=30, learning_rate=0.05, numerical_learning_rate=1e-4, mask_width=1e-3)
    start = one_hot_start(problem.space, truth, 8.0).unsqueeze(0)
    (found,) = optimize(problem, start, truth.labels, config)
    assert torch.equal(found.codes, truth.codes)
    torch.testing.assert_close(found.numbers, truth.numbers, atol=0.01, rtol=0)


def test_the_engine_finds_rows_from_the_prior(posed: Any) -> None:
    problem, truth = posed(whitened=True, n=4)
    start = torch.stack([prior_start(problem.space, 4, 0, restart) for restart in range(2)])
    config = stage_config(steps=400, learning_rate=0.2, numerical_learning_rate=0.05, temperature_end=0.2)
    found = optimize(problem, start, truth.labels, config)
    assert len(found) == 2
    assert min(problem.value(rows) for rows in found) < 0.1


def test_the_belief_of_a_whole_space_is_the_engines(make_batch: Any) -> None:
    batch = make_batch()
    found = belief_of(RowDomain.whole(batch.encoder, batch.prior))
    expected = RowBelief.of([batch.update], batch.encoder, torch.device("cpu"), torch.float64)
    for name in ("log_share", "shift", "scale", "mean", "deviation", "lower", "upper", "skewed"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name))
