"""What a client of federated learning sends, and what it does to that before it leaves, as typed data."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from lightleak.core.bounds import Section, bounded, require_at_most
from lightleak.core.errors import UsageError, close_match, placed
from lightleak.core.seeds import derive_seed
from lightleak.defenses.horizontal import TRAINING_DEFENSES, UPDATE_DEFENSES, TrainingDefense, UpdateDefense
from lightleak.protocols.client_training import LocalTraining
from lightleak.protocols.federated_data import RoundSampler

LabelMethod = Literal["geng", "bias", "interpolated", "geng_server", "geng_client"]
LABEL_METHODS: dict[str, tuple[LabelMethod, ...]] = {
    "fedsgd": ("geng", "bias"),
    "fedavg": ("interpolated", "geng_server", "geng_client"),
}
"""Ways to restore labels from what a protocol sends, the usual one first."""

NO_DEFENSE = "none"


@dataclass(frozen=True)
class ProtocolConfig(Section, section="protocol"):
    """What a client sends: the gradient of one batch (FedSGD), or what its own training did to the weights (FedAvg).

    Everything but the name belongs to FedAvg and keeps its default under FedSGD.

    Attributes:
        name: ``fedsgd`` or ``fedavg``.
        local_epochs: passes of a client over its own rows in one round.
        local_batch_size: rows per local step; this or ``local_batches``, neither: one batch of all rows.
        local_batches: local steps per pass.
        learning_rate: of the local SGD.
        momentum: of the local SGD.
        weight_decay: of the local SGD.
        reshuffle: a client draws a new order for every pass; False keeps the batches of its first.
        clients: clients of the training run.
        client_rows: rows of each; an equal share of the training rows where it is left out.
        clients_per_round: clients that train in one round; all of them where it is left out.
        rounds: rounds of the training run; 0 audits the untrained network alone.
        aggregate: clients behind one update that the server sees (secure aggregation).
        label_order: where labels are given: how many rows of each class a client has (``counts``), or also which local
            batch takes which (``batches``).
    """

    name: Literal["fedsgd", "fedavg"] = "fedsgd"
    local_epochs: int = bounded(1, ge=1)
    local_batch_size: int | None = bounded(None, ge=1)
    local_batches: int | None = bounded(None, ge=1)
    learning_rate: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    reshuffle: bool = True
    clients: int = bounded(50, ge=1)
    client_rows: int | None = bounded(None, ge=1)
    clients_per_round: int | None = bounded(None, ge=1)
    rounds: int = bounded(5, ge=0)
    aggregate: int = bounded(1, ge=1)
    label_order: Literal["counts", "batches"] = "counts"

    def check(self) -> None:
        """Refuse settings that cannot work together, and settings of FedAvg under FedSGD."""
        if self.local_batch_size is not None and self.local_batches is not None:
            raise UsageError(
                "protocol takes local_batch_size or local_batches, got both "
                f"({self.local_batch_size} and {self.local_batches})"
            )
        require_at_most("protocol.clients_per_round", self.clients_of_round, self.clients, "protocol.clients")
        if self.rounds and self.clients_of_round % self.aggregate:
            raise UsageError(
                f"protocol.aggregate must divide the clients of a round, {self.clients_of_round}; got {self.aggregate}"
            )
        try:
            LocalTraining(1, 1, self.learning_rate, self.momentum, self.weight_decay)
        except UsageError as error:
            raise UsageError(f"protocol.{error}") from error
        if self.name == "fedsgd":
            changed = [f.name for f in fields(self) if f.name != "name" and getattr(self, f.name) != f.default]
            if changed:
                raise UsageError(
                    f"protocol.{changed[0]} is a setting of FedAvg (protocol.name fedavg); a FedSGD client sends the "
                    "gradient of one batch"
                )

    @property
    def is_fedavg(self) -> bool:
        """Whether clients train between two rounds."""
        return self.name == "fedavg"

    @property
    def clients_of_round(self) -> int:
        """Clients that train in one round."""
        return self.clients_per_round or self.clients

    @property
    def updates_of_round(self) -> int:
        """Updates that the server receives in one round."""
        return self.clients_of_round // self.aggregate

    def steps_of_a_row(self, seed: int) -> int:
        """Local steps that a row takes part in over all rounds, of the client drawn most often in a run of ``seed``."""
        drawn = RoundSampler(self.clients, self.clients_of_round, derive_seed(seed, "rounds"))
        return self.local_epochs * drawn.most_rounds_of_a_client(self.rounds)

    def local_batch_of(self, n_rows: int) -> int:
        """Rows per local step of a client with ``n_rows`` rows.

        >>> ProtocolConfig("fedavg", local_batches=4).local_batch_of(32)
        8

        Raises:
            UsageError: the rows cannot be cut into ``local_batches`` of which all but the last are equal.
        """
        if self.local_batches is None:
            return self.local_batch_size or n_rows
        size = -(-n_rows // self.local_batches)
        if -(-n_rows // size) != self.local_batches:
            raise UsageError(
                f"protocol.local_batches: {n_rows} rows cannot be cut into {self.local_batches} batches of which all "
                "but the last are equal"
            )
        return size

    def local_training(self, n_rows: int) -> LocalTraining:
        """Local training of a client with ``n_rows`` rows; errors as for `local_batch_of`."""
        return LocalTraining(
            epochs=self.local_epochs,
            batch_size=self.local_batch_of(n_rows),
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            reshuffle=self.reshuffle,
        )


@dataclass(frozen=True)
class DefenseConfig:
    """What a client does to its update before it leaves.

    Attributes:
        name: a defense of the registry, or ``none``.
        options: its settings.
        point: under FedAvg, whether a client defends the ``update`` it sends or the gradient of every local step
            (``steps``).
    """

    name: str = NO_DEFENSE
    options: dict[str, Any] = field(default_factory=dict)
    point: Literal["update", "steps"] = "update"

    @property
    def is_none(self) -> bool:
        """Whether updates leave as they are."""
        return self.name == NO_DEFENSE


def defense_of(config: DefenseConfig) -> UpdateDefense | TrainingDefense | None:
    """The defense that a config names, with its settings; None for ``none``.

    Raises:
        UsageError: an unknown defense or setting, or a value out of range.
    """
    if config.is_none:
        return None
    with placed("defense.name"):
        defense_class(config.name)
    with placed("defense.options"):
        return make_defense(config.name, config.options)


def make_defense(name: str, options: Mapping[str, Any]) -> UpdateDefense | TrainingDefense:
    """The defense of this name with these settings; errors as for `defense_of`."""
    kind = defense_class(name)
    settings = [f.name for f in fields(kind)]
    if unknown := sorted(set(options) - set(settings)):
        raise UsageError(f"{name} has no setting {', '.join(unknown)}; settings: {', '.join(settings) or 'none'}")
    return kind(**options)


def defense_class(name: str) -> Any:
    """The class of a defense; errors as for `defense_of`."""
    if name not in UPDATE_DEFENSES and name not in TRAINING_DEFENSES:
        known = sorted({NO_DEFENSE, *UPDATE_DEFENSES, *TRAINING_DEFENSES})
        raise UsageError(f"unknown defense {name!r}{close_match(name, known)}; known: {', '.join(known)}")
    return (TRAINING_DEFENSES if name in TRAINING_DEFENSES else UPDATE_DEFENSES).get(name)
