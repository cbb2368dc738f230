"""The private rows of several FedAvg clients behind one aggregate, and the reading of any recorded truth."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from lightleak.core.errors import ObservationError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.stored import FOLDER_MODE
from lightleak.protocols.recorded_batch import FORWARD_FILE, RecordedBatch
from lightleak.protocols.recorded_client import CLIENT_FILE, RecordedClient


@dataclass(frozen=True)
class RecordedAggregate(GroundTruth):
    """The clients of an aggregate in its order; ``inputs`` and ``labels`` are theirs, client after client.

    Attributes:
        clients: at least one.
    """

    clients: tuple[RecordedClient, ...] = ()

    @classmethod
    def of(cls, clients: Sequence[RecordedClient]) -> "RecordedAggregate":
        """The clients' rows together; the loss is the mean over all rows."""
        inputs = torch.cat([client.inputs for client in clients])
        losses = [client.loss * len(client.inputs) for client in clients if client.loss is not None]
        loss = sum(losses) / len(inputs) if len(losses) == len(clients) else None
        return cls(inputs, torch.cat([client.labels for client in clients]), loss, tuple(clients))

    def save(self, folder: Path) -> None:
        """Write ``truth.safetensors``, which `GroundTruth.load` reads too, and a folder per client next to it."""
        super().save(folder)
        for position, client in enumerate(self.clients):
            own = folder / f"{_CLIENT}{position:04d}"
            own.mkdir(mode=FOLDER_MODE, exist_ok=True)
            client.save(own)

    @classmethod
    def load(cls, folder: Path) -> "RecordedAggregate":
        """Read what `save` wrote.

        Raises:
            ObservationError: a file is missing or damaged.
        """
        clients = [RecordedClient.load(own) for own in sorted(folder.glob(f"{_CLIENT}*"))]
        if not clients:
            raise ObservationError(f"no record of an aggregate's clients at {folder}")
        return cls.of(clients)


def load_truth(folder: Path) -> GroundTruth:
    """The truth in a folder, with as much of a record as lies there.

    Returns:
        A `RecordedBatch`, `RecordedClient` or `RecordedAggregate`, or the bare `GroundTruth` that another framework's
        capture may hold.

    Raises:
        ObservationError: a file is missing or damaged.
    """
    if (folder / CLIENT_FILE).is_file():
        return RecordedClient.load(folder)
    if (folder / FORWARD_FILE).is_file():
        return RecordedBatch.load(folder)
    if any(folder.glob(f"{_CLIENT}*")):
        return RecordedAggregate.load(folder)
    return GroundTruth.load(folder)


_CLIENT = "client-"
