"""Changes of images: equal to torch's own turns and rolls where those exist, and differentiable."""

import pytest
import torch
from torch import Tensor

from lightleak.attacks.model_inversion.image_augmentation import DRAWS, ImageAugmentation
from lightleak.core.errors import UsageError

CROP, ANGLE, RIGHT, DOWN, BRIGHTNESS, CONTRAST, MIRROR = range(DRAWS)
OFF = {"crop": 0.0, "rotation": 0.0, "shift": 0.0, "brightness": 0.0, "contrast": 0.0}


def changed(images: Tensor, drawn: dict[int, float], **settings: float) -> Tensor:
    numbers = torch.zeros(len(images), DRAWS, dtype=images.dtype)
    numbers[:, CROP] = -1  # nothing is cut off
    for place, value in drawn.items():
        numbers[:, place] = value
    return ImageAugmentation(**{**OFF, **settings}).apply(images, numbers)  # type: ignore[arg-type]


@pytest.fixture
def images() -> Tensor:
    return torch.rand(2, 3, 8, 8, dtype=torch.float64) * 2 - 1


def test_without_any_change_the_image_stays(images: Tensor) -> None:
    torch.testing.assert_close(changed(images, {place: 0.7 for place in range(1, DRAWS)}), images)


def test_a_quarter_turn_is_torch_s(images: Tensor) -> None:
    turned = changed(images, {ANGLE: 1.0}, rotation=90.0)
    assert any(torch.allclose(turned, torch.rot90(images, k, (2, 3))) for k in (1, 3))
    torch.testing.assert_close(changed(turned, {ANGLE: -1.0}, rotation=90.0), images)


@pytest.mark.parametrize(("place", "axis"), [(RIGHT, 3), (DOWN, 2)])
def test_a_shift_by_a_pixel_moves_every_pixel_by_one_and_repeats_the_border(
    images: Tensor, place: int, axis: int
) -> None:
    moved = changed(images, {place: 1.0}, shift=1 / 8)
    torch.testing.assert_close(moved.narrow(axis, 0, 7), images.narrow(axis, 1, 7))
    torch.testing.assert_close(moved.narrow(axis, 7, 1), images.narrow(axis, 7, 1))


def test_a_mirror_turns_the_image_round(images: Tensor) -> None:
    torch.testing.assert_close(changed(images, {MIRROR: 0.3}, mirror=True), images.flip(3))
    torch.testing.assert_close(changed(images, {MIRROR: -0.3}, mirror=True), images)


def test_a_crop_enlarges_a_part_that_lies_inside(images: Tensor) -> None:
    # Half of the sides, at the left or at the right: four of eight columns, and half of the one beside them.
    ramp = torch.arange(8, dtype=torch.float64).expand(1, 1, 8, 8)
    for corner, first, last in ((-1.0, 0.0, 3.25), (1.0, 3.75, 7.0)):
        cut = changed(ramp, {CROP: 1.0, RIGHT: corner}, crop=0.5)[0, 0]
        assert (float(cut.min()), float(cut.max())) == (pytest.approx(first), pytest.approx(last))
        assert torch.allclose(cut[:, 2:6].diff(dim=1), torch.tensor(0.5, dtype=torch.float64))


def test_brightness_adds_and_contrast_stretches_about_the_mean(images: Tensor) -> None:
    mean = images.mean((1, 2, 3), keepdim=True)
    found = changed(images, {BRIGHTNESS: -0.5, CONTRAST: 0.25}, brightness=0.4, contrast=0.8)
    torch.testing.assert_close(found, mean + (images - mean) * 1.2 - 0.2)


def test_what_is_drawn_is_in_range_repeats_and_does_not_depend_on_parts(images: Tensor) -> None:
    augment = ImageAugmentation(shift=0.1, mirror=True)
    (drawn,) = augment.draw(500, torch.Generator().manual_seed(1))
    assert drawn.shape == (500, DRAWS) and drawn.abs().max() <= 1
    assert (drawn.min(0).values < -0.9).all() and (drawn.max(0).values > 0.9).all()
    many = images[:1].expand(6, -1, -1, -1)
    whole = augment.apply(many, drawn[:6])
    torch.testing.assert_close(
        torch.cat([augment.apply(many[:2], drawn[:2]), augment.apply(many[2:], drawn[2:6])]), whole
    )
    first = augment(many, torch.Generator().manual_seed(2))
    assert torch.equal(first, augment(many, torch.Generator().manual_seed(2)))
    assert not torch.equal(first[0], first[1])


def test_a_gradient_passes(images: Tensor) -> None:
    small = images[:, :1, :4, :4].clone().requires_grad_()
    (drawn,) = ImageAugmentation().draw(2, torch.Generator().manual_seed(3))
    augment = ImageAugmentation(shift=0.1)
    assert torch.autograd.gradcheck(lambda x: augment.apply(x, drawn.double()), (small,), fast_mode=True)


@pytest.mark.parametrize(
    ("setting", "value"), [("crop", 1.0), ("shift", -0.1), ("contrast", 1.0), ("rotation", 181.0), ("brightness", 3.0)]
)
def test_a_value_out_of_range_is_named(setting: str, value: float) -> None:
    with pytest.raises(UsageError, match=setting):
        ImageAugmentation(**{setting: value})  # type: ignore[arg-type]
