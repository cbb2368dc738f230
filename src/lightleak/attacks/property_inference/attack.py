"""What every property inference attack looks like from outside."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch

from lightleak.core.intermediate_results import VISIBLE, IntermediateResults
from lightleak.core.property_estimate import PropertyEstimate
from lightleak.core.registry import Registry


class PropertyAttack(ABC):
    """An attack on intermediate results: ``run(observation) -> PropertyEstimate``. It never sees the private columns.

    Attributes:
        name: registry name.
        citation: the paper.
    """

    name: str
    citation: str

    @abstractmethod
    def check(self, observation: IntermediateResults) -> None:
        """Raise `ObservationError` or `UnsupportedError` before any work where the observation cannot be served."""

    @abstractmethod
    def run(
        self, observation: IntermediateResults, seed: int = 0, device: torch.device | str = "cpu"
    ) -> PropertyEstimate:
        """Estimate the fraction of records with the property; the same observation and seed give the same estimate.

        Raises:
            ObservationError: see `check`.
        """

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """The settings that produced the estimate, JSON-ready."""


SEES = (
    "One party of a vertical training that follows the protocol. About every record it reads the intermediate results "
    f"that its role sees: C1, the active party, which has the labels, {', '.join(VISIBLE['C1'])}; C2, a passive one, "
    f"{', '.join(VISIBLE['C2'])}. It knows of some auxiliary records whether they have the property, and never sees "
    "the other party's columns."
)
"""The threat model of all of them but ProVFL-M, which does not follow the protocol."""

PROPERTY_ATTACKS: Registry[Callable[..., PropertyAttack]] = Registry("property inference attack")
"""Attack factories by name; called with the settings to change."""
