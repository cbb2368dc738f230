"""Row and column space of a layer's gradient."""

from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.exact.spaces.layer_spaces import (
    numerical_rank,
    spaces_of,
    unit_scale,
    whitened,
)
from lightleak.attacks.gradient_inversion.network.row_network import with_one
from lightleak.core.seeds import generator

NETWORKS = [((40, 40), 2, 0), ((40, 40), 3, 1), ((30, 30, 30), 2, 2), ((30, 30, 30), 5, 1)]


@pytest.mark.parametrize(("hidden", "n_classes", "seed"), NETWORKS)
@pytest.mark.parametrize("layer", [0, 1])
def test_the_rows_lie_in_both_spaces(
    make_batch: Any, hidden: tuple[int, ...], n_classes: int, seed: int, layer: int
) -> None:
    batch = make_batch(8, hidden, n_classes, seed=seed)
    scale = unit_scale(batch.observed[layer])
    spaces = spaces_of(batch.observed[layer], scale)
    activations = batch.chain.forward(batch.x)
    v = with_one(activations.hidden[layer])
    output = activations.probabilities - torch.nn.functional.one_hot(batch.truth.labels, n_classes)
    d = batch.chain.errors(activations, output)[layer] / scale
    assert spaces.rank == 8 == int(torch.linalg.matrix_rank(v)) == int(torch.linalg.matrix_rank(d))
    assert spaces.row_null.shape == (v.shape[1], v.shape[1] - 8)
    assert spaces.unit_null.shape == (d.shape[1], d.shape[1] - 8)
    assert float(((v @ spaces.row_null).norm(dim=1) / v.norm(dim=1)).max()) < 1e-5
    assert float(((d @ spaces.unit_null).norm(dim=1) / d.norm(dim=1)).max()) < 1e-4
    # v_i^T pinv(R) d_j is the number of rows where i is j, and nothing else.
    coefficients = v @ spaces.inverse @ d.T
    torch.testing.assert_close(coefficients, 8 * torch.eye(8).double(), rtol=0, atol=2e-2)


def test_a_known_rank_is_taken(make_batch: Any) -> None:
    batch = make_batch(8)
    scale = unit_scale(batch.observed[1])
    found, told, more = (spaces_of(batch.observed[1], scale, rank) for rank in (None, 8, 1000))
    assert torch.equal(found.inverse, told.inverse) and torch.equal(found.row_null, told.row_null)
    assert more.rank == min(batch.observed[1].shape)
    nothing = spaces_of(batch.observed[1], scale, 0)
    assert nothing.row_null.shape[1] == batch.observed[1].shape[1] and not nothing.inverse.any()


def test_null_bases_are_orthonormal_and_complete(make_batch: Any) -> None:
    spaces = spaces_of(make_batch(8).observed[1], unit_scale(make_batch(8).observed[1]))
    for null in (spaces.row_null, spaces.unit_null):
        torch.testing.assert_close(null.T @ null, torch.eye(null.shape[1]).double())


def test_units_that_no_row_reaches_have_scale_one() -> None:
    gradient = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0]])
    assert unit_scale(gradient).tolist() == [5.0, 1.0, 2.0]


@pytest.mark.parametrize("rank", [1, 5, 11, 12])
@pytest.mark.parametrize("rounding", [0.0, 1e-8, 1e-7])
def test_rank_is_counted_up_to_rounding(rank: int, rounding: float) -> None:
    draw = generator(rank, "rank")
    left, right = (torch.randn(12, rank, generator=draw, dtype=torch.float64) for _ in range(2))
    matrix = left @ right.T
    matrix = matrix + rounding * torch.randn(12, 12, generator=draw, dtype=torch.float64)
    assert numerical_rank(torch.linalg.svdvals(matrix), most=12) == rank


def test_whitened_projections_are_uncorrelated_and_of_one_size() -> None:
    draw = generator(0, "whitened")
    sample = torch.randn(500, 9, generator=draw, dtype=torch.float64) * torch.logspace(0, -3, 9, dtype=torch.float64)
    null = torch.linalg.qr(torch.randn(9, 5, generator=draw, dtype=torch.float64))[0]
    metric = whitened(null, sample, 1e-12)
    projected = sample @ metric
    torch.testing.assert_close(projected.T @ projected / 500, torch.eye(5).double(), rtol=0, atol=1e-6)
    assert float((null @ null.T @ metric - metric).norm()) < 1e-9 * float(metric.norm())  # the same space
    # A floor raises the small eigenvalues: nothing gets larger than without it, the largest direction stays.
    raised = (sample @ whitened(null, sample, 0.1)).square().mean(0)
    assert float(raised.max()) == pytest.approx(1) and float(raised.min()) < 0.1


def test_an_empty_null_space_stays_empty() -> None:
    """As of one hidden layer whose rows span all of its inputs, while its column space still tests them."""
    assert whitened(torch.zeros(5, 0), torch.randn(20, 5), floor=1e-3).shape == (5, 0)
