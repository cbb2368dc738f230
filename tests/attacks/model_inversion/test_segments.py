"""The generator's head against torch's own activations, block by block."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import gumbel_r, kstest
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lightleak.attacks.model_inversion.segments import BlockArgmax, Segment, Segments
from lightleak.core.errors import UsageError

MIXED = (("softmax", 3), ("tanh", 1), ("softmax", 2), ("sigmoid", 2), ("softmax", 3), ("softmax", 1), ("softmax", 7))
ACTIVATIONS = st.lists(st.tuples(st.sampled_from(["tanh", "sigmoid", "softmax"]), st.integers(1, 9)), min_size=1)


def laid_out(kinds: Any, **bounds: Any) -> Segments:
    blocks, at = [], 0
    for i, (kind, width) in enumerate(kinds):
        blocks.append(Segment(f"c{i}", kind, at, at + width))
        at += width
    return Segments(tuple(blocks), **bounds)


def reference(segments: Segments, raw: Tensor, noise: Tensor | float = 0.0, tau: float = 0.2) -> Tensor:
    """Block by block; noise is 0 outside the softmax blocks."""
    apply: dict[str, Callable[[Tensor], Tensor]] = {
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "softmax": lambda logits: torch.softmax(logits / tau, -1),
    }
    noisy = raw + noise
    return torch.cat([apply[b.kind](noisy[..., b.start : b.stop]) for b in segments.blocks], -1)


class OperationCount(TorchDispatchMode):
    """Counts the tensor operations that run."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


@given(kinds=ACTIVATIONS, rows=st.integers(1, 5), tau=st.sampled_from([0.2, 1.0]), seed=st.integers(0, 99))
def test_the_head_and_its_gradient_are_those_of_a_loop_over_the_columns(
    kinds: Any, rows: int, tau: float, seed: int
) -> None:
    segments, random = laid_out(kinds), torch.Generator().manual_seed(seed)
    raw = (3 * torch.randn(rows, segments.width, generator=random, dtype=torch.float64)).requires_grad_()
    noise = segments.draw_gumbel(rows, random).double()
    weight = torch.randn(rows, segments.width, generator=random, dtype=torch.float64)
    h, expected = segments.activate(raw, noise, tau), reference(segments, raw, noise, tau)
    torch.testing.assert_close(h, expected, rtol=1e-12, atol=1e-12)
    by_raw, expected_by_raw = (torch.autograd.grad((weight * x).sum(), raw)[0] for x in (h, expected))
    torch.testing.assert_close(by_raw, expected_by_raw, rtol=1e-10, atol=1e-12)


def test_gradcheck() -> None:
    segments = laid_out(MIXED, low=tuple(-0.1 * i for i in range(19)), high=tuple(1 + 0.1 * i for i in range(19)))
    raw = torch.randn(4, segments.width, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda raw: segments.activate(raw, tau=0.7), (raw,))


def test_a_second_derivative_is_refused_instead_of_wrong() -> None:
    segments = laid_out(MIXED)
    raw = torch.randn(4, segments.width, requires_grad=True)
    (by_raw,) = torch.autograd.grad(segments.activate(raw).square().sum(), raw, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        by_raw.sum().backward()


def test_with_the_same_noise_a_block_is_torchs_gumbel_softmax() -> None:
    segments = laid_out([("tanh", 1), ("softmax", 5)])
    raw = torch.randn(8, 6)
    torch.manual_seed(3)
    expected = F.gumbel_softmax(raw[:, 1:], tau=0.2)
    torch.manual_seed(3)
    noise = torch.zeros(8, 6)
    noise[:, 1:] = -torch.empty(8, 5).exponential_().log()
    torch.testing.assert_close(segments.activate(raw, noise)[:, 1:], expected)
    assert torch.equal(segments.activate(raw, noise)[:, 0], raw[:, 0].tanh())


def test_huge_outputs_overflow_nowhere() -> None:
    segments = laid_out(MIXED)
    raw = torch.tensor([-1e30, 1e30, 0.0, 1e4]).repeat(19)[: 4 * 19].reshape(4, 19).requires_grad_()
    h = segments.activate(raw)
    h.square().sum().backward()
    assert h.isfinite().all() and raw.grad is not None and raw.grad.isfinite().all()
    assert torch.equal(h[:, 0:3].sum(-1), torch.ones(4))


def test_any_leading_dimensions_and_memory_layout() -> None:
    segments = laid_out(MIXED)
    raw = torch.randn(19, 3, 4).permute(2, 1, 0)
    torch.testing.assert_close(segments.activate(raw), reference(segments, raw))


def test_bounds_are_met_exactly() -> None:
    low, high = (-3.7, -0.31, 0.0, 2.5), (0.4, 316.2, 1.0, 1e5)
    segments = laid_out([("sigmoid", 1), ("softmax", 2), ("sigmoid", 1)], low=low, high=high)
    h = segments.activate(torch.tensor([[-1e4, 1e4, -1e4, 1e4], [1e4, -1e4, 1e4, -1e4]]))
    expected = torch.tensor([[low[0], high[1], low[2], high[3]], [high[0], low[1], high[2], low[3]]])
    assert torch.equal(h, expected)


def test_gumbel_noise_has_the_gumbel_distribution_at_softmax_positions_and_is_0_elsewhere() -> None:
    segments = laid_out([("tanh", 1), ("softmax", 4), ("sigmoid", 1)])
    noise = segments.draw_gumbel(5000, torch.Generator().manual_seed(0))
    assert noise.dtype == torch.float32 and noise.isfinite().all()
    assert not noise[:, [0, 5]].any()
    assert kstest(noise[:, 1:5].flatten().numpy(), gumbel_r.cdf).pvalue > 0.01
    assert torch.equal(noise, segments.draw_gumbel(5000, torch.Generator().manual_seed(0)))


def test_the_category_that_gumbel_noise_favors_is_drawn_from_the_softmax() -> None:
    segments = laid_out([("softmax", 3)])
    raw = torch.tensor([0.2, 1.0, -0.5]).expand(40_000, 3)
    noise = segments.draw_gumbel(len(raw), torch.Generator().manual_seed(0))
    drawn = segments.activate(raw, noise).argmax(-1).bincount(minlength=3) / len(raw)
    # Four standard errors of a share of 40,000 draws are 0.01.
    torch.testing.assert_close(drawn, raw[0].softmax(-1), rtol=0, atol=0.01)


def test_the_work_does_not_grow_with_the_columns() -> None:
    counts = []
    for columns in (3, 30):
        segments = laid_out([("tanh", 1), ("softmax", 4), ("softmax", 2)] * columns)
        choose = BlockArgmax([block for block in segments.blocks if block.kind == "softmax"])
        raw = torch.randn(5, segments.width, requires_grad=True)
        choose(segments.activate(raw).detach())
        with OperationCount() as operations:
            choose(segments.activate(raw, segments.draw_gumbel(5, torch.Generator())).detach())
            segments.activate(raw).sum().backward()
        counts.append(operations.count)
    assert counts[0] == counts[1]


@given(kinds=ACTIVATIONS, seed=st.integers(0, 99))
def test_block_argmax_is_that_of_a_loop_and_the_first_of_equal_entries_wins(kinds: Any, seed: int) -> None:
    segments = laid_out(kinds)
    h = torch.randint(0, 3, (2, 3, segments.width), generator=torch.Generator().manual_seed(seed)).float()
    found = BlockArgmax(segments.blocks)(h)
    expected = torch.stack([h[..., b.start : b.stop].argmax(-1) for b in segments.blocks], -1)
    assert torch.equal(found, expected)


def test_block_argmax_of_no_block() -> None:
    assert BlockArgmax([])(torch.zeros(2, 3)).shape == (2, 0)


def test_positions_and_columns() -> None:
    segments = Segments.of([("age", "tanh", 0, 1), ("age", "softmax", 1, 4), ("sex", "softmax", 4, 6)])
    assert segments.columns == {"age": slice(0, 4), "sex": slice(4, 6)}
    assert segments.positions("tanh") == [0] and segments.positions("softmax", "tanh") == list(range(6))


def test_a_copy_works_after_use() -> None:
    segments = laid_out(MIXED)
    raw = torch.randn(2, 19)
    h = segments.activate(raw)
    copied = deepcopy(segments)
    assert copied == segments and torch.equal(copied.activate(raw), h)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "at least one segment"),
        ([("a", "relu", 0, 1)], "activation must be one of tanh, sigmoid, softmax, got 'relu'"),
        ([("a", "tanh", 0, 1), ("b", "softmax", 2, 3)], "'b' must start at 1"),
        ([("a", "tanh", 0, 0)], "'a' must start at 0 and end later"),
    ],
)
def test_layouts_that_leave_gaps_are_refused(entries: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Segments.of(entries)


def test_bounds_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="given together"):
        laid_out([("sigmoid", 1)], low=(0.0,))
    with pytest.raises(UsageError, match="high must have one value for each of the 2 positions, got 1"):
        laid_out([("sigmoid", 2)], low=(0.0, 0.0), high=(1.0,))


def test_outputs_of_another_width_and_temperatures_of_0_are_refused() -> None:
    segments = laid_out(MIXED)
    with pytest.raises(UsageError, match="width 19, got shape \\(2, 18\\)"):
        segments.activate(torch.zeros(2, 18))
    with pytest.raises(UsageError, match="tau must be above 0, got 0"):
        segments.activate(torch.zeros(2, 19), tau=0)
