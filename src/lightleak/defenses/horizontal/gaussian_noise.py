"""Gaussian noise on every entry of the gradient (TabLeak Table 6; Dimitrov et al. 2022, App. C.1)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lightleak.core.errors import UsageError
from lightleak.defenses.horizontal.defense import UPDATE_DEFENSES, UpdateDefense


@UPDATE_DEFENSES.register("gaussian_noise")
@dataclass(frozen=True)
class GaussianNoise(UpdateDefense):
    """Add ``scale * N(0, 1)`` to every entry, without clipping: no guarantee of differential privacy follows.

    Attributes:
        scale: standard deviation of the noise; 0 leaves the gradient as it is.

    Raises:
        UsageError: a scale that is negative or not finite.
    """

    name: ClassVar[str] = "gaussian_noise"
    citation: ClassVar[str] = "Vero et al., TabLeak: Tabular Data Leakage in Federated Learning, ICML 2023, Table 6"

    scale: float = 0.01

    def __post_init__(self) -> None:
        if not (math.isfinite(self.scale) and self.scale >= 0):
            raise UsageError(f"gaussian_noise: scale must be finite and at least 0, got {self.scale!r}")

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """See `UpdateDefense.apply`."""
        if self.scale == 0:
            return dict(gradient)
        return {name: g + self.scale * torch.randn(g.shape, generator=draws).to(g) for name, g in gradient.items()}

    @property
    def strength(self) -> float:
        """The scale."""
        return self.scale

    def describe(self) -> str:
        """See `UpdateDefense.describe`."""
        return f"Gaussian noise of scale {self.scale:g}"
