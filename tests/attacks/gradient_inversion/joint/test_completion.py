"""Elements of a low-rank gradient that follow from the others."""

from typing import Any

import torch

from lightleak.attacks.gradient_inversion.joint.completion import completed, one_hot_basis
from lightleak.attacks.gradient_inversion.network.chain import observed_gradient
from lightleak.core.seeds import generator


def low_rank(rank: int = 4, shape: tuple[int, int] = (30, 26)) -> torch.Tensor:
    draws = generator(0, "low rank")
    left, right = (torch.randn(size, rank, generator=draws, dtype=torch.float64) for size in shape)
    return left @ right.T


def test_large_elements_follow_from_the_others() -> None:
    whole = low_rank()
    is_cut = whole.abs() > whole.abs().flatten().quantile(0.85)
    cut = whole.clamp(-float(whole[~is_cut].abs().max()), float(whole[~is_cut].abs().max()))
    found = completed(cut, ~is_cut, torch.zeros_like(is_cut), 4)
    assert found is not None and found[1] < 1e-6
    torch.testing.assert_close(found[0], whole, rtol=1e-4, atol=1e-6)


def test_small_elements_follow_as_well() -> None:
    whole = low_rank()
    is_small = whole.abs() < whole.abs().flatten().quantile(0.2)
    found = completed(whole.masked_fill(is_small, 0.0), ~is_small, is_small, 4)
    assert found is not None and found[1] < 1e-6
    torch.testing.assert_close(found[0], whole, rtol=1e-4, atol=1e-6)


def test_nothing_follows_where_too_little_is_known_or_the_rank_is_higher() -> None:
    whole, draws = low_rank(), generator(1, "known")
    known = torch.rand(whole.shape, generator=draws)
    none = torch.zeros_like(whole, dtype=torch.bool)
    assert completed(whole, known < 0.2, none, 4) is None
    noised = whole + 0.1 * torch.randn(whole.shape, generator=draws, dtype=torch.float64)
    assert completed(noised, known < 0.8, none, 4) is None


def test_the_first_layers_gradient_lies_in_the_basis(make_batch: Any) -> None:
    batch = make_batch(n=5, precise=True)
    first, basis = observed_gradient(batch.update)[0], one_hot_basis(batch.encoder)
    assert basis.shape == (first.shape[1], first.shape[1] - len(batch.encoder.layout.categorical))
    torch.testing.assert_close(first @ basis @ basis.T, first, rtol=0, atol=1e-9)
