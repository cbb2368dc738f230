"""The distances between gradients equal their definitions, and their derivatives autograd's."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lightleak.attacks.gradient_inversion.optimize.objective import OBJECTIVES

SIZES = [3, 1, 5]


def products(gradient: list[Tensor], target: list[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What an objective is given, for one update and one restart."""
    inner = torch.stack([(g * t).sum() for g, t in zip(gradient, target, strict=True)])
    norm, target_norm = (torch.stack([v.square().sum() for v in values]) for values in (gradient, target))
    sizes = torch.tensor([float(v.numel()) for v in gradient], dtype=inner.dtype)
    return *(v.view(1, 1, -1) for v in (inner, norm, target_norm)), sizes


def definition(name: str, gradient: list[Tensor], target: list[Tensor]) -> Tensor:
    """The objective as the papers write it."""
    if name == "squared_error":
        return sum(((g - t).square().mean() for g, t in zip(gradient, target, strict=True)), torch.zeros(()))
    g, t = torch.cat(gradient), torch.cat(target)
    if name == "relative_error":
        return (g - t).square().sum() / t.square().sum()
    return 1 - g @ t / (g.norm() * t.norm())


@pytest.mark.parametrize("name", OBJECTIVES)
@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), size=st.sampled_from([1e-6, 1.0, 1e6]))
def test_value_and_derivatives_equal_the_definition(name: str, seed: int, size: float) -> None:
    draw = torch.Generator().manual_seed(seed)
    gradient, target = ([size * torch.randn(n, generator=draw, dtype=torch.float64) for n in SIZES] for _ in range(2))
    leaves = [g.clone().requires_grad_() for g in gradient]
    expected = definition(name, leaves, target)
    by_gradient = torch.autograd.grad(expected, leaves)
    value, by_inner, by_norm = OBJECTIVES[name](*products(gradient, target))
    torch.testing.assert_close(value.view(()), expected.detach(), check_dtype=False)
    for i, (g, t) in enumerate(zip(gradient, target, strict=True)):
        got = by_inner[0, 0, i] * t + 2 * by_norm[0, 0, i] * g
        torch.testing.assert_close(got, by_gradient[i], rtol=1e-6, atol=1e-10 * float(by_gradient[i].abs().max()))


def test_a_vanishing_gradient_has_loss_one_and_no_direction() -> None:
    target = [torch.ones(n) for n in SIZES]
    value, by_inner, by_norm = OBJECTIVES["cosine"](*products([torch.zeros(n) for n in SIZES], target))
    assert value.item() == 1
    assert not by_inner.any() and not by_norm.any()


def test_tiny_gradients_keep_their_direction_in_single_precision() -> None:
    # The squared norms multiply to 1e-44, which float32 can hardly hold.
    gradient = [1e-11 * torch.ones(n) for n in SIZES]
    value, by_inner, by_norm = OBJECTIVES["cosine"](*products(gradient, gradient))
    assert abs(value.item()) < 1e-5
    assert by_inner.isfinite().all() and by_norm.isfinite().all()


def test_a_squared_norm_rounded_below_zero_is_no_nan() -> None:
    inner = torch.full((1, 1, 1), 1e-9)
    value, by_inner, by_norm = OBJECTIVES["cosine"](inner, -inner, torch.ones(1, 1, 1), torch.ones(1))
    assert value.item() == 1 and not by_inner.any() and not by_norm.any()
