"""Noise on the gradient of every image is the mean of as many draws on the mean gradient."""

import math

import pytest
import torch

from lightleak.core.errors import UsageError
from lightleak.core.seeds import generator
from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.defenses.horizontal.sparsification import RandomPruning
from lightleak.reproductions.fedavg.each_image import EachImage


def test_noise_shrinks_by_the_root_of_the_images() -> None:
    zero = {"w": torch.zeros(40_000)}
    noisy = EachImage(GaussianNoise(0.3), images=9).apply(zero, generator(0))["w"]
    # Nine draws of deviation 0.3, averaged: 0.1, known to 0.4% (one deviation of 40,000 values).
    assert float(noisy.std()) == pytest.approx(0.1, rel=0.02)
    assert not bool(zero["w"].any())


def test_pruning_keeps_the_same_share_on_average() -> None:
    ones = {"w": torch.ones(40_000)}
    pruned = EachImage(RandomPruning(0.25), images=4).apply(ones, generator(0))["w"]
    assert set(pruned.unique().tolist()) == {0, 0.25, 0.5, 0.75, 1}
    assert float(pruned.mean()) == pytest.approx(0.75, abs=3 * math.sqrt(0.75 * 0.25 / 4 / 40_000))


def test_one_image_is_the_inner_defence() -> None:
    gradient, inner = {"w": torch.arange(5.0)}, GaussianNoise(0.1)
    assert torch.equal(EachImage(inner, 1).apply(gradient, generator(1))["w"], inner.apply(gradient, generator(1))["w"])
    assert EachImage(inner, 5).strength == 0.1
    assert "each image (5 per step)" in EachImage(inner, 5).describe()


def test_no_image_is_refused() -> None:
    with pytest.raises(UsageError, match="images must be at least 1, got 0"):
        EachImage(GaussianNoise(0.1), 0)
