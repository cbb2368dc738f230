"""A derivative for ReLU masks: forward they stay ``1[a > 0]``, backward they are logistics of a given width.

Autograd has the mask's derivative zero, yet the masks carry most of what a gradient says about its rows (Bengio et al.
2013 name the estimator).
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class StraightThrough:
    """Widths of the logistics, which narrow geometrically.

    Attributes:
        deviations: typical deviation of the pre-activations ``a_l`` of every hidden layer, ``[updates, layers]``.
        width: at the beginning, in these deviations.
        width_end: at the end.
        share: how much of the optimization is done, 0 to 1.
    """

    deviations: Tensor
    width: float
    width_end: float
    share: float = 0.0

    def at(self, share: float) -> "StraightThrough":
        """The same after that share of the optimization."""
        return replace(self, share=share)

    def repeated(self, copies: int) -> "StraightThrough":
        """The same where every update stands ``copies`` times in a row."""
        return replace(self, deviations=self.deviations.repeat_interleave(copies, 0))

    def slope(self, layer: int, preactivation: Tensor) -> Tensor:
        """Derivative of a hidden layer's mask by its pre-activation ``[updates, rows, out]``."""
        factor = self.width * (self.width_end / self.width) ** self.share
        width = (factor * self.deviations[:, layer]).clamp_min(torch.finfo(preactivation.dtype).tiny)[:, None, None]
        inside = torch.sigmoid(preactivation / width)
        return torch.addcmul(inside, inside, inside, value=-1).div_(width)
