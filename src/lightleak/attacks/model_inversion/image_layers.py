"""What the image generator and the image critic are built of."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightleak.core.errors import UsageError

GROUP = 8  # channels normalised together


class ClassNorm(nn.Module):
    """Group normalisation whose scale and shift belong to the class.

    Statistics are those of one sample: batch normalisation would tie the samples of a batch together, so that a sample
    depended on its neighbours in training, and on the number of ranks.
    """

    def __init__(self, channels: int, n_classes: int) -> None:
        super().__init__()
        self.groups = max(1, channels // GROUP)
        self.scale = nn.Parameter(torch.ones(n_classes, channels))
        self.shift = nn.Parameter(torch.zeros(n_classes, channels))

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """``x [n, channels, h, w]`` of classes ``labels [n]``."""
        normal = F.group_norm(x, self.groups)
        return torch.addcmul(self.shift[labels, :, None, None], normal, self.scale[labels, :, None, None])


class UpBlock(nn.Module):
    """A residual block that doubles height and width, or keeps them."""

    def __init__(self, n_in: int, n_out: int, n_classes: int, factor: int) -> None:
        super().__init__()
        self.factor = factor
        self.norms = nn.ModuleList([ClassNorm(n_in, n_classes), ClassNorm(n_out, n_classes)])
        self.first = nn.Conv2d(n_in, n_out, 3, padding=1)
        self.second = nn.Conv2d(n_out, n_out, 3, padding=1)
        self.shortcut = nn.Conv2d(n_in, n_out, 1)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """``[n, n_in, h, w]`` to ``[n, n_out, factor h, factor w]``."""
        hidden = self._larger(F.relu(self.norms[0](x, labels)))
        hidden = self.second(F.relu(self.norms[1](self.first(hidden), labels)))
        # A 1x1 convolution and a repetition of pixels commute; this order is the cheaper one.
        return hidden + self._larger(self.shortcut(x))

    def _larger(self, x: Tensor) -> Tensor:
        return x if self.factor == 1 else F.interpolate(x, scale_factor=self.factor, mode="nearest")


class DownBlock(nn.Module):
    """A residual block that halves height and width, or keeps them, without any normalisation.

    The penalty of WGAN-GP is about the gradient at one sample, which normalisation over a batch would blur.
    """

    def __init__(self, n_in: int, n_out: int, factor: int) -> None:
        super().__init__()
        self.factor = factor
        self.first = nn.Conv2d(n_in, n_out, 3, padding=1)
        self.second = nn.Conv2d(n_out, n_out, 3, padding=1)
        self.shortcut = nn.Conv2d(n_in, n_out, 1)

    def forward(self, x: Tensor) -> Tensor:
        """``[n, n_in, h, w]`` to ``[n, n_out, h / factor, w / factor]``."""
        hidden = self.second(F.relu(self.first(F.relu(x))))
        return self._smaller(hidden) + self.shortcut(self._smaller(x))

    def _smaller(self, x: Tensor) -> Tensor:
        return x if self.factor == 1 else F.avg_pool2d(x, self.factor)


def smallest_side(shape: tuple[int, int, int], widths: tuple[int, ...]) -> tuple[int, int]:
    """Height and width after halving them once less often than there are widths.

    Raises:
        UsageError: they cannot be halved that often.

    >>> smallest_side((1, 8, 8), (64, 32, 32))
    (2, 2)
    """
    factor = 2 ** (len(widths) - 1)
    if not widths or any(side % factor for side in shape[1:]):
        raise UsageError(
            f"{len(widths)} widths halve an image {len(widths) - 1} times, which {shape[1]} x {shape[2]} pixels do not "
            "allow"
        )
    return shape[1] // factor, shape[2] // factor
