"""Pixels to rows and back, and what an observation carries of it."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightleak.core.errors import DataError, ObservationError, UsageError
from lightleak.data.image_scale import PUBLISHED_STATISTICS, ImageScale, is_image_state
from lightleak.data.images import LabeledImages, load_digits_images

COLOUR = ImageScale((3, 2, 4), (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))


@given(seed=st.integers(0, 1000), leading=st.sampled_from([(), (5,), (2, 3)]))
def test_pixels_return_from_their_rows(seed: int, leading: tuple[int, ...]) -> None:
    pixels = torch.rand(*leading, *COLOUR.shape, generator=torch.Generator().manual_seed(seed))
    rows = COLOUR.encode(pixels)
    assert rows.shape == (*leading, COLOUR.width) and rows.dtype == pixels.dtype
    torch.testing.assert_close(COLOUR.decode(rows), pixels)


def test_a_row_is_the_standardized_image_channel_after_channel() -> None:
    pixels = torch.rand(3, 2, 4)
    expected = [(v - COLOUR.mean[c]) / COLOUR.deviation[c] for c in range(3) for v in pixels[c].flatten().tolist()]
    assert COLOUR.encode(pixels).tolist() == pytest.approx(expected, abs=1e-5)
    assert COLOUR.layout.width == 24 and len(COLOUR.layout.numerical) == 24


def test_what_lies_outside_is_cut_and_the_bounds_are_black_and_white() -> None:
    lower, upper = COLOUR.encoded_bounds()
    assert torch.equal(COLOUR.decode(2 * lower), torch.zeros(3, 2, 4))
    assert torch.equal(COLOUR.decode(2 * upper), torch.ones(3, 2, 4))
    torch.testing.assert_close(COLOUR.decode(lower), torch.zeros(3, 2, 4))
    torch.testing.assert_close(COLOUR.decode(upper), torch.ones(3, 2, 4))


def test_fitted_rows_are_standard() -> None:
    digits = load_digits_images()
    scale = ImageScale.fit(digits)
    rows = scale.encode(digits.pixels.double() / 255)
    assert rows.shape == (1797, 64)
    assert rows.mean().item() == pytest.approx(0, abs=1e-9)
    assert rows.std(correction=0).item() == pytest.approx(1)


def test_each_channel_is_fitted_on_its_own() -> None:
    pixels = torch.stack([torch.tensor([[0, 255]]), torch.tensor([[51, 51 * 3]])]).to(torch.uint8).unsqueeze(0)
    scale = ImageScale.fit(LabeledImages(pixels, torch.zeros(1, dtype=torch.long), ("a",)))
    assert scale.mean == pytest.approx((0.5, 0.4)) and scale.deviation == pytest.approx((0.5, 0.2))


def test_an_observation_carries_it_as_json() -> None:
    facts, tensors = COLOUR.to_state()
    assert not tensors and is_image_state(facts)
    assert facts == {"kind": "images", "shape": [3, 2, 4], "mean": [*COLOUR.mean], "deviation": [*COLOUR.deviation]}
    assert ImageScale.from_state(json.loads(json.dumps(facts)), tensors) == COLOUR
    assert not is_image_state({"encoding": "standardized", "schema": {}})


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "table"},
        {"shape": [3, 2]},
        {"shape": [3, 2, 0]},
        {"mean": [0.5]},
        {"deviation": [0.1, 0.1, 0.0]},
        {"deviation": [0.1, 0.1, float("nan")]},
        {"mean": None},
    ],
)
def test_a_damaged_scale_is_refused(change: dict[str, object]) -> None:
    facts, _ = COLOUR.to_state()
    with pytest.raises(ObservationError, match="an observation of images"):
        ImageScale.from_state({**facts, **change})


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(UsageError, match=r"images must be \[..., 3, 2, 4\], got \[5, 1, 2, 4\]"):
        COLOUR.encode(torch.rand(5, 1, 2, 4))
    with pytest.raises(UsageError, match=r"rows must be \[..., 24\], got \[5, 25\]"):
        COLOUR.decode(torch.rand(5, 25))
    with pytest.raises(UsageError, match=r"per channel \(3\) are needed, got 1 and 3"):
        ImageScale((3, 2, 4), (0.5,), (0.1, 0.1, 0.1))
    blank = LabeledImages(torch.zeros(2, 1, 2, 2, dtype=torch.uint8), torch.zeros(2, dtype=torch.long), ("a",))
    with pytest.raises(DataError, match="pixels that differ"):
        ImageScale.fit(blank)
    with pytest.raises(DataError, match="at least one image, got none"):
        ImageScale.fit(blank.take(torch.tensor([], dtype=torch.long)))


def test_published_statistics_have_one_number_per_channel() -> None:
    for name, (mean, deviation) in PUBLISHED_STATISTICS.items():
        channels = 3 if name == "cifar100" else 1
        assert ImageScale((channels, 8, 8), mean, deviation).width == 64 * channels
