"""Gaussian noise on every entry of the gradient (TabLeak Table 6; Dimitrov et al. 2022, App. C.1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lightleak.core.facts import Facts
from lightleak.defenses.horizontal.defense import UPDATE_DEFENSES, UpdateDefense, check_number, with_draws


@UPDATE_DEFENSES.register(
    "gaussian_noise",
    Facts(
        needs=("It gives no guarantee of differential privacy: nothing bounds what one row adds to a gradient.",),
    ),
)
@dataclass(frozen=True)
class GaussianNoise(UpdateDefense):
    """Add ``scale * N(0, 1)`` to every entry, without clipping: no guarantee of differential privacy follows.

    Attributes:
        scale: standard deviation of the noise; 0 changes nothing.

    Raises:
        UsageError: a scale that is negative or not finite.
    """

    name: ClassVar[str] = "gaussian_noise"
    citation: ClassVar[str] = "Vero et al., TabLeak: Tabular Data Leakage in Federated Learning, ICML 2023, Table 6"
    varies: ClassVar[str | None] = "scale"

    scale: float = 0.01

    def __post_init__(self) -> None:
        check_number("gaussian_noise: scale", self.scale)

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """See `UpdateDefense.apply`."""
        if self.scale == 0:
            return dict(gradient)
        return {
            name: g + self.scale * torch.randn(g.shape, generator=own).to(g)
            for name, g, own in with_draws(gradient, draws)
        }

    def describe(self) -> str:
        """See `HorizontalDefense.describe`."""
        return f"Gaussian noise of scale {self.scale:g}"
