"""What an attacker may see, and nothing else; and, apart from it, the truth that only metrics and audits hold.

A `ClientUpdate` is saved as tensors (safetensors) and facts (JSON), never pickled, so that what one machine or another
federated framework recorded is attacked on another.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors.torch import save_file
from torch import Tensor

from lightleak.core.errors import ObservationError
from lightleak.core.stored import MAX_TENSOR_BYTES, read_facts, read_tensors

SCHEMA_VERSION = 1

UpdateKind = Literal["gradient", "delta"]
GradientState = Literal["raw", "clipped", "noised"]


@dataclass(frozen=True)
class ProtocolFacts:
    """What the protocol tells the server about one update.

    Attributes:
        n_rows: rows behind the update (the batch size under FedSGD).
        epochs: local epochs; 1 under FedSGD.
        batch_size: rows per local step.
        n_clients: clients aggregated into the update.
        learning_rate: local learning rate; ``None`` where the update is a plain gradient.
        optimizer: local optimiser, by name.
        loss: the training criterion, by name.
        step: global step at which the update was taken.
        epoch: global epoch at which it was taken, 0-based.
    """

    n_rows: int
    epochs: int = 1
    batch_size: int | None = None
    n_clients: int = 1
    learning_rate: float | None = None
    optimizer: str = "sgd"
    loss: str = "cross_entropy"
    step: int = 0
    epoch: int = 0


@dataclass(frozen=True)
class ClientUpdate:
    """One update as the server receives it (horizontal federated learning).

    Attributes:
        network: specification of the network (`lightleak.targets.spec.NetworkSpec.to_dict`).
        parameters: named parameters before the update.
        update: gradient or weight delta, same names and shapes.
        encoder: schema and encoder statistics the server knows (`lightleak.data.encoder.TableEncoder.to_state`).
        encoder_tensors: the encoder's statistics as tensors.
        facts: protocol facts.
        kind: ``gradient`` (FedSGD) or ``delta`` (FedAvg).
        state: ``raw``, ``clipped`` or ``noised``: what had been done to the gradient when it was sent.
        training_mode: the client's network was in train mode (batch statistics, dropout) rather than eval mode.
        buffers: named buffers before the update, where the threat model shares them.
        labels: LongTensor ``[n_rows]``, only where the labels are shared.
        marginals: one-way marginals known to the server (`lightleak.data.marginals.Marginals.to_dict`).
        batch_statistics: mean and variance of every BatchNorm layer on the client's batch, only where shared.
    """

    network: Mapping[str, Any]
    parameters: Mapping[str, Tensor]
    update: Mapping[str, Tensor]
    encoder: Mapping[str, Any]
    encoder_tensors: Mapping[str, Tensor]
    facts: ProtocolFacts
    kind: UpdateKind = "gradient"
    state: GradientState = "raw"
    training_mode: bool = True
    buffers: Mapping[str, Tensor] = field(default_factory=dict)
    labels: Tensor | None = None
    marginals: Mapping[str, Any] | None = None
    batch_statistics: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what no attack could serve.

        Raises:
            ObservationError: names or shapes of parameters and update differ, a value is not finite, the labels do not
                match the number of rows, or a fact is not of its kind.
        """
        for what, value, allowed in (("kind", self.kind, UpdateKind), ("state", self.state, GradientState)):
            if value not in get_args(allowed):
                raise ObservationError(f"{what} must be one of {', '.join(get_args(allowed))}, got {value!r}")
        if not isinstance(self.training_mode, bool):
            raise ObservationError(f"training_mode must be true or false, got {self.training_mode!r}")
        for what in ("network", "encoder"):
            if not isinstance(getattr(self, what), Mapping):
                raise ObservationError(f"{what} must be a mapping, got {type(getattr(self, what)).__name__}")
        if not self.parameters:
            raise ObservationError("an update needs at least one parameter, got none")
        if set(self.parameters) != set(self.update):
            odd = sorted(set(self.parameters) ^ set(self.update))
            raise ObservationError(f"parameters and update must name the same tensors; only in one of them: {odd}")
        for name, parameter in self.parameters.items():
            if parameter.shape != self.update[name].shape:
                expected, got = tuple(parameter.shape), tuple(self.update[name].shape)
                raise ObservationError(f"update {name!r} must have shape {expected}, got {got}")
            for what, tensor in (("parameter", parameter), ("update", self.update[name])):
                if not torch.isfinite(tensor).all():
                    raise ObservationError(f"{what} {name!r} must be finite, got NaN or infinity")
        for name, buffer in self.buffers.items():
            if not torch.isfinite(buffer).all():
                raise ObservationError(f"buffer {name!r} must be finite, got NaN or infinity")
        if not isinstance(self.facts.n_rows, int) or self.facts.n_rows < 1:
            raise ObservationError(f"n_rows must be at least 1, got {self.facts.n_rows!r}")
        if self.labels is not None and self.labels.shape != (self.facts.n_rows,):
            got = tuple(self.labels.shape)
            raise ObservationError(f"labels must have shape ({self.facts.n_rows},), one per row, got {got}")
        if self.labels is not None and self.labels.dtype != torch.long:
            raise ObservationError(f"labels must be int64, got {self.labels.dtype}")

    def save(self, folder: Path) -> None:
        """Write ``tensors.safetensors`` and ``facts.json`` into ``folder`` (created)."""
        folder.mkdir(parents=True, exist_ok=True)
        groups = {name: dict(getattr(self, name)) for name in _TENSOR_GROUPS}
        if self.labels is not None:
            groups["labels"] = {"labels": self.labels}
        tensors = {
            f"{group}/{name}": tensor.detach().cpu().clone().contiguous()
            for group, named in groups.items()
            for name, tensor in named.items()
        }
        save_file(tensors, folder / "tensors.safetensors")
        facts = {
            "schema_version": SCHEMA_VERSION,
            "network": dict(self.network),
            "encoder": dict(self.encoder),
            "facts": asdict(self.facts),
            "kind": self.kind,
            "state": self.state,
            "training_mode": self.training_mode,
            "marginals": None if self.marginals is None else dict(self.marginals),
        }
        (folder / "facts.json").write_text(json.dumps(facts, indent=1))

    @classmethod
    def load(cls, folder: Path, max_tensor_bytes: int = MAX_TENSOR_BYTES) -> "ClientUpdate":
        """Read what `save` wrote.

        Raises:
            ObservationError: a file is missing, damaged, too large, or of an unknown version.
        """
        facts = read_facts(folder / "facts.json", "client update", SCHEMA_VERSION)
        tensors = read_tensors(folder / "tensors.safetensors", max_tensor_bytes)
        groups: dict[str, dict[str, Tensor]] = {name: {} for name in (*_TENSOR_GROUPS, "labels")}
        for key, tensor in tensors.items():
            group, _, name = key.partition("/")
            if group not in groups:
                raise ObservationError(f"{folder}: unknown tensor {key!r}; expected one of {sorted(groups)}")
            groups[group][name] = tensor
        labels = groups.pop("labels").get("labels")
        try:
            protocol = ProtocolFacts(**facts.pop("facts"))
            known: dict[str, Any] = {**groups, **facts}
            return cls(**known, facts=protocol, labels=labels)
        except (TypeError, KeyError) as error:
            raise ObservationError(f"{folder}/facts.json does not describe a client update: {error}") from error


_TENSOR_GROUPS = tuple(
    f.name
    for f in fields(ClientUpdate)
    if f.name in {"parameters", "update", "encoder_tensors", "buffers", "batch_statistics"}
)


@dataclass(frozen=True)
class GroundTruth:
    """The private batch behind an observation; only metrics and audits hold it.

    Attributes:
        inputs: ``[n, d]`` encoded rows as the network saw them.
        labels: LongTensor ``[n]``.
        loss: training loss on the batch.
    """

    inputs: Tensor
    labels: Tensor
    loss: float | None = None

    def save(self, folder: Path) -> None:
        """Write ``truth.safetensors`` into ``folder`` (created)."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {"inputs": self.inputs.detach().cpu().contiguous(), "labels": self.labels.detach().cpu().contiguous()}
        if self.loss is not None:
            tensors["loss"] = torch.tensor(self.loss, dtype=torch.float64)
        save_file(tensors, folder / "truth.safetensors")

    @classmethod
    def load(cls, folder: Path) -> "GroundTruth":
        """Read what `save` wrote.

        Raises:
            ObservationError: the file is missing or damaged.
        """
        tensors = read_tensors(folder / "truth.safetensors")
        loss = float(tensors["loss"]) if "loss" in tensors else None
        if missing := {"inputs", "labels"} - tensors.keys():
            raise ObservationError(f"{folder / 'truth.safetensors'} lacks {', '.join(sorted(missing))}")
        if tensors["labels"].shape != tensors["inputs"].shape[:1]:
            got = f"{tuple(tensors['inputs'].shape)} and {tuple(tensors['labels'].shape)}"
            raise ObservationError(f"inputs must be [n, d] and labels [n], got {got}")
        return cls(tensors["inputs"], tensors["labels"], loss)
