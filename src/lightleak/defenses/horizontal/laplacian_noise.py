"""Laplacian noise on every entry of the gradient (Dimitrov et al. 2022, App. C.1, Table 6)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lightleak.core.facts import Facts
from lightleak.defenses.horizontal.defense import UPDATE_DEFENSES, UpdateDefense, check_number, with_draws
from lightleak.defenses.vertical.noise import laplace


@UPDATE_DEFENSES.register(
    "laplacian_noise",
    Facts(
        needs=("It gives no guarantee of differential privacy: nothing bounds what one row adds to a gradient.",),
    ),
)
@dataclass(frozen=True)
class LaplacianNoise(UpdateDefense):
    """Add Laplace noise of mean 0 to every entry, without clipping: no guarantee of differential privacy follows.

    What the paper's Table 6 calls σ is this scale in its code; the standard deviation is ``scale * sqrt(2)``.

    Attributes:
        scale: mean absolute value of the noise; 0 changes nothing.

    Raises:
        UsageError: a scale that is negative or not finite.
    """

    name: ClassVar[str] = "laplacian_noise"
    citation: ClassVar[str] = "Dimitrov et al., Data Leakage in Federated Averaging, TMLR 2022, App. C.1"
    varies: ClassVar[str | None] = "scale"

    scale: float = 0.01

    def __post_init__(self) -> None:
        check_number("laplacian_noise: scale", self.scale)

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """See `UpdateDefense.apply`."""
        if self.scale == 0:
            return dict(gradient)
        in_float32 = torch.empty(())
        return {
            name: g + laplace(g.shape, self.scale, in_float32, own).to(g)
            for name, g, own in with_draws(gradient, draws)
        }

    def describe(self) -> str:
        """See `HorizontalDefense.describe`."""
        return f"Laplacian noise of scale {self.scale:g}"
