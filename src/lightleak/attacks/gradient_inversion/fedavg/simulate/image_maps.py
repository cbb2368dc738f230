"""The fixed linear maps between the layers of a convolutional chain: pooling, patches, and their transposes.

Values are ``[clients, rows * places, channels]``; images and patches are rearranged from there.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, fold, unfold


@dataclass(frozen=True)
class ImageMap:
    """Average pooling of what a layer gave, then the patches (or the flat image) that the next layer takes.

    Attributes:
        shape: channels, height and width of what comes in.
        pool: side of the pooling; 1 is none.
        kernel: side of the patches; None gives the flat image.
        padding: of the patches.
        flat_input: the rows come in flat, ``[clients, rows, c * h * w]``, as the encoded image itself does.
    """

    shape: tuple[int, int, int]
    pool: int = 1
    kernel: int | None = None
    padding: int = 0
    flat_input: bool = False

    @property
    def pooled(self) -> tuple[int, int, int]:
        """Channels, height and width after pooling."""
        channels, height, width = self.shape
        return channels, height // self.pool, width // self.pool

    def __call__(self, values: Tensor, rows: int) -> Tensor:
        """See `LinearMap`."""
        clients = values.shape[0]
        images = self._images(values)
        if self.pool > 1:
            images = avg_pool2d(images, self.pool)
        if self.kernel is None:
            return images.reshape(clients, rows, -1)
        patches = unfold(images, self.kernel, padding=self.padding)
        return patches.transpose(1, 2).reshape(clients, -1, patches.shape[1])

    def adjoint(self, values: Tensor, rows: int) -> Tensor:
        """See `LinearMap`."""
        clients, (channels, height, width) = values.shape[0], self.pooled
        if self.kernel is None:
            images = values.reshape(-1, channels, height, width)
        else:
            patches = values.reshape(clients * rows, -1, values.shape[-1]).transpose(1, 2)
            images = fold(patches, (height, width), self.kernel, padding=self.padding)
        if self.pool > 1:
            images = self._spread(images)
        if self.flat_input:
            return images.reshape(clients, rows, -1)
        return images.flatten(2).transpose(1, 2).reshape(clients, -1, channels)

    def _images(self, values: Tensor) -> Tensor:
        channels, height, width = self.shape
        if self.flat_input:
            return values.reshape(-1, channels, height, width)
        return values.reshape(-1, height * width, channels).transpose(1, 2).unflatten(2, (height, width))

    def _spread(self, images: Tensor) -> Tensor:
        """The transpose of average pooling; pixels that no window covers get nothing."""
        spread = (images / self.pool**2).repeat_interleave(self.pool, -1).repeat_interleave(self.pool, -2)
        if spread.shape[-2:] == self.shape[1:]:
            return spread
        whole = torch.zeros(*images.shape[:2], *self.shape[1:], dtype=images.dtype, device=images.device)
        whole[..., : spread.shape[-2], : spread.shape[-1]] = spread
        return whole
