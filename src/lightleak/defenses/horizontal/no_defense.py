"""The reference that every defense is compared with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lightleak.core.facts import Facts
from lightleak.defenses.horizontal.defense import UPDATE_DEFENSES, UpdateDefense


@UPDATE_DEFENSES.register(
    "none",
    Facts(
        deviates=("It is no defense: the reference that every defense is compared with.",),
    ),
)
@dataclass(frozen=True)
class NoDefense(UpdateDefense):
    """Nothing is changed."""

    name: ClassVar[str] = "none"
    citation: ClassVar[str] = ""

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """See `UpdateDefense.apply`."""
        return dict(gradient)

    def describe(self) -> str:
        """See `HorizontalDefense.describe`."""
        return "no defense"
