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


def test_clamped_numbers_are_in_deviations_within_their_bounds() -> None:
    layout = layout_of([1, 3, 1])
    shift, scale, lower, upper = constants(layout.width, torch.float64)
    unit = torch.tensor([0.5, 9.0, 9.0, 9.0, 4.0], dtype=torch.float64)
    relax = Relaxation(layout, shift, scale, lower, upper, numerical="clamp", unit=unit)
    z = torch.randn(6, layout.width, dtype=torch.float64)
    x = relax(z)
    torch.testing.assert_close(x[:, [0, 4]], z[:, [0, 4]] * unit[[0, 4]])
    torch.testing.assert_close(x[:, 1:4], relaxation(layout)(z)[:, 1:4])
    assert relax.bounds is not None and relaxation(layout).bounds is None
    for bound, reached in zip(relax.bounds, (lower, upper), strict=True):
        torch.testing.assert_close(relax(bound.clamp(-1e9, 1e9))[[0, 4]], reached[[0, 4]])
        assert bound[1:4].isinf().all()


def test_logits_are_taken_as_they_are() -> None:
    layout = layout_of([4, 1])
    shift, scale, *_ = constants(layout.width, torch.float64)
    z = torch.randn(3, layout.width, dtype=torch.float64)
    raw = relaxation(layout, logits=True)(z) * scale + shift
    torch.testing.assert_close(raw[:, :4], z[:, :4].softmax(-1))


@pytest.mark.parametrize("logits", [True, False])
def test_the_temperature_falls_geometrically_and_divides_the_logits(logits: bool) -> None:
    layout = layout_of([4, 1, 2])
    shift, scale, *_ = constants(layout.width, torch.float64)
    relax = relaxation(layout, logits=logits, temperature_end=0.25)
    z = torch.randn(3, layout.width, dtype=torch.float64)
    for share, temperature in ((0.0, 1.0), (0.5, 0.5), (1.0, 0.25)):
        raw, plain = relax.at(share)(z) * scale + shift, relaxation(layout)(z)
        for at in (slice(0, 4), slice(5, 7)):
            logit = z[:, at] if logits else z[:, at] * scale[at] + shift[at]
            torch.testing.assert_close(raw[:, at], (logit / temperature).softmax(-1))
        torch.testing.assert_close(relax.at(share)(z)[:, 4], plain[:, 4])
        leaf = z.clone().requires_grad_()
        assert torch.autograd.gradcheck(relax.at(share), (leaf,))
    hot = relaxation(layout)
    assert hot.at(0.7) is hot


def test_absent_categories_get_no_weight_per_update() -> None:
    layout = layout_of([3, 1, 2])
    shift, scale, *_ = constants(layout.width, torch.float64)
    present = torch.tensor([[1, 0, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0]]).bool()[:, None, None]
    z = torch.randn(2, 3, 4, layout.width, dtype=torch.float64)
    plain, relax = relaxation(layout), relaxation(layout).only(present)
    x, state = relax.forward(z)
    raw = x * scale + shift
    assert raw[0, ..., 1].abs().max() < 1e-12 and raw[1, ..., 2].abs().max() < 1e-12
    torch.testing.assert_close(raw[..., :3].sum(-1), torch.ones(2, 3, 4, dtype=torch.float64))
    kept = (z * scale + shift)[0, ..., [0, 2]].softmax(-1)
    torch.testing.assert_close(raw[0, ..., [0, 2]], kept)
    # A block that nothing is left of keeps everything, and numbers have no categories.
    torch.testing.assert_close(x[..., 3:], plain(z)[..., 3:])
    assert not relax.backward(torch.ones_like(z), state)[0, ..., 1].any()
    torch.testing.assert_close(plain(z), relaxation(layout)(z), rtol=0, atol=0)  # the first one is as it was


@pytest.mark.parametrize("numerical", get_args(NumericalRelaxation))
def test_numbers_can_be_chosen(numerical: str) -> None:
    layout = layout_of([1, 3, 1])
    unit = torch.full((layout.width,), 0.7, dtype=torch.float64)
    relax = Relaxation(layout, *constants(layout.width, torch.float64), numerical=numerical, unit=unit)
    _, _, lower, upper = constants(layout.width, torch.float64)
    x = lower + (upper - lower) * torch.tensor([0.3, 0.5, 0.5, 0.5, 0.9], dtype=torch.float64)
    z = torch.randn(2, layout.width, dtype=torch.float64)
    changed = relax.with_numbers(z, x.expand_as(z))
    assert torch.equal(changed[:, 1:4], z[:, 1:4])
    torch.testing.assert_close(relax(changed)[:, [0, 4]], x[[0, 4]].expand(2, 2))
    at_bound = relax.with_numbers(z, lower.expand_as(z))
    assert at_bound.isfinite().all()
    torch.testing.assert_close(relax(at_bound)[:, [0, 4]], lower[[0, 4]].expand(2, 2), rtol=0, atol=2e-3)


def test_a_sigmoid_without_span_has_a_start() -> None:
    layout = layout_of([1, 2])
    shift, scale, lower, _ = constants(layout.width, torch.float64)
    relax = Relaxation(layout, shift, scale, lower, lower)
    start = relax.with_numbers(torch.zeros(1, 3, dtype=torch.float64), lower.expand(1, 3))
    torch.testing.assert_close(relax(start)[:, 0], lower[:1])


def test_followers_are_an_affine_function_of_the_others() -> None:
    layout = layout_of([1, 3, 1, 1])
    follows = torch.zeros(2, 1, layout.width, 2, dtype=torch.float64)
    follows[0, 0, 1:4, 0] = torch.tensor([1.0, 2.0, 5.0])  # the first number follows a category of the first update
    follows[1, 0, 0, 0] = 1  # and is free in the second
    follows[:, 0, 1:4, 1] = -1.0
    offset = torch.tensor([[3.0, 0.5], [0.0, 0.25]], dtype=torch.float64)[:, None, None]
    relax = relaxation(layout, numerical="none").following([0, 4], offset, follows)
    z = torch.randn(2, 3, 5, layout.width, dtype=torch.float64, requires_grad=True)
    plain = relaxation(layout, numerical="none")(z)
    tied = torch.stack([plain[0, ..., 1:4] @ follows[0, 0, 1:4, 0] + 3, plain[1, ..., 0]])
    last = torch.stack([0.5 - plain[0, ..., 1:4].sum(-1), 0.25 - plain[1, ..., 1:4].sum(-1)])
    expected = torch.cat([tied[..., None], plain[..., 1:4], last[..., None], plain[..., 5:]], -1)
    weights = torch.randn_like(z)
    (by_z,) = torch.autograd.grad(expected, z, weights)
    x = relax(z)
    torch.testing.assert_close(x, expected)
    kept = weights.clone()
    torch.testing.assert_close(torch.autograd.grad(x, z, weights)[0], by_z)
    assert torch.equal(weights, kept)
