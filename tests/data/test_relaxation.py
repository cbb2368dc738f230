"""The relaxation equals the textbook softmax and sigmoid per column, in value and in derivative."""

import itertools
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lightleak.data.layout import Block, EncodedLayout
from lightleak.data.relaxation import CategoricalRelaxation, NumericalRelaxation, Relaxation

KINDS = list(itertools.product(get_args(CategoricalRelaxation), get_args(NumericalRelaxation)))


def layout_of(widths: list[int]) -> EncodedLayout:
    """Blocks of these widths; 1 is a number."""
    stops = list(itertools.accumulate(widths))
    return EncodedLayout(
        tuple(Block(f"x{i}", s - w, s, w > 1) for i, (w, s) in enumerate(zip(widths, stops, strict=True)))
    )


def constants(width: int, dtype: torch.dtype, seed: int = 0) -> list[Tensor]:
    """Shift, scale, lower and upper of an encoder."""
    draw = torch.Generator().manual_seed(seed)
    shift, scale, lower, span = (torch.rand(width, generator=draw, dtype=torch.float64) for _ in range(4))
    return [value.to(dtype) for value in (shift, scale + 0.1, lower * 4 - 2, lower * 4 - 2 + span + 0.1)]


def relaxation(layout: EncodedLayout, dtype: torch.dtype = torch.float64, **kinds: str) -> Relaxation:
    """A relaxation with arbitrary constants."""
    return Relaxation(layout, *constants(layout.width, dtype), **kinds)


def slow(layout: EncodedLayout, z: Tensor, categorical: str = "softmax", numerical: str = "sigmoid") -> Tensor:
    """The same, column by column."""
    shift, scale, lower, upper = constants(layout.width, z.dtype)
    columns = []
    for block in layout.blocks:
        at = block.slice
        if block.categorical and categorical == "softmax":
            columns.append((torch.softmax(z[..., at] * scale[at] + shift[at], -1) - shift[at]) / scale[at])
        elif not block.categorical and numerical == "sigmoid":
            columns.append(lower[at] + (upper - lower)[at] * torch.sigmoid(z[..., at]))
        else:
            columns.append(z[..., at])
    return torch.cat(columns, -1)


@pytest.mark.parametrize(("categorical", "numerical"), KINDS)
@settings(max_examples=25)
@given(
    widths=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    leading=st.lists(st.integers(1, 3), max_size=3),
    size=st.sampled_from([0.1, 3.0, 100.0]),
)
def test_value_and_derivative_equal_the_slow_reference(
    categorical: str, numerical: str, widths: list[int], leading: list[int], size: float
) -> None:
    layout = layout_of(widths)
    draw = torch.Generator().manual_seed(0)
    z = (size * torch.randn(*leading, layout.width, generator=draw, dtype=torch.float64)).requires_grad_()
    weights = torch.randn(z.shape, generator=draw, dtype=torch.float64)
    relax = relaxation(layout, categorical=categorical, numerical=numerical)
    expected = slow(layout, z, categorical, numerical)
    (by_z,) = torch.autograd.grad(expected, z, weights)
    got = relax(z)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(torch.autograd.grad(got, z, weights)[0], by_z)
    # The engine takes this road, without autograd.
    before = z.detach().clone()
    plain, state = relax.forward(z.detach())
    assert not plain.requires_grad and torch.equal(plain, got.detach())
    kept = weights.clone()
    torch.testing.assert_close(relax.backward(weights, state), by_z)
    assert torch.equal(z.detach(), before) and torch.equal(weights, kept)  # neither input is written into


@pytest.mark.parametrize(("categorical", "numerical"), KINDS)
def test_gradcheck(categorical: str, numerical: str) -> None:
    layout = layout_of([1, 3, 1, 2])
    z = torch.randn(2, 3, layout.width, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(relaxation(layout, categorical=categorical, numerical=numerical), (z,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_values_stay_finite_and_in_bounds(dtype: torch.dtype) -> None:
    layout = layout_of([3, 1, 2, 1])
    relax = relaxation(layout, dtype)
    shift, scale, lower, upper = constants(layout.width, dtype)
    z = torch.tensor([1e4, -1e4, 0.0, 1e4, -1e4, -1e4, -1e4], dtype=dtype)
    x, state = relax.forward(z)
    expected = torch.tensor([1, 0, 0, 0, 0.5, 0.5, 0], dtype=dtype)
    raw = (x * scale + shift)[[0, 1, 2]]
    torch.testing.assert_close(raw, expected[:3], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(x[3], upper[3])
    torch.testing.assert_close(x[6], lower[6])
    torch.testing.assert_close((x * scale + shift)[[4, 5]].sum(), torch.tensor(1.0, dtype=dtype))
    assert relax.backward(torch.ones_like(z), state).isfinite().all()


@settings(max_examples=25)
@given(st.lists(st.integers(2, 6), min_size=1, max_size=4))
def test_blocks_are_distributions_in_the_raw_space(widths: list[int]) -> None:
    layout = layout_of(widths)
    shift, scale, *_ = constants(layout.width, torch.float64)
    raw = relaxation(layout)(5 * torch.randn(7, layout.width, dtype=torch.float64)) * scale + shift
    for block in layout.blocks:
        assert (raw[:, block.slice] > -1e-12).all()
        torch.testing.assert_close(raw[:, block.slice].sum(-1), torch.ones(7, dtype=torch.float64))


def test_without_relaxation_rows_pass_through() -> None:
    layout = layout_of([1, 4])
    z = torch.randn(3, 5, dtype=torch.float64)
    relax = relaxation(layout, categorical="none", numerical="none")
    torch.testing.assert_close(relax(z), z, rtol=0, atol=0)
