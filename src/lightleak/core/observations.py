"""What an attacker may see, and nothing else; the truth is in `lightleak.core.ground_truth`.

A `ClientUpdate` is saved as tensors (safetensors) and facts (JSON), never pickled, so that what one machine or another
federated framework recorded is attacked on another.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from numbers import Real
from operator import index
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from lightleak.core.errors import ObservationError
from lightleak.core.stored import MAX_TENSOR_BYTES, read_facts, read_groups, write_groups

SCHEMA_VERSION = 1

UpdateKind = Literal["gradient", "delta"]
GradientState = Literal["raw", "clipped", "noised"]


@dataclass(frozen=True)
class ProtocolFacts:
    """What the server knows of one update by the protocol.

    Attributes:
        n_rows: rows behind the update, of all its clients (the batch size under FedSGD).
        epochs: local epochs; 1 under FedSGD; None where the server does not know.
        batch_size: rows per local step; None where the server does not know.
        n_clients: clients averaged into the update; None for an aggregate that does not say how many.
        client_rows: rows of each client, where an aggregate states them; empty: equal shares.
        local_steps: optimizer steps each client made; None where it follows from the other facts.
        learning_rate: local learning rate; ``None`` where the update is a plain gradient.
        momentum: of the local SGD.
        weight_decay: of the local SGD.
        optimizer: local optimizer, by name.
        loss: the training criterion, by name.
        step: global step at which the update was taken.
        epoch: global epoch (FedSGD) or communication round (FedAvg) at which it was taken, 0-based.
        defense: what the client did to the update before it left, in words (`UpdateDefense.describe`).

    Raises:
        ObservationError: a fact that is not of its type and range, or clients whose rows are not those of the update.
    """

    n_rows: int
    epochs: int | None = 1
    batch_size: int | None = None
    n_clients: int | None = 1
    client_rows: tuple[int, ...] = ()
    local_steps: int | None = None
    learning_rate: float | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    optimizer: str = "sgd"
    loss: str = "cross_entropy"
    step: int = 0
    epoch: int = 0
    defense: str = "none"

    def __post_init__(self) -> None:
        """Check every fact, and keep numbers of numpy as plain ones, which JSON knows."""
        for name, least in _COUNTS.items():
            value = getattr(self, name)
            if value is None and name in _MAY_BE_UNKNOWN:
                continue
            if (number := _count(value, least)) is None:
                raise ObservationError(f"{name} must be a whole number from {least} to {MOST}, got {value!r}")
            object.__setattr__(self, name, number)
        for name in ("learning_rate", "momentum", "weight_decay"):
            value = getattr(self, name)
            if value is None and name in _MAY_BE_UNKNOWN:
                continue
            if (amount := _amount(value)) is None:
                raise ObservationError(f"{name} must be a finite number from 0, got {value!r}")
            object.__setattr__(self, name, amount)
        for name in ("optimizer", "loss", "defense"):
            if not isinstance(value := getattr(self, name), str):
                raise ObservationError(f"{name} must be text, got {value!r}")
        self._check_client_rows()

    def _check_client_rows(self) -> None:
        given = self.client_rows
        rows = [_count(n, 1) for n in given] if isinstance(given, list | tuple) else [None]
        if None in rows:
            raise ObservationError(f"client_rows must be whole numbers from 1, got {given!r}")
        object.__setattr__(self, "client_rows", tuple(rows))
        if rows and (sum(self.client_rows) != self.n_rows or self.n_clients not in (None, len(rows))):
            raise ObservationError(
                f"client_rows must be the rows of each client (n_clients: {self.n_clients}), {self.n_rows} together, "
                f"got {given!r}"
            )


MOST = 10**9
"""No fact counts more: rows, steps, epochs, clients."""

_COUNTS = {"n_rows": 1, "epochs": 1, "batch_size": 1, "n_clients": 1, "local_steps": 1, "step": 0, "epoch": 0}
"""Facts that count something, and from where."""

_MAY_BE_UNKNOWN = ("epochs", "batch_size", "n_clients", "local_steps", "learning_rate")


def read_protocol(state: object) -> ProtocolFacts:
    """Protocol facts from a file, every one of its type and range.

    Raises:
        ObservationError: no mapping, an unknown fact, one that is missing, or a value that is none of that fact.
    """
    if not isinstance(state, Mapping):
        raise ObservationError(f"facts must be a mapping, got {type(state).__name__}")
    known = [f.name for f in fields(ProtocolFacts)]
    if unknown := sorted(str(name) for name in state if name not in known):
        raise ObservationError(f"facts has no {', '.join(unknown)}; known: {', '.join(known)}")
    try:
        return ProtocolFacts(**{"n_rows": None, **state})
    except ObservationError as error:
        raise ObservationError(f"facts.{error}") from error


def _count(value: object, least: int) -> int | None:
    """The value as an int, also of numpy's; None where it is no count from ``least`` on."""
    try:
        number = None if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
    except TypeError:
        return None
    return number if number is not None and least <= number <= MOST else None


def _amount(value: Any) -> float | None:
    """The value as a number, also of numpy's; None where it is no finite one from 0 on."""
    kind = type(value)
    if kind is bool or not issubclass(kind, Real) or not 0 <= value < math.inf:
        return None
    return value if kind in (int, float) else float(value)


@dataclass(frozen=True)
class ClientUpdate:
    """One update as the server receives it (horizontal federated learning).

    Attributes:
        network: specification of the network (`lightleak.targets.spec.NetworkSpec.to_dict`).
        parameters: named parameters before the update.
        update: gradient, or weight delta (weights after local training minus weights before); same names and shapes.
        encoder: schema and encoder statistics the server knows (`lightleak.data.encoder.TableEncoder.to_state`).
        encoder_tensors: the encoder's statistics as tensors.
        facts: protocol facts.
        kind: ``gradient`` (FedSGD) or ``delta`` (FedAvg).
        state: what had been done to the gradient when it was sent: nothing (``raw``), the Trainer's clipping
            (``clipped``), or a defense of the client's (``noised``, whatever the defense; ``facts.defense`` names it).
        training_mode: the client's network was in train mode (batch statistics, dropout) rather than eval mode.
        buffers: named buffers before the update, where the threat model shares them.
        labels: LongTensor ``[n_rows]``, only where the labels are shared; of an aggregate client after client. Their
            order says nothing under FedAvg.
        batch_labels: LongTensor ``[n_clients, epochs, rows per client]``, labels in the order in which the local
            batches took them, only where that is shared.
        marginals: one-way marginals known to the server (`lightleak.data.marginals.Marginals.to_dict`).
        batch_statistics: mean and variance of every BatchNorm layer on the client's batch, only where shared.
        further_parameters: where the client sent gradients of the same rows in several rounds, the named parameters
            before each further release, stacked ``[R - 1, ...]``.
        further_updates: the gradients of these releases, likewise.
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
    batch_labels: Tensor | None = None
    marginals: Mapping[str, Any] | None = None
    batch_statistics: Mapping[str, Tensor] = field(default_factory=dict)
    further_parameters: Mapping[str, Tensor] = field(default_factory=dict)
    further_updates: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that an attack can use it.

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
        if self.marginals is not None and not isinstance(self.marginals, Mapping):
            raise ObservationError(f"marginals must be a mapping or none, got {type(self.marginals).__name__}")
        for name, parameter in self.parameters.items():
            if parameter.shape != self.update[name].shape:
                expected, got = tuple(parameter.shape), tuple(self.update[name].shape)
                raise ObservationError(f"update {name!r} must have shape {expected}, got {got}")
            for what, tensor in (("parameter", parameter), ("update", self.update[name])):
                if not tensor.is_floating_point():
                    raise ObservationError(f"{what} {name!r} must be of a float type, got {tensor.dtype}")
                if not torch.isfinite(tensor).all():
                    raise ObservationError(f"{what} {name!r} must be finite, got NaN or infinity")
        for what, named in (("buffer", self.buffers), ("batch statistic", self.batch_statistics)):
            for name, tensor in named.items():
                if not torch.isfinite(tensor).all():
                    raise ObservationError(f"{what} {name!r} must be finite, got NaN or infinity")
        if self.labels is not None and self.labels.shape != (self.facts.n_rows,):
            got = tuple(self.labels.shape)
            raise ObservationError(f"labels must have shape ({self.facts.n_rows},), one per row, got {got}")
        if self.labels is not None and self.labels.dtype != torch.long:
            raise ObservationError(f"labels must be int64, got {self.labels.dtype}")
        if self.batch_labels is not None:
            self._check_batch_labels(self.batch_labels)
        self._check_releases()

    def _check_batch_labels(self, labels: Tensor) -> None:
        facts = self.facts
        clients, epochs = facts.n_clients, facts.epochs
        fits = labels.dim() == 3 and labels.dtype == torch.long and labels.shape[:2] == (clients, epochs)
        if not fits or labels.shape[0] * labels.shape[2] != facts.n_rows:
            got = f"{labels.dtype} {tuple(labels.shape)}"
            raise ObservationError(
                f"batch_labels must be int64 [{clients} clients, {epochs} epochs, rows per client], got {got}"
            )

    def _check_releases(self) -> None:
        both = (self.further_parameters, self.further_updates)
        count = max((len(tensor) if tensor.dim() else 1 for named in both for tensor in named.values()), default=0)
        expected = {name: (count, *p.shape) for name, p in self.parameters.items()} if count else {}
        for what, named in zip(_RELEASES, both, strict=True):
            if {name: tuple(tensor.shape) for name, tensor in named.items()} != expected:
                raise ObservationError(f"{what} must have {count} further releases of every parameter, in its shape")
            if not all(tensor.is_floating_point() and torch.isfinite(tensor).all() for tensor in named.values()):
                raise ObservationError(f"{what} must be finite and of a float type")
        if count and self.kind != "gradient":
            raise ObservationError("several releases of the same rows are gradients; this update is a weight delta")

    @property
    def releases(self) -> tuple["ClientUpdate", ...]:
        """Every release of the rows as an update of its own, the first one first; mostly it is the only one."""
        first = replace(self, further_parameters={}, further_updates={}) if self.further_updates else self
        count = len(next(iter(self.further_updates.values()), ()))
        return first, *(
            replace(
                first,
                parameters={name: tensor[r] for name, tensor in self.further_parameters.items()},
                update={name: tensor[r] for name, tensor in self.further_updates.items()},
            )
            for r in range(count)
        )

    @classmethod
    def of_releases(cls, releases: Sequence["ClientUpdate"]) -> "ClientUpdate":
        """One observation of several releases of the same rows, which may differ in parameters and update alone."""
        first, *further = releases
        if not further:
            return first
        parameters, updates = (
            {name: torch.stack([getattr(release, what)[name] for release in further]) for name in first.parameters}
            for what in ("parameters", "update")
        )
        return replace(first, further_parameters=parameters, further_updates=updates)

    def save(self, folder: Path) -> None:
        """Write ``tensors.safetensors`` and ``facts.json`` into ``folder`` (created)."""
        folder.mkdir(parents=True, exist_ok=True)
        groups = {name: dict(getattr(self, name)) for name in _TENSOR_GROUPS}
        for name in _SINGLE_TENSORS:
            if getattr(self, name) is not None:
                groups[name] = {name: getattr(self, name)}
        write_groups(folder / "tensors.safetensors", groups)
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
        names = (*_TENSOR_GROUPS, *_SINGLE_TENSORS)
        groups = read_groups(folder / "tensors.safetensors", names, max_tensor_bytes)
        single = {name: groups.pop(name).get(name) for name in _SINGLE_TENSORS}
        try:
            known: dict[str, Any] = {**groups, **facts, **single, "facts": read_protocol(facts.get("facts"))}
            return cls(**known)
        except ObservationError as error:
            raise ObservationError(f"{folder}: {error}") from error
        except TypeError as error:
            raise ObservationError(f"{folder}/facts.json does not describe a client update: {error}") from error


_RELEASES = ("further_parameters", "further_updates")
_TENSOR_GROUPS = ("parameters", "update", "encoder_tensors", "buffers", "batch_statistics", *_RELEASES)
_SINGLE_TENSORS = ("labels", "batch_labels")
