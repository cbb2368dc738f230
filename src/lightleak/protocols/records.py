"""The private rows behind an update together with what makes it repeatable: the other half of a capture."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.stored import FOLDER_MODE
from lightleak.protocols.client_training import LocalTraining
from lightleak.protocols.local_pass import Autocast

FORWARD_FILE = "forward.safetensors"


@dataclass(frozen=True)
class RecordedBatch(GroundTruth):
    """A batch and the circumstances of its forward, in one or several micro-batches.

    Private like the rows themselves: a generator's state reveals which units dropout removed.

    Attributes:
        generator_states: uint8 ``[micro_batches, bytes]``, torch's generator on ``device`` before each forward.
        buffers: the network's named buffers before the first forward, whether or not the update shares them.
        autocast: data type of the forward's mixed precision.
        loss_scale: factor of the loss in the backward (fp16 mixed precision); the gradient was divided by it.
        device: type of the device that computed, ``cpu`` or ``cuda``.
    """

    generator_states: Tensor | None = None
    buffers: Mapping[str, Tensor] = field(default_factory=dict)
    autocast: Autocast = "none"
    loss_scale: float = 1.0
    device: str = "cpu"

    def save(self, folder: Path) -> None:
        """Write ``truth.safetensors``, which `GroundTruth.load` reads too, and ``forward.safetensors`` next to it."""
        super().save(folder)
        facts = {"autocast": self.autocast, "loss_scale": repr(self.loss_scale), "device": self.device}
        tensors = {} if self.generator_states is None else {"generator_states": self.generator_states}
        _save(folder / FORWARD_FILE, facts, self.buffers, tensors)

    @classmethod
    def load(cls, folder: Path) -> "RecordedBatch":
        """Read what `save` wrote.

        Raises:
            ObservationError: a file is missing or damaged.
        """
        with _reading(folder / FORWARD_FILE, "a forward") as (facts, tensors, buffers):
            rows = GroundTruth.load(folder)
            if facts["autocast"] not in get_args(Autocast):
                raise ValueError(f"autocast must be one of {get_args(Autocast)}, got {facts['autocast']!r}")
            return cls(
                **vars(rows),
                generator_states=tensors.pop("generator_states", None),
                buffers=buffers,
                autocast=facts["autocast"],
                loss_scale=float(facts["loss_scale"]),
                device=facts["device"],
            )


def device_is_here(device: str) -> bool:
    """Whether a device of this type (``cpu``, ``cuda``) is on this machine."""
    return device == "cpu" or (device == "cuda" and torch.cuda.is_available())


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
        settings = {name: repr(value) for name, value in asdict(self.training).items()}
        facts = {**settings, "dropout": str(self.dropout), "device": self.device}
        _save(folder / CLIENT_FILE, facts, self.buffers, {"order": self.order})

    @classmethod
    def load(cls, folder: Path) -> "RecordedClient":
        """Read what `save` wrote.

        Raises:
            ObservationError: a file is missing or damaged.
        """
        with _reading(folder / CLIENT_FILE, "a client's local training") as (facts, tensors, buffers):
            rows = GroundTruth.load(folder)
            return cls(
                **vars(rows),
                order=tensors.pop("order"),
                training=_training(facts),
                dropout=int(facts["dropout"]),
                buffers=buffers,
                device=facts["device"],
            )


def _training(facts: Mapping[str, str]) -> LocalTraining:
    read: dict[str, Any] = {name: int(facts[name]) for name in ("epochs", "batch_size")}
    read |= {name: float(facts[name]) for name in ("learning_rate", "momentum", "weight_decay")}
    if facts["reshuffle"] not in ("True", "False"):
        raise ValueError(f"reshuffle must be True or False, got {facts['reshuffle']!r}")
    return LocalTraining(**read, reshuffle=facts["reshuffle"] == "True")


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
        ids = [client.ids for client in clients if client.ids is not None]
        known = torch.cat(ids) if len(ids) == len(clients) else None
        return cls(inputs, torch.cat([client.labels for client in clients]), loss, known, tuple(clients))

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
_BUFFER = "buffers/"


def _save(path: Path, facts: Mapping[str, str], buffers: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    named = {f"{_BUFFER}{name}": tensor.detach().cpu() for name, tensor in buffers.items()} | dict(tensors)
    save_file({name: tensor.contiguous() for name, tensor in named.items()}, path, metadata=dict(facts))


@contextmanager
def _reading(path: Path, what: str) -> Iterator[tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor]]]:
    """Yield the facts, tensors and buffers of a record.

    Raises:
        ObservationError: the file is missing, or what is done with it within the block shows that it is damaged.
    """
    if not path.is_file():
        raise ObservationError(f"no record of {what} at {path}")
    try:
        with safe_open(path, framework="pt") as file:
            facts = file.metadata() or {}
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  no mapping
        buffers = {name.removeprefix(_BUFFER): found.pop(name) for name in list(found) if name.startswith(_BUFFER)}
        yield facts, found, buffers
    except (SafetensorError, OSError, KeyError, ValueError, UsageError) as error:
        raise ObservationError(f"{path} is not the record of {what}: {error}") from error
