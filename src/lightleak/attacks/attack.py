"""What every record-level attack looks like from outside."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import torch

from lightleak.core.observations import ClientUpdate, UpdateKind
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.registry import Registry
from lightleak.core.threat_model import Aim, ThreatModel

Progress = Callable[[float], None]
"""Called with the fraction of one update's work done since the last call."""


class PartOfWork:
    """Reports progress of a part of some work as progress of the whole.

    Args:
        progress: of the whole.
        part: share of the whole.

    Attributes:
        done: what has been reported.
    """

    def __init__(self, progress: Progress | None, part: float = 1.0) -> None:
        self.progress, self.part, self.done = progress, part, 0.0

    def __call__(self, fraction: float) -> None:
        """Report a fraction of the part."""
        self.done += fraction * self.part
        if self.progress is not None and fraction > 0:
            self.progress(fraction * self.part)


class UpdateAttack(ABC):
    """An attack on client updates: ``run(update) -> Reconstruction``. It never sees the private data.

    Attributes:
        name: registry name.
        citation: the paper.
        threat_model: what the attack is allowed to know.
        title: the field's name for it, for reports; empty where `name` says it.
        is_baseline: whether it guesses without reading the update, so that leakage is measured against it.
        aims: what it tests a training for; a baseline tests nothing.
        combines_releases: whether it uses all releases of an update that holds several (`ClientUpdate.releases`).
        packs_updates: whether one vectorized call on several updates costs less than a call for each. The methods
            about memory below are for these attacks; the defaults suit all others.
    """

    name: str
    citation: str
    threat_model: ThreatModel
    title: str = ""
    is_baseline: bool = False
    aims: ClassVar[tuple[Aim, ...]] = ("reconstruction", "attribute_inference")
    combines_releases: ClassVar[bool] = False
    packs_updates: ClassVar[bool] = False

    @abstractmethod
    def check(self, update: ClientUpdate) -> None:
        """Raise `ObservationError` or `UnsupportedError` before any work where the update cannot be served."""

    def check_device(self, device: torch.device) -> None:  # noqa: B027  most attacks run on every device
        """Raise `UnsupportedError` if the device lacks what the settings need."""

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
            progress: called with the fraction of work done since its last call; fractions sum to the number of updates.

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

    def label_stage(self, kind: UpdateKind) -> str | None:
        """Name of the stage that uses the labels of such updates, whose settings are an option of that name.

        None: the attack uses them itself, by its option ``labels`` if it has one.
        """
        return None

    def stepped(
        self, update: ClientUpdate, seed: int, device: torch.device
    ) -> tuple["UpdateAttack", ClientUpdate] | None:
        """Return the attack on this update whose ``steps`` take the time, and what it attacks; None where none does.

        A composed attack runs what comes before that attack.
        """
        return (self, update) if self.options().get("steps") else None

    def on_card(self, device: torch.device) -> Self:
        """This attack with a memory budget from the size of a GPU, not from what is free: its calls are cut alike."""
        return self

    def uncut(self, update: ClientUpdate, updates: int) -> Self:
        """This attack with a memory budget in which a call on so many updates like this one is one chunk."""
        return self

    def is_cut(self, update: ClientUpdate, device: torch.device) -> bool:
        """Whether a call on one update like this one is more than one chunk of work."""
        return False

    def updates_at_once(self, update: ClientUpdate, device: torch.device) -> int:
        """How many updates like this one a call takes without being cut into chunks."""
        return 1

    def memory(self, update: ClientUpdate, updates: int, device: torch.device) -> int | None:
        """Estimated bytes of a call on so many updates like this one; None where unknown."""
        return None


ATTACKS: Registry[Callable[..., UpdateAttack]] = Registry("attack")
"""Attack factories by name; called with the settings to change."""
