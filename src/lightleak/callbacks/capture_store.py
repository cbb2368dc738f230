"""Captures on disk: one folder each, readable by its owner only, complete or absent."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from lightleak.core.arguments import require_kind, require_path, whole_number
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.private_files import private_files
from lightleak.core.stored import DAMAGED, is_tensor_file
from lightleak.data.encoder import TableEncoder
from lightleak.data.image_scale import ImageScale, is_image_state
from lightleak.data.marginals import Marginals
from lightleak.protocols.records import load_truth
from lightleak.targets.spec import NetworkSpec


@dataclass(frozen=True)
class Capture:
    """An update at one optimizer step or in one round, and the private rows behind it.

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

    def save(self, root: Path | str) -> Path:
        """Write ``observation/`` and ``truth/`` into the folder ``root / name``, in place of an earlier one.

        Returns:
            The folder.
        """
        return save_capture(root, self.update, self.truth, self.rank)

    @classmethod
    def load(cls, folder: Path | str) -> "Capture":
        """Read what `save` wrote.

        Raises:
            ObservationError: a file is missing or damaged.
        """
        folder = require_path("folder", folder)
        rank = folder.name.rpartition("-r")[2]
        update, truth = load_update(folder), load_truth(folder / "truth")
        return cls(update, truth, int(rank) if rank.isdigit() else 0)


def destination(root: Path | str | None, keep: bool) -> Path | None:
    """Return the folder for captures, None where they are kept in memory alone.

    Raises:
        UsageError: they would be neither written nor kept, or no folder can be written there.
    """
    if root is None:
        if not keep:
            raise UsageError("captures would be lost: give a folder (root=...) or keep them in memory (keep=True)")
        return None
    root = require_path("root", root)
    existing = next(path for path in (root, *root.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        what = "cannot be written" if existing.is_dir() else "is a file"
        raise UsageError(f"root must be a folder for captures, got {str(root)!r}; {str(existing)!r} {what}")
    return root


def require_unused(root: Path | None) -> None:
    """Refuse a folder with captures of an earlier training: those of another one would be mixed with them.

    Raises:
        UsageError: the folder holds captures.
    """
    found = [folder.name for folder in list_captures(root)] if root is not None and root.is_dir() else []
    if found:
        raise UsageError(
            f"root must hold no captures when a recording begins; {str(root)!r} has {len(found)} of an earlier "
            f"training ({found[0]} to {found[-1]}): choose another folder, or overwrite=True"
        )


def load_update(folder: Path) -> ClientUpdate:
    """Read the observation of a capture, and check what it says of network, columns and marginals.

    Raises:
        ObservationError: a file is missing or damaged, or a part is not of its type, or does not fit the others.
    """
    update = ClientUpdate.load(folder / "observation")
    try:
        spec = NetworkSpec.from_dict(update.network)
        if is_image_state(update.encoder):
            ImageScale.from_state(update.encoder)
            return update
        encoder = TableEncoder.of(update)
        if spec.layout != encoder.layout:
            raise ObservationError("the columns of the network (layout) are not those of the encoder (schema)")
        if update.marginals is not None:
            Marginals.from_dict(update.marginals).require(encoder.schema)
    except UsageError as error:
        raise ObservationError(f"{folder / 'observation' / 'facts.json'}: {error}") from error
    return update


def save_capture(root: Path | str, update: ClientUpdate, truth: GroundTruth | None = None, rank: int = 0) -> Path:
    """Write a capture's folder below ``root``, in place of an earlier one; ``truth`` is optional.

    Args:
        root: created, readable by its owner only.
        update: the observation.
        truth: the private rows behind it.
        rank: number of the client.

    Returns:
        The folder.

    Raises:
        UsageError: an argument of the wrong type, or a step, epoch or rank that is no whole number.
    """
    root = require_path("root", root)
    require_kind("update", update, ClientUpdate, "a ClientUpdate")
    if truth is not None:
        require_kind(
            "truth", truth, GroundTruth, "a GroundTruth, such as ground_truth(update, PrivateRows(...)), or None"
        )
    with private_files():
        root.mkdir(parents=True, exist_ok=True)
        folder = root / _name(update, rank)
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        try:
            if truth is not None:
                truth.save(folder / "truth")
            # The observation comes last and under its name only when whole: an interrupted save leaves no capture.
            update.save(folder / "observation.partial")
            (folder / "observation.partial").rename(folder / "observation")
        except BaseException:  # private rows do not stay without the capture that they belong to
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return folder


def list_captures(root: Path | str) -> list[Path]:
    """Folders of the captures under ``root``, in the order of epoch, step and rank.

    Raises:
        UsageError: there is no such folder.
    """
    root = require_path("root", root)
    if not root.is_dir():
        raise UsageError(f"captures must be a folder, got {str(root)!r}")
    found = (path.parent for path in root.glob("*/observation"))
    return sorted((capture for capture in found if DAMAGED not in capture.name), key=_order)


def is_whole(capture: Path) -> bool:
    """Whether no file in a capture's folder is truncated, for any kind of audit; contents are not checked."""
    try:
        tensors = all(is_tensor_file(file) for file in capture.rglob("*.safetensors"))
        facts = all(isinstance(json.loads(file.read_text()), dict) for file in capture.rglob("facts.json"))
        tables = all(file.read_bytes().endswith(b"PAR1") for file in capture.rglob("*.parquet"))
        return tensors and facts and tables
    except FileNotFoundError:  # replaced by a process that trains
        return True
    except ValueError:
        return False


def redact_captures(root: Path) -> None:
    """Take the rows and the marginals, which list values of rows, out of all captures under ``root``.

    Captures that were damaged, and so set aside, are removed.

    What stays is the update, with the labels where the client shared them, and the encoder: schema, bounds of the
    numerical columns, means and standard deviations. No attack that needs marginals can be run on it any more.
    """
    for damaged in root.glob(f"*{DAMAGED}*"):
        shutil.rmtree(damaged)
    for folder in list_captures(root) if root.is_dir() else []:
        if (folder / "truth").is_dir():
            shutil.rmtree(folder / "truth")
        file = folder / "observation" / "facts.json"
        facts = json.loads(file.read_text())
        if facts.get("marginals") is not None:
            partial = file.with_name("facts.partial")
            with private_files():
                partial.write_text(json.dumps({**facts, "marginals": None}, indent=1))
            partial.replace(file)  # another process reads the old file or the new one


def _name(update: ClientUpdate, rank: int) -> str:
    # Part of a path: nothing but numbers.
    epoch, step = (whole_number(name, getattr(update.facts, name), least=0) for name in ("epoch", "step"))
    return f"e{epoch:03d}-s{step:06d}-r{whole_number('rank', rank, least=0)}"


def _order(folder: Path) -> tuple[list[int], str]:
    parts = folder.name.split("-")
    return [int(part[1:]) for part in parts if part[1:].isdigit()], folder.name
