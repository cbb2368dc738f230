"""Wilson's interval of a share, for tensors of counts."""

import torch
from torch import Tensor

from lightleak.attacks.property_inference.calibration import Z95


def wilson_interval(right: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """95% interval of ``right / total`` (Wilson 1927), for independent trials; it stays within [0, 1].

    Args:
        right: counts of any shape.
        total: trials, of the same shape.

    Returns:
        Lower and upper ends, float64 of that shape; NaN where nothing was tried.

    >>> low, high = wilson_interval(torch.tensor(8), torch.tensor(10))
    >>> round(float(low), 3), round(float(high), 3)
    (0.49, 0.943)
    """
    n = total.double()
    share = right.double() / n
    shrink = 1 + Z95**2 / n
    middle = (share + Z95**2 / (2 * n)) / shrink
    half = Z95 * torch.sqrt(share * (1 - share) / n + Z95**2 / (4 * n**2)) / shrink
    return (middle - half).clamp(min=0), (middle + half).clamp(max=1)
