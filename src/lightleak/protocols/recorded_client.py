"""The private rows of a FedAvg client together with what makes its local training repeatable."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.protocols.local_training import LocalTraining

CLIENT_FILE = "client.safetensors"


@dataclass(frozen=True)
class RecordedClient(GroundTruth):
    """A client's rows and the circumstances of its local training; private like the rows themselves.

    ``loss`` is the mean over rows of all local steps' losses.

    Attributes:
        order: LongTensor ``[epochs, n]``, the order in which each epoch took the rows.
        training: settings of the local SGD.
        dropout: seed of the forwards' draws.
        buffers: the network's named buffers before local training, whether or not the update shares them.
        device: type of the device that computed, ``cpu`` or ``cuda``.
    """

    order: Tensor = field(default_factory=lambda: torch.empty(0, 0, dtype=torch.long))
    training: LocalTraining = field(default_factory=LocalTraining)
    dropout: int = 0
    buffers: Mapping[str, Tensor] = field(default_factory=dict)
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Check that every epoch takes every row once.

        Raises:
            ObservationError: the order is not that of the rows.
        """
        shape, n = (self.training.epochs, len(self.inputs)), len(self.inputs)
        if self.order.dtype != torch.long or self.order.shape != shape:
            got = f"{self.order.dtype} {tuple(self.order.shape)}"
            raise ObservationError(f"order must be int64 {list(shape)} (epochs, rows), got {got}")
        if not torch.equal(self.order.sort(dim=1).values, torch.arange(n).expand(shape)):
            raise ObservationError(f"order must take each of the {n} rows once in every epoch")

    def save(self, folder: Path) -> None:
        """Write ``truth.safetensors``, which `GroundTruth.load` reads too, and ``client.safetensors`` next to it."""
        super().save(folder)
        tensors = {f"buffers/{name}": tensor.detach().cpu().contiguous() for name, tensor in self.buffers.items()}
        tensors["order"] = self.order.contiguous()
        settings = {name: repr(value) for name, value in asdict(self.training).items()}
        facts = {**settings, "dropout": str(self.dropout), "device": self.device}
        save_file(tensors, folder / CLIENT_FILE, metadata=facts)

    @classmethod
    def load(cls, folder: Path) -> "RecordedClient":
        """Read what `save` wrote.

        Raises:
            ObservationError: a file is missing or damaged.
        """
        path = folder / CLIENT_FILE
        if not path.is_file():
            raise ObservationError(f"no record of a client's local training at {path}")
        try:
            rows = GroundTruth.load(folder)
            with safe_open(path, framework="pt") as file:
                facts = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  no mapping
            return cls(
                rows.inputs,
                rows.labels,
                rows.loss,
                order=tensors.pop("order"),
                training=_training(facts),
                dropout=int(facts["dropout"]),
                buffers={name.removeprefix("buffers/"): tensor for name, tensor in tensors.items()},
                device=facts["device"],
            )
        except (SafetensorError, OSError, KeyError, ValueError, UsageError) as error:
            raise ObservationError(f"{path} is not the record of a client's local training: {error}") from error


def _training(facts: Mapping[str, str]) -> LocalTraining:
    read: dict[str, Any] = {name: int(facts[name]) for name in ("epochs", "batch_size")}
    read |= {name: float(facts[name]) for name in ("learning_rate", "momentum", "weight_decay")}
    if facts["reshuffle"] not in ("True", "False"):
        raise ValueError(f"reshuffle must be True or False, got {facts['reshuffle']!r}")
    return LocalTraining(**read, reshuffle=facts["reshuffle"] == "True")
