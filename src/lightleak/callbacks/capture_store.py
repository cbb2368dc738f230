"""Captures on disk: one folder each, readable by its owner only, complete or absent."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from lightleak.core.errors import UsageError
from lightleak.core.observations import ClientUpdate, GroundTruth
from lightleak.core.stored import FILE_MODE, FOLDER_MODE
from lightleak.protocols.recorded_aggregate import load_truth


@dataclass(frozen=True)
class Capture:
    """An update at one optimiser step or in one round, and the private rows behind it.

    Attributes:
        update: the observation.
        truth: a `RecordedBatch` (FedSGD), `RecordedClient` or `RecordedAggregate` (FedAvg).
        rank: the client: the process that computed the update, or its number in the federation; of an aggregate its
            group.
    """

    update: ClientUpdate
    truth: GroundTruth
    rank: int = 0

    @property
    def name(self) -> str:
        """Name of its folder: epoch, step (both 0-based) and rank."""
        return _name(self.update, self.rank)

    def save(self, root: Path) -> Path:
        """Write ``observation/`` and ``truth/`` into the folder ``root / name``, in place of an earlier one.

        Returns:
            The folder.
        """
        return save_capture(root, self.update, self.truth, self.rank)

    @classmethod
    def load(cls, folder: Path) -> "Capture":
        """Read what `save` wrote.

        Raises:
            ObservationError: a file is missing or damaged.
        """
        rank = folder.name.rpartition("-r")[2]
        update, truth = ClientUpdate.load(folder / "observation"), load_truth(folder / "truth")
        return cls(update, truth, int(rank) if rank.isdigit() else 0)


def save_capture(root: Path, update: ClientUpdate, truth: GroundTruth | None = None, rank: int = 0) -> Path:
    """Write a capture's folder below ``root``, in place of an earlier one; without ``truth`` where nobody knows it.

    Args:
        root: created, readable by its owner only.
        update: the observation.
        truth: the private rows behind it.
        rank: number of the client.

    Returns:
        The folder.
    """
    root.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    folder = root / _name(update, rank)
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(mode=FOLDER_MODE)
    if truth is not None:
        _save_privately(truth, folder / "truth")
    # The observation comes last and under its name only when whole: an interrupted save leaves no capture.
    _save_privately(update, folder / "observation.partial")
    (folder / "observation.partial").rename(folder / "observation")
    return folder


def list_captures(root: Path) -> list[Path]:
    """Folders of the captures under ``root``, in the order of epoch, step and rank.

    Raises:
        UsageError: there is no such folder.
    """
    if not root.is_dir():
        raise UsageError(f"captures must be a folder, got {str(root)!r}")
    return sorted((path.parent for path in root.glob("*/observation")), key=_order)


def _name(update: ClientUpdate, rank: int) -> str:
    return f"e{update.facts.epoch:03d}-s{update.facts.step:06d}-r{rank}"


def _save_privately(part: ClientUpdate | GroundTruth, folder: Path) -> None:
    folder.mkdir(mode=FOLDER_MODE)
    part.save(folder)
    for path in folder.rglob("*"):
        path.chmod(FOLDER_MODE if path.is_dir() else FILE_MODE)


def _order(folder: Path) -> tuple[list[int], str]:
    parts = folder.name.split("-")
    return [int(part[1:]) for part in parts if part[1:].isdigit()], folder.name
