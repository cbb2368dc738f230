"""The private batch behind an update together with what makes its forward repeatable: the other half of a capture."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lightleak.core.errors import ObservationError
from lightleak.core.ground_truth import GroundTruth
from lightleak.protocols.local_pass import Autocast

FORWARD_FILE = "forward.safetensors"


@dataclass(frozen=True)
class RecordedBatch(GroundTruth):
    """A batch and the circumstances of its forward, in one or several micro-batches.

    Private like the rows themselves: a generator's state tells which units dropout removed.

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
        tensors = {f"buffers/{name}": tensor.detach().cpu().contiguous() for name, tensor in self.buffers.items()}
        if self.generator_states is not None:
            tensors["generator_states"] = self.generator_states.contiguous()
        facts = {"autocast": self.autocast, "loss_scale": repr(self.loss_scale), "device": self.device}
        save_file(tensors, folder / FORWARD_FILE, metadata=facts)

    @classmethod
    def load(cls, folder: Path) -> "RecordedBatch":
        """Read what `save` wrote.

        Raises:
            ObservationError: a file is missing or damaged.
        """
        path = folder / FORWARD_FILE
        if not path.is_file():
            raise ObservationError(f"no record of a forward at {path}")
        try:
            batch = GroundTruth.load(folder)
            with safe_open(path, framework="pt") as file:
                facts = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  no mapping
            if facts["autocast"] not in get_args(Autocast):
                raise ValueError(f"autocast must be one of {get_args(Autocast)}, got {facts['autocast']!r}")
            return cls(
                batch.inputs,
                batch.labels,
                batch.loss,
                generator_states=tensors.pop("generator_states", None),
                buffers={name.removeprefix("buffers/"): tensor for name, tensor in tensors.items()},
                autocast=facts["autocast"],
                loss_scale=float(facts["loss_scale"]),
                device=facts["device"],
            )
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            raise ObservationError(f"{path} is not the record of a forward: {error}") from error


def device_is_here(device: str) -> bool:
    """Whether a device of this type (``cpu``, ``cuda``) is on this machine."""
    return device == "cpu" or (device == "cuda" and torch.cuda.is_available())
