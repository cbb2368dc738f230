"""Clipping bounds the norm and keeps the direction; signs and quantization keep what they promise."""

import math

import pytest
import torch
from torch import Tensor

from lightleak.core.seeds import generator
from lightleak.defenses.horizontal.rounding import Clipping, Quantization, Sign


def flat(named: dict[str, Tensor]) -> Tensor:
    return torch.cat([value.flatten().double() for value in named.values()])


@pytest.mark.parametrize("max_norm", [1e-4, 1.0, 30.0])
def test_clipping_bounds_the_norm_of_all_tensors_together(max_norm: float, gradient: dict[str, Tensor]) -> None:
    assert float(flat(gradient).norm()) > 31
    sent = flat(Clipping(max_norm).apply(gradient, generator(0)))
    assert float(sent.norm()) == pytest.approx(max_norm, rel=1e-5)
    torch.testing.assert_close(sent / sent.norm(), flat(gradient) / flat(gradient).norm())


def test_clipping_never_lengthens(gradient: dict[str, Tensor]) -> None:
    small = {name: 1e-3 * value for name, value in gradient.items()}
    assert torch.equal(flat(Clipping(1.0).apply(small, generator(0))), flat(small))
    zero = {"a": torch.zeros(3)}
    assert torch.equal(Clipping(1.0).apply(zero, generator(0))["a"], zero["a"])


def test_clipping_of_half_precision_does_not_overflow() -> None:
    given = {"a": torch.full((100,), 300.0, dtype=torch.float16)}  # its square sum is 9e6, float16 ends at 65504
    torch.testing.assert_close(Clipping(1.0).apply(given, generator(0))["a"], torch.full((100,), 0.1).half())


def test_signs_keep_the_sum_of_magnitudes_and_one_magnitude_per_tensor(gradient: dict[str, Tensor]) -> None:
    for name, sent in Sign().apply(gradient, generator(0)).items():
        given = gradient[name]
        assert torch.equal(sent.sign(), given.sign())
        assert len(sent.abs().unique()) <= 2
        if name == "bias":  # without zeros
            assert float(sent.abs().sum()) == pytest.approx(float(given.abs().sum()), rel=1e-5)


@pytest.mark.parametrize("bits", [2, 3, 8])
def test_quantization_is_unbiased_on_few_levels(bits: int, gradient: dict[str, Tensor]) -> None:
    draws, levels, n = generator(0), 2 ** (bits - 1) - 1, 500
    runs = [Quantization(bits).apply(gradient, draws) for _ in range(n)]
    for name, given in gradient.items():
        step = float(given.abs().max()) / levels
        stacked = torch.stack([run[name] for run in runs])
        assert len(stacked.unique()) <= 2 * levels + 1
        assert float((stacked - given).abs().max()) <= step * (1 + 1e-5)
        # A draw's deviation is at most half a step.
        assert float((stacked.mean(0) - given).abs().max()) <= 5 * 0.5 * step / math.sqrt(n)


def test_many_bits_change_little(gradient: dict[str, Tensor]) -> None:
    for name, sent in Quantization(16).apply(gradient, generator(0)).items():
        torch.testing.assert_close(sent, gradient[name], rtol=0, atol=float(gradient[name].abs().max()) / 32000)
