"""Random changes of images before the target sees them (f_aug of thesis Algorithms 2 and 3)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from lightleak.attacks.settings import AttackSettings
from lightleak.core.bounds import bounded

DRAWS = 7  # numbers per image: crop, angle, two shifts, brightness, contrast, mirror


@dataclass(frozen=True)
class ImageAugmentation(AttackSettings):
    """Small crops, rotations, shifts and changes of color, differentiable by the image.

    Defaults are those of PLG-MI's published code but for the mirror, which turns no digit into itself: an area of 80%
    to 100%, 5 degrees, brightness and contrast changed by up to a fifth.

    Attributes:
        crop: largest share of a side that a crop leaves out; what is left is enlarged.
        rotation: largest angle, in degrees.
        shift: largest shift along each side, as a share of it.
        brightness: largest change added to all pixels, which are in [-1, 1].
        contrast: largest share by which differences from the image's mean grow or shrink.
        mirror: turn half of the images round from left to right.

    Raises:
        UsageError: on construction, for a value out of range.

    >>> still = ImageAugmentation(0, 0, 0, 0, 0)
    >>> image = torch.rand(2, 3, 8, 8)
    >>> torch.allclose(still(image, torch.Generator()), image, atol=1e-5)
    True
    """

    owner: ClassVar[str] = "the augmentation of images"

    crop: float = bounded(1.0 - math.sqrt(0.8), ge=0, lt=1)
    rotation: float = bounded(5.0, ge=0, le=180)
    shift: float = bounded(0.0, ge=0, lt=1)
    brightness: float = bounded(0.2, ge=0, le=2)
    contrast: float = bounded(0.2, ge=0, lt=1)
    mirror: bool = False

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """`apply` what is drawn for ``images [n, c, h, w]``."""
        return self.apply(images, *self.draw(len(images), generator))

    def draw(self, n: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Uniform numbers in [-1, 1], ``[n, 7]``."""
        return (torch.rand(n, DRAWS, generator=generator, device=generator.device) * 2.0 - 1.0,)

    def apply(self, images: Tensor, *drawn: Tensor) -> Tensor:
        """The changed images; pixels from beyond the border are those of the border."""
        (numbers,) = (each.to(images) for each in drawn)
        crop, angle, right, down, brightness, contrast, mirror = numbers.unbind(1)
        side = 1.0 - self.crop * (crop + 1.0) / 2.0
        cosine, sine = (side * wave(angle * math.radians(self.rotation)) for wave in (torch.cos, torch.sin))
        turn = torch.where(mirror > 0, -1.0, 1.0) if self.mirror else torch.ones_like(side)
        # grid_sample counts from -1 to 1, so that a share of a side is twice as much; a crop may lie anywhere inside.
        offset = 2.0 * self.shift + (1.0 - side)
        rows = [
            torch.stack([turn * cosine, -sine, right * offset], 1),
            torch.stack([turn * sine, cosine, down * offset], 1),
        ]
        grid = F.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
        moved = F.grid_sample(images, grid, padding_mode="border", align_corners=False)
        mean = moved.mean((1, 2, 3), keepdim=True)
        spread = _as_images(1.0 + self.contrast * contrast)
        return mean + (moved - mean) * spread + _as_images(self.brightness * brightness)


def _as_images(value: Tensor) -> Tensor:
    return value.view(-1, 1, 1, 1)
