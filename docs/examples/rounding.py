"""A defense in one file: every entry of the gradient is rounded to a multiple of a step."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lightleak.core.bounds import bounded
from lightleak.core.facts import Facts
from lightleak.defenses.horizontal.defense import UPDATE_DEFENSES, UpdateDefense


@UPDATE_DEFENSES.register("rounding", Facts(needs=("It gives no guarantee.",)))
@dataclass(frozen=True)
class Rounding(UpdateDefense):
    """Round every entry to the nearest multiple of a step.

    Attributes:
        step: distance between neighboring values.
    """

    name: ClassVar[str] = "rounding"
    citation: ClassVar[str] = "LightLeak's documentation"
    words: ClassVar[str] = "rounding to multiples of {step:g}"  # one line with the strength
    varies: ClassVar[str | None] = "step"  # what a curve of leakage against accuracy varies

    step: float = bounded(0.001, gt=0)

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """What leaves the client; a random defense takes its randomness from `draws`."""
        return {name: (g / self.step).round() * self.step for name, g in gradient.items()}
