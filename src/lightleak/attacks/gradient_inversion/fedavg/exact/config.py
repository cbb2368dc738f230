"""Settings of the exact inversion of weight updates."""

from dataclasses import dataclass, replace
from math import ceil
from typing import ClassVar

from lightleak.attacks.gradient_inversion.exact.config import ExactSettings
from lightleak.attacks.gradient_inversion.exact.enumerate.enumeration import EnumerationLimits
from lightleak.attacks.gradient_inversion.joint.config import JointConfig
from lightleak.core.bounds import bounded


@dataclass(frozen=True)
class ExactFedAvgConfig(ExactSettings):
    """How much work is done before it gives up, and what it may know.

    Attributes:
        half_sums: see `EnumerationLimits`.
        pairs: likewise.
        hits: likewise.
        restarts: fits of all layers, where the exact tests leave rows open.
        steps: of the continuous stage of a fit. Where all layers are fitted under an error (`halfway`), `exact_joint`'s
            search has ``restarts`` starts, and the steps of its stages are scaled by ``steps`` over its default.

    Raises:
        UsageError: a value of the wrong type or out of range.
    """

    owner: ClassVar[str] = "exact_fedavg"

    half_sums: int = bounded(200_000, ge=1)
    pairs: int = bounded(40_000_000, ge=1)
    hits: int = bounded(400_000, ge=1)
    restarts: int = bounded(3, ge=1)
    steps: int = bounded(2000, ge=1)

    @property
    def limits(self) -> EnumerationLimits:
        """Limits of the enumeration."""
        return EnumerationLimits(self.half_sums, self.pairs, self.hits)

    def joint(self) -> JointConfig:
        """The settings of a search under an error, see ``steps``."""
        whole, part = JointConfig(prior=self.prior), self.steps / ExactFedAvgConfig.steps
        steps = {
            name: ceil(part * getattr(whole, name)) for name in ("noised_steps", "noised_round_steps", "round_steps")
        }
        return replace(whole, noised_restarts=self.restarts, **steps)
