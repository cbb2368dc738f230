"""Signs in place of values (signSGD, Bernstein et al. 2018), scaled per tensor (Karimireddy et al. 2019)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lightleak.core.facts import Facts
from lightleak.defenses.horizontal.defense import UPDATE_DEFENSES, UpdateDefense


@UPDATE_DEFENSES.register(
    "sign",
    Facts(
        needs=("It gives no guarantee.",),
        deviates=("Without the memory of errors of Karimireddy et al. (2019), whose scale per tensor it takes.",),
    ),
)
@dataclass(frozen=True)
class Sign(UpdateDefense):
    """Every tensor becomes ``mean(|g|) * sign(g)``: one bit per entry and one number per tensor.

    The scaled sign ``||g||_1 / d * sign(g)`` of Karimireddy et al. (2019), without their memory of errors; the scale
    keeps the learning rate of the undefended training usable. An entry of exactly 0 stays 0.
    """

    name: ClassVar[str] = "sign"
    citation: ClassVar[str] = (
        "Bernstein et al., signSGD, ICML 2018; scale: Karimireddy et al., Error Feedback Fixes SignSGD, ICML 2019"
    )

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """See `UpdateDefense.apply`."""
        return {name: g.sign() * g.abs().mean() for name, g in gradient.items()}

    def describe(self) -> str:
        """See `HorizontalDefense.describe`."""
        return "signs, scaled per tensor"
