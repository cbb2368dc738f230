"""Pixels as flat standardized rows: the encoder of a `ClientUpdate` of images."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from lightleak.core.errors import DataError, ObservationError, UsageError
from lightleak.data.images import LabeledImages
from lightleak.data.layout import EncodedLayout

KIND = "images"

Statistics = tuple[tuple[float, ...], tuple[float, ...]]

PUBLISHED_STATISTICS: Mapping[str, Statistics] = {
    "femnist": ((0.9642384386141873,), (0.15767843198426892,)),
    "mnist": ((0.1307,), (0.3081,)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
}
"""Mean and deviation per channel by which the FedAvg paper's code standardizes a dataset."""


@dataclass(frozen=True)
class ImageScale:
    """Shape of the images, and one mean and deviation per channel, by which flat rows are standardized.

    Attributes:
        shape: channels, height and width.
        mean: of the pixels in [0, 1], per channel.
        deviation: likewise.

    Raises:
        UsageError: on construction, when the parts do not fit each other.

    >>> scale = ImageScale((1, 1, 2), (0.5,), (0.25,))
    >>> scale.encode(torch.tensor([[[[0.5, 1.0]]]]))
    tensor([[0., 2.]])
    """

    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise UsageError(f"shape must be channels, height and width, got {list(self.shape)}")
        if len(self.mean) != self.shape[0] or len(self.deviation) != self.shape[0]:
            raise UsageError(
                f"one mean and one deviation per channel ({self.shape[0]}) are needed, got {len(self.mean)} and "
                f"{len(self.deviation)}"
            )
        if not bool(torch.tensor([self.mean, self.deviation]).isfinite().all()) or min(self.deviation) <= 0:
            raise UsageError(
                f"means must be finite and deviations above 0, got {list(self.mean)} and {list(self.deviation)}"
            )

    @classmethod
    def fit(cls, images: LabeledImages) -> "ImageScale":
        """Mean and deviation of these images, over all pixels of a channel.

        Raises:
            DataError: no image, or a channel of one value.
        """
        if not len(images):
            raise DataError("the scale of images needs at least one image, got none")
        deviation, mean = torch.std_mean(images.pixels.double() / 255, dim=(0, 2, 3), correction=0)
        if not bool((deviation > 0).all()):
            raise DataError(f"every channel needs pixels that differ, got the deviations {deviation.tolist()}")
        return cls(images.shape, tuple(mean.tolist()), tuple(deviation.tolist()))

    @property
    def width(self) -> int:
        """Pixels of a row, d."""
        return prod(self.shape)

    @property
    def layout(self) -> EncodedLayout:
        """The layout of a row, for the specification of a network."""
        return EncodedLayout.of_numerical(self.width)

    def encode(self, pixels: Tensor) -> Tensor:
        """Pixels in [0, 1], ``[..., c, h, w]``, to standardized rows ``[..., d]``.

        Raises:
            UsageError: images of another shape.
        """
        if tuple(pixels.shape[-3:]) != self.shape:
            raise UsageError(f"images must be [..., {', '.join(map(str, self.shape))}], got {list(pixels.shape)}")
        mean, deviation = self._per_channel(pixels)
        return ((pixels - mean) / deviation).flatten(-3)

    def decode(self, rows: Tensor) -> Tensor:
        """Rows ``[..., d]`` to pixels ``[..., c, h, w]``; what lies outside [0, 1] is cut.

        Raises:
            UsageError: rows of another width.
        """
        if not rows.ndim or rows.shape[-1] != self.width:
            raise UsageError(f"rows must be [..., {self.width}], got {list(rows.shape)}")
        mean, deviation = self._per_channel(rows)
        return (rows.unflatten(-1, self.shape) * deviation + mean).clamp(0, 1)

    def encoded_bounds(self) -> tuple[Tensor, Tensor]:
        """Encoded value of a pixel of 0 and of one of 1 at every position, float32 ``[d]`` each."""
        return self.encode(torch.zeros(self.shape)), self.encode(torch.ones(self.shape))

    def to_state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Facts (JSON-ready), and no tensors."""
        facts = {"shape": list(self.shape), "mean": list(self.mean), "deviation": list(self.deviation)}
        return {"kind": KIND, **facts}, {}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None) -> "ImageScale":
        """Inverse of `to_state`; ``tensors`` is there for the sake of `TableEncoder.from_state` and not read.

        Raises:
            ObservationError: the facts are not those of images, or one is missing or has no meaning.
        """
        if not is_image_state(state):
            raise ObservationError(f"the encoder of an observation of images needs 'kind': 'images', got {state}")
        try:
            channels, height, width = (int(size) for size in state["shape"])
            mean, deviation = (tuple(float(value) for value in state[name]) for name in ("mean", "deviation"))
            return cls((channels, height, width), mean, deviation)
        except (KeyError, TypeError, ValueError, UsageError) as error:
            raise ObservationError(f"the scale of an observation of images has no meaning: {error!r}") from error

    def _per_channel(self, like: Tensor) -> tuple[Tensor, Tensor]:
        mean, deviation = torch.tensor([self.mean, self.deviation], dtype=like.dtype, device=like.device)
        return mean.view(-1, 1, 1), deviation.view(-1, 1, 1)


def is_image_state(state: Mapping[str, Any]) -> bool:
    """Whether the encoder of an observation (`ClientUpdate.encoder`) is the scale of images."""
    return state.get("kind") == KIND
