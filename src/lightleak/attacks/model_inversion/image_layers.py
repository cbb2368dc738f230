"""What the image generator and the image critic share."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightleak.core.errors import UsageError

GROUP = 8  # channels normalized together


class ClassNorm(nn.Module):
    """Group normalization whose scale and shift belong to the class.

    Statistics are those of one sample: batch normalization would tie the samples of a batch together, so that a sample
    depended on its neighbors in training, and on the number of ranks.
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


def smallest_side(shape: tuple[int, int, int], halvings: int) -> tuple[int, int]:
    """Height and width after so many halvings.

    Raises:
        UsageError: they cannot be halved that often.

    >>> smallest_side((1, 8, 8), 2)
    (2, 2)
    """
    factor = 2**halvings
    if any(side % factor for side in shape[1:]):
        raise UsageError(f"{shape[1]} x {shape[2]} pixels cannot be halved {halvings} times; give fewer widths")
    return shape[1] // factor, shape[2] // factor
