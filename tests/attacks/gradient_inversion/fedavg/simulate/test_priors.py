"""The priors equal their definitions, written out pair by pair."""

import pytest
import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.fedavg.simulate.epoch_prior import epoch_prior
from lightleak.attacks.gradient_inversion.fedavg.simulate.image_priors import (
    out_of_range,
    random_features,
    total_variation,
)
from lightleak.data.image_scale import ImageScale

SCALE = ImageScale((2, 3, 4), (0.5, 0.2), (0.3, 0.7))


@pytest.mark.parametrize("statistic", ["mean", "max"])
@pytest.mark.parametrize("distance", ["l2", "l1"])
def test_the_epoch_prior_is_the_mean_over_all_pairs_of_epochs(distance: str, statistic: str) -> None:
    x = torch.randn(2, 4, 5, 3, dtype=torch.float64)
    expected = torch.zeros(2, dtype=torch.float64)
    for i in range(2):
        of_epoch = [x[i, e].mean(0) if statistic == "mean" else x[i, e].max(0).values for e in range(4)]
        for a in of_epoch:
            for b in of_epoch:
                expected[i] += ((a - b).abs() if distance == "l1" else (a - b).square()).mean() / 16
    torch.testing.assert_close(epoch_prior(x, distance, statistic), expected)


def test_the_epoch_prior_does_not_care_for_the_order_within_an_epoch() -> None:
    x = torch.randn(3, 6, 4)
    shuffled = torch.stack([epoch[torch.randperm(6)] for epoch in x])
    torch.testing.assert_close(epoch_prior(x), epoch_prior(shuffled))
    assert epoch_prior(x[:1].expand(3, -1, -1)).item() == pytest.approx(0, abs=1e-7)


def test_total_variation_sums_squared_steps_to_the_right_and_below() -> None:
    x = torch.randn(5, 24, dtype=torch.float64)
    images, total = x.view(5, 2, 3, 4), torch.zeros((), dtype=torch.float64)
    for row in range(3):
        for column in range(4):
            here = images[:, :, row, column]
            total += (here - images[:, :, (row + 1) % 3, column]).square().sum()
            total += (here - images[:, :, row, (column + 1) % 4]).square().sum()
    torch.testing.assert_close(total_variation(x, SCALE), total / 5)


def test_only_pixels_out_of_range_are_penalized() -> None:
    inside = SCALE.encode(torch.rand(3, 2, 3, 4))
    assert out_of_range(inside, SCALE).item() == pytest.approx(0, abs=1e-9)
    pixels = torch.full((1, 2, 3, 4), 0.5)
    pixels[0, 1, 2, 3], pixels[0, 0, 0, 0] = 1.5, -0.25
    torch.testing.assert_close(out_of_range(SCALE.encode(pixels), SCALE), torch.tensor(0.5**2 + 0.25**2))


def test_random_features_are_a_convolution_that_its_seed_alone_decides() -> None:
    x = torch.randn(2, 3, 24)
    features = random_features(SCALE, seed=1)
    assert features(x).shape == (2, 3, 96 * 12)
    assert torch.equal(features(x), random_features(SCALE, seed=1)(x))
    assert not torch.equal(features(x), random_features(SCALE, seed=2)(x))
    doubled: Tensor = features(2 * x)
    torch.testing.assert_close(doubled, 2 * features(x))
