"""Settings of the exact inversion of weight updates."""

from dataclasses import dataclass, field
from typing import ClassVar

from lightleak.attacks.gradient_inversion.exact.config import ExactSettings
from lightleak.attacks.gradient_inversion.exact.enumerate.enumeration import EnumerationLimits


@dataclass(frozen=True)
class ExactFedAvgConfig(ExactSettings):
    """How much work is done before it gives up, and what it may know.

    Attributes:
        half_sums: see `EnumerationLimits`.
        pairs: likewise.
        hits: likewise.
        restarts: fits of all layers, where the exact tests leave rows open.
        steps: of the continuous stage of a fit.

    Raises:
        UsageError: a value of the wrong type or out of range.
    """

    owner: ClassVar[str] = "exact_fedavg"

    half_sums: int = 200_000
    pairs: int = 40_000_000
    hits: int = 400_000
    restarts: int = 3
    steps: int = 2000
    limits: EnumerationLimits = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "half_sums", "pairs", "hits", "restarts", "steps")
        object.__setattr__(self, "limits", EnumerationLimits(self.half_sums, self.pairs, self.hits))
