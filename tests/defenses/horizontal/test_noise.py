"""Gaussian and Laplacian noise have the scale and the shape they name."""

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from lightleak.core.seeds import generator
from lightleak.defenses.horizontal.noise import GaussianNoise, LaplacianNoise

N = 40_000


@pytest.mark.parametrize("scale", [1e-3, 0.1, 2.0])
@pytest.mark.parametrize(
    ("kind", "law", "relative_error"),
    # Standard error of a sample's deviation: sqrt((kurtosis - 1) / 4n), with kurtosis 3 and 6.
    [(GaussianNoise, stats.norm, math.sqrt(2 / (4 * N))), (LaplacianNoise, stats.laplace, math.sqrt(5 / (4 * N)))],
)
def test_noise_has_the_law_and_the_scale(
    kind: type, law: stats.rv_continuous, relative_error: float, scale: float
) -> None:
    given = {"a": torch.full((200, 200), 3.0, dtype=torch.float64)}
    noise = (kind(scale).apply(given, generator(0))["a"] - 3).flatten()
    expected = law(scale=scale)
    assert stats.kstest(noise.numpy(), expected.cdf).pvalue > 0.01
    assert float(noise.std()) == pytest.approx(expected.std(), rel=4 * relative_error)
    assert abs(float(noise.mean())) < 4 * expected.std() / math.sqrt(N)


@pytest.mark.parametrize("kind", [GaussianNoise, LaplacianNoise])
def test_noise_is_of_one_size_for_all_tensors_and_additive(kind: type, gradient: dict[str, Tensor]) -> None:
    doubled = {name: 2 * value for name, value in gradient.items()}
    once, twice = kind(0.5).apply(gradient, generator(0)), kind(0.5).apply(doubled, generator(0))
    for name, value in gradient.items():
        torch.testing.assert_close(twice[name] - once[name], value, rtol=1e-5, atol=1e-6)
        assert len((once[name] - value).unique()) > 0.99 * value.numel()
