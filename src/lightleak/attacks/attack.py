"""What every record-level attack looks like from outside."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch

from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.registry import Registry
from lightleak.core.threat_model import ThreatModel

Progress = Callable[[float], None]
"""Called with the fraction of one update's work done since the last call."""


class UpdateAttack(ABC):
    """An attack on client updates: ``run(update) -> Reconstruction``. It never sees the private data.

    Attributes:
        name: registry name.
        citation: the paper.
        threat_model: what the attack is allowed to know.
    """

    name: str
    citation: str
    threat_model: ThreatModel

    @abstractmethod
    def check(self, update: ClientUpdate) -> None:
        """Raise `ObservationError` or `UnsupportedError` before any work where the update cannot be served."""

    @abstractmethod
    def run_many(
        self,
        updates: Sequence[ClientUpdate],
        seeds: Sequence[int],
        device: torch.device | str = "cpu",
        progress: Progress | None = None,
    ) -> list[Reconstruction]:
        """Attack several updates, in one go where they are alike and the attack can.

        A result depends on its update and its seed alone, not on the others.

        Args:
            updates: what to attack.
            seeds: one root of random streams per update.
            device: where to work.
            progress: told about the work done; the fractions sum to the number of updates.

        Returns:
            One reconstruction per update, in their order.

        Raises:
            ObservationError: see `check`; before any work on any of them.
            UnsupportedError: likewise.
        """

    def run(self, update: ClientUpdate, seed: int = 0, device: torch.device | str = "cpu") -> Reconstruction:
        """Attack one update; see `run_many`."""
        return self.run_many([update], [seed], device)[0]

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """The settings that produced the results, JSON-ready."""


ATTACKS: Registry[Callable[..., UpdateAttack]] = Registry("attack")
"""Attack factories by name; called with the settings to change."""
