"""Clipping of the whole gradient by its norm (Abadi et al. 2016 clip so row by row; here it is the sent gradient)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lightleak.core.facts import Facts
from lightleak.defenses.horizontal.defense import UPDATE_DEFENSES, UpdateDefense, check_number


@UPDATE_DEFENSES.register(
    "clipping",
    Facts(
        needs=("It protects nothing from an attack that compares directions.",),
        deviates=(
            "Abadi et al. clip the gradient of every row (`dp_sgd`); here the gradient that is sent is clipped.",
        ),
    ),
)
@dataclass(frozen=True)
class Clipping(UpdateDefense):
    """Scale the gradient down to a norm where it is longer: ``g * min(1, max_norm / ||g||)``.

    One factor for all tensors, so the direction stays: a loss that compares directions sees no difference.

    Attributes:
        max_norm: largest Euclidean norm of all entries together.

    Raises:
        UsageError: a norm that is not above 0 or not finite.
    """

    name: ClassVar[str] = "clipping"
    citation: ClassVar[str] = "Abadi et al., Deep Learning with Differential Privacy, CCS 2016, Sec. 3.1"
    varies: ClassVar[str | None] = "max_norm"

    max_norm: float = 1.0

    def __post_init__(self) -> None:
        check_number("clipping: max_norm", self.max_norm, above_low=True)

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """See `UpdateDefense.apply`."""
        norms = [torch.linalg.vector_norm(g.to(torch.promote_types(g.dtype, torch.float32))) for g in gradient.values()]
        norm = torch.linalg.vector_norm(torch.stack([part.to(norms[0]) for part in norms]))
        factor = (self.max_norm / norm).clamp(max=1)
        return {name: g * factor.to(g) for name, g in gradient.items()}

    def describe(self) -> str:
        """See `HorizontalDefense.describe`."""
        return f"clipping to norm {self.max_norm:g}"
