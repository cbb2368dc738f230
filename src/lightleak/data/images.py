"""Images with classes, and the split of thesis Sec. 4.4.1: some classes are private, all others public."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lightleak.core.errors import DataError
from lightleak.core.seeds import generator

TEST_FRACTION = 0.1
"""Share of the private images held out of the training (thesis Sec. 4.4.1)."""


@dataclass(frozen=True)
class LabeledImages:
    """Images of one size, stored as bytes: 200,000 faces of 64 x 64 take 2.5 GB, as float32 10 GB.

    Attributes:
        pixels: uint8 ``[n, c, h, w]``, 0 is black.
        labels: LongTensor ``[n]``, class of each.
        names: name of each class.

    Raises:
        DataError: on construction, when shapes or values do not fit.
    """

    pixels: Tensor
    labels: Tensor
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.pixels.ndim != 4 or self.pixels.dtype != torch.uint8:
            raise DataError(f"pixels must be uint8 [n, c, h, w], got {self.pixels.dtype} {list(self.pixels.shape)}")
        if self.labels.shape != (len(self.pixels),):
            raise DataError(f"labels must be one per image ([{len(self.pixels)}]), got {list(self.labels.shape)}")
        if len(self.labels) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.names):
            raise DataError(f"labels must be from 0 to {len(self.names) - 1}, got {self.labels.unique().tolist()[-5:]}")

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def images(self) -> Tensor:
        """float32 ``[n, c, h, w]`` in [-1, 1]."""
        return from_pixels(self.pixels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        channels, height, width = self.pixels.shape[1:]
        return channels, height, width

    def take(self, index: Tensor) -> "LabeledImages":
        """The images at those positions, or where a mask is true."""
        return LabeledImages(self.pixels[index], self.labels[index], self.names)


@dataclass(frozen=True)
class ImageTask:
    """What is private and what is public.

    Attributes:
        name: of the dataset.
        private_train: images that targets are trained on; labels count the private classes from 0.
        private_test: images of the same classes that are held out.
        public: images of other classes; the attacker holds them without their labels.
    """

    name: str
    private_train: LabeledImages
    private_test: LabeledImages
    public: LabeledImages

    @property
    def n_classes(self) -> int:
        """Private classes."""
        return len(self.private_train.names)


def from_pixels(pixels: Tensor) -> Tensor:
    """Bytes to float32 in [-1, 1].

    >>> from_pixels(torch.tensor([0, 255], dtype=torch.uint8))
    tensor([-1.,  1.])
    """
    return pixels.float() / 127.5 - 1.0


def to_pixels(images: Tensor) -> Tensor:
    """Floats in [-1, 1] to bytes; the inverse of `from_pixels`, values outside are cut.

    >>> to_pixels(torch.tensor([-1.0, 0.0, 3.0]))
    tensor([  0, 128, 255], dtype=torch.uint8)
    """
    return ((images + 1.0) * 127.5).round().clamp(0, 255).to(torch.uint8)


def load_digits_images() -> LabeledImages:
    """The 1,797 handwritten digits in scikit-learn: ``[1797, 1, 8, 8]``, 17 levels of gray."""
    from sklearn.datasets import load_digits

    found = load_digits()
    pixels = np.rint(found.images * (255 / 16)).astype(np.uint8)
    names = tuple(str(name) for name in found.target_names)
    return LabeledImages(torch.from_numpy(pixels).unsqueeze(1), torch.from_numpy(found.target).long(), names)


def split_by_class(
    name: str,
    images: LabeledImages,
    private: Sequence[int],
    test_fraction: float = TEST_FRACTION,
    seed: int = 0,
) -> ImageTask:
    """Private classes, divided into training and held-out images class by class, and the public rest.

    Args:
        name: of the dataset.
        images: all images.
        private: classes that become private, in the order of their new labels.
        test_fraction: share of each private class held out, rounded; a class keeps at least one training image.
        seed: root of the division.

    Raises:
        DataError: a class that is not there or has no image, no class left for the public, or a share out of range.
    """
    if not 0 < test_fraction < 1:
        raise DataError(f"test_fraction must be above 0 and below 1, got {test_fraction}")
    wanted = torch.tensor(list(private), dtype=torch.long)
    count = torch.bincount(images.labels, minlength=len(images.names))
    known = len(wanted) > 0 and 0 <= int(wanted.min()) <= int(wanted.max()) < len(images.names)
    if not known or len(wanted.unique()) != len(wanted) or not bool(count[wanted].all()):
        raise DataError(f"private classes of {name!r} must be distinct and have images, got {list(private)[:10]}")
    renamed = torch.full((len(images.names),), -1)
    renamed[wanted] = torch.arange(len(wanted))
    own = renamed[images.labels]
    if bool((own >= 0).all()):
        raise DataError(f"no image of {name!r} is left for the public; make fewer classes private")
    out = _held_out(own, len(wanted), test_fraction, seed)
    names = tuple(images.names[index] for index in wanted.tolist())

    def part(mask: Tensor) -> LabeledImages:
        return LabeledImages(images.pixels[mask], own[mask], names)

    return ImageTask(name, part((own >= 0) & ~out), part(out), images.take(own < 0))


def _held_out(labels: Tensor, n_classes: int, fraction: float, seed: int) -> Tensor:
    """Mask of held-out images; labels below 0 belong to no class."""
    order = torch.randperm(len(labels), generator=generator(seed, "image split"))
    order = order[labels[order] >= 0]
    order = order[labels[order].argsort(stable=True)]
    count = torch.bincount(labels[order], minlength=n_classes)
    out = (count * fraction).round().long().minimum(count - 1)
    rank = torch.arange(len(order)) - (count.cumsum(0) - count)[labels[order]]
    mask = torch.zeros(len(labels), dtype=torch.bool)
    mask[order[rank < out[labels[order]]]] = True
    return mask
