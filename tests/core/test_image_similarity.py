"""PSNR of every pair, and the pairing of two batches by it."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.functional.image import peak_signal_noise_ratio

from lightleak.core.errors import UsageError
from lightleak.core.image_similarity import HIGHEST_PSNR, matched_psnr, psnr


def test_every_pair_is_torchmetrics_at_a_data_range_of_one() -> None:
    a, b = torch.rand(2, 1, 3, 12), torch.rand(2, 1, 4, 12)
    found = psnr(a, b)
    assert found.shape == (2, 1, 3, 4)
    for *batch, i, j in itertools.product(range(2), range(1), range(3), range(4)):
        expected = peak_signal_noise_ratio(b[*batch, j], a[*batch, i], data_range=1.0)
        torch.testing.assert_close(found[*batch, i, j], expected)


def test_nearly_equal_images_keep_their_distance_and_equal_ones_are_finite() -> None:
    images = torch.rand(30, 784)
    others = images.clone()
    others[:, 5] += 1 / 255  # one gray level in one pixel: 10 log10(784 * 255^2) = 77.07 dB
    assert psnr(images, others).diagonal().tolist() == pytest.approx([77.07] * 30, abs=0.02)
    assert psnr(images, images).diagonal().tolist() == [HIGHEST_PSNR] * 30
    assert matched_psnr(images, images).tolist() == [HIGHEST_PSNR] * 30


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), n=st.integers(1, 5))
def test_matching_finds_the_largest_total_and_does_not_care_for_order(seed: int, n: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    true, made = torch.rand(2, n, 3, generator=draws, dtype=torch.float64)
    pairs = psnr(true, made)
    best = max(sum(pairs[i, j].item() for i, j in enumerate(order)) for order in itertools.permutations(range(n)))
    found = matched_psnr(made, true)
    assert found.sum().item() == pytest.approx(best, rel=1e-9)
    order = torch.randperm(n, generator=draws)
    torch.testing.assert_close(matched_psnr(made[order], true), found)
    torch.testing.assert_close(matched_psnr(made, true[order]), found[order])


def test_batches_are_matched_each_on_its_own() -> None:
    true, made = torch.rand(2, 3, 4, 6)
    torch.testing.assert_close(matched_psnr(made, true), torch.stack(list(map(matched_psnr, made, true))))


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match=r"rows of equally many pixels, got \[2, 4\] and \[2, 5\]"):
        psnr(torch.rand(2, 4), torch.rand(2, 5))
    with pytest.raises(UsageError, match=r"got \[4\] and \[2, 4\]"):
        psnr(torch.rand(4), torch.rand(2, 4))
    with pytest.raises(UsageError, match=r"as many reconstructed images as true ones .* got \[3, 4\] and \[2, 4\]"):
        matched_psnr(torch.rand(3, 4), torch.rand(2, 4))
