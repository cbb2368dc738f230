"""Stochastic quantization of the gradient (QSGD, Alistarh et al. 2017)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lightleak.core.errors import UsageError
from lightleak.core.facts import Facts
from lightleak.defenses.horizontal.defense import UPDATE_DEFENSES, UpdateDefense, with_draws

MAX_BITS = 16
"""More change less than float32 rounds in a sum of a few hundred rows."""


@UPDATE_DEFENSES.register(
    "quantization",
    Facts(
        needs=("It gives no guarantee: the expectation of every entry is the entry.",),
        deviates=("Levels are shares of a tensor's largest entry; QSGD is defined with its Euclidean norm.",),
    ),
)
@dataclass(frozen=True)
class Quantization(UpdateDefense):
    """Round every entry at random to one of two neighboring levels, so that its expectation is the entry.

    Levels are ``k / s * max(|g|)`` with ``k`` from ``-s`` to ``s`` and ``s = 2 ** (bits - 1) - 1``, per tensor. QSGD is
    defined with the Euclidean norm in place of the largest entry, which needs more levels for the same variance.

    Attributes:
        bits: per entry, its sign among them; at least 2 (three levels) and at most `MAX_BITS`.

    Raises:
        UsageError: a number of bits out of range.
    """

    name: ClassVar[str] = "quantization"
    citation: ClassVar[str] = "Alistarh et al., QSGD, NeurIPS 2017"
    varies: ClassVar[str | None] = "bits"

    bits: int = 2

    def __post_init__(self) -> None:
        if isinstance(self.bits, bool) or not isinstance(self.bits, int) or not 2 <= self.bits <= MAX_BITS:
            raise UsageError(f"quantization: bits must be a whole number from 2 to {MAX_BITS}, got {self.bits!r}")

    def apply(self, gradient: Mapping[str, Tensor], draws: torch.Generator) -> dict[str, Tensor]:
        """See `UpdateDefense.apply`."""
        return {name: self._round(g, own) for name, g, own in with_draws(gradient, draws)}

    def _round(self, gradient: Tensor, draws: torch.Generator) -> Tensor:
        g = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
        step = g.abs().max() / (2 ** (self.bits - 1) - 1)
        # A tensor of zeros has no levels and stays.
        levels = g / torch.where(step > 0, step, 1.0)
        low = levels.floor()
        up = torch.rand(g.shape, generator=draws).to(g) < levels - low
        return ((low + up) * step).to(gradient.dtype)

    def describe(self) -> str:
        """See `HorizontalDefense.describe`."""
        return f"stochastic quantization to {self.bits} bits"
