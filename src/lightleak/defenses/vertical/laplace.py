"""D1: Laplace noise on the gradients that come back to the parties (ProVFL, Sec. VII-A)."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lightleak.core.bounds import bounded
from lightleak.defenses.draws import laplace, of_this_process
from lightleak.defenses.vertical.defense import VERTICAL_DEFENSES, VerticalDefense
from lightleak.targets.split import Transform


@VERTICAL_DEFENSES.register("laplace")
@dataclass(frozen=True)
class LaplaceDefense(VerticalDefense):
    """Add Laplace noise of mean 0 to every element of every gradient that is sent back.

    It protects what the parties receive. The active party computes the gradients and sees them without noise.

    Table XVI prints the scales as 10e-3, 10e-2 and 10e-1; ProVFL's script runs 0.001, 0.01 and 0.1.

    Attributes:
        scale: Laplace scale, the mean absolute value of the noise, in units of the gradient of the batch's mean loss.

    Raises:
        UsageError: the scale is not above 0.

    Needs:
        * It protects from passive parties: the active one computes the gradients and sees them without noise.

    Deviates:
        * Scales are those of ProVFL's script (0.001, 0.01, 0.1); its Table XVI prints ten times as much.
    """

    name = "laplace"
    citation = "Bai et al., ProVFL, IEEE TIFS 2025, Sec. VII-A"
    words = "Laplace noise of scale {scale:g} on gradients"
    varies = "scale"

    scale: float = bounded(0.01, gt=0)

    def transform(self, seed: int) -> Transform:
        """See `VerticalDefense`."""
        return LaplaceTransform(self.scale, seed)


class LaplaceTransform(Transform):
    """Adds the noise of one training."""

    def __init__(self, scale: float, seed: int) -> None:
        self.scale = scale
        self.seed = seed

    @cached_property
    def draws(self) -> torch.Generator:
        """Made at the first draw, when the rank of this process is known."""
        return of_this_process(self.seed, "defense", LaplaceDefense.name)

    def gradients(self, gradients: Tensor, outputs: Tensor) -> Tensor:
        """Gradients ``[parties, batch, width]`` with noise."""
        return gradients + laplace(gradients.shape, self.scale, gradients, self.draws)
