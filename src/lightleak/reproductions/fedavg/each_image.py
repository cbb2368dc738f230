"""A defense of the gradient of every image, as the FedAvg paper's code has it, written as one of their mean."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lightleak.core.errors import UsageError
from lightleak.defenses.horizontal.defense import UpdateDefense


@dataclass(frozen=True)
class EachImage(UpdateDefense):
    """The mean of ``images`` independent applications of a defense.

    Noise that is added to the gradient of every image and then averaged is exactly this. Random pruning is not: there
    every image's own gradient is masked; what is masked here is their mean, with as many masks.

    Attributes:
        inner: the defense of one gradient.
        images: gradients in a mean.

    Raises:
        UsageError: fewer than one.
    """

    name: ClassVar[str] = "each_image"
    citation: ClassVar[str] = "Dimitrov et al., Data Leakage in Federated Averaging, TMLR 2022, App. C.1 (its code)"

    inner: UpdateDefense
    images: int

    def __post_init__(self) -> None:
        if self.images < 1:
            raise UsageError(f"each_image: images must be at least 1, got {self.images}")

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """See `UpdateDefense.apply`."""
        found = [self.inner.apply(gradient, draws) for _ in range(self.images)]
        return {name: torch.stack([one[name] for one in found]).mean(0) for name in gradient}

    @property
    def strength(self) -> float | None:
        """That of the inner defense."""
        return self.inner.strength

    def describe(self) -> str:
        """See `UpdateDefense.describe`."""
        return f"{self.inner.describe()}, on the gradient of each image ({self.images} per step)"
