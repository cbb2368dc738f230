"""`RoundRecorder`: keeps what a server of any framework received, client by client, as captures of ours."""

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightleak.callbacks.capture_schedule import RoundSchedule
from lightleak.callbacks.capture_store import destination, require_unused, save_capture
from lightleak.core.arguments import require_kind, whole_number
from lightleak.core.errors import ObservationError, UnsupportedError, UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.integrations.server_view import ServerView
from lightleak.integrations.state_dicts import State, client_update, network_tensors
from lightleak.protocols.client_training import LocalTraining
from lightleak.protocols.records import RecordedClient
from lightleak.protocols.replay import check_rows, network_of, require_replay
from lightleak.targets.functional import drops_units
from lightleak.targets.spec import build_network


@dataclass(frozen=True)
class PrivateRows:
    """A client's rows in one round.

    Attributes:
        inputs: ``[n, d]`` encoded rows, in the encoding of the view.
        labels: class indices ``[n]``.
        order: LongTensor ``[epochs, n]``, the order in which each local epoch took the rows; needed for weights or a
            delta after more than one batch an epoch.
        training: the clients' SGD, where the server does not know it; None: as the update states.

    Raises:
        UsageError: rows that are no tensors.
    """

    inputs: Tensor
    labels: Tensor
    order: Tensor | None = None
    training: LocalTraining | None = None

    def __post_init__(self) -> None:
        require_kind("inputs", self.inputs, Tensor, "a tensor [n, d] of encoded rows, such as encoder.encode(frame)")
        require_kind(
            "labels", self.labels, Tensor, "a tensor [n] of class indices, such as encoder.encode_labels(frame)"
        )
        if self.order is not None:
            require_kind("order", self.order, Tensor, "an int64 tensor [epochs, rows], or None")


def ground_truth(update: ClientUpdate, rows: PrivateRows) -> GroundTruth:
    """The truth behind ``update``, once the rows are seen to reproduce it: against other rows no score means anything.

    Raises:
        ObservationError: rows that do not reproduce the update (`require_replay`), or whose order is needed and absent.
        UnsupportedError: a weight update of a network with dropout, whose draws another framework does not record.
        UsageError: rows that the network cannot take.
    """
    inputs, labels = rows.inputs.detach().cpu().clone(), rows.labels.detach().cpu().clone()
    truth = GroundTruth(inputs, labels)
    check_rows(update, truth)
    if update.kind == "delta":
        truth = _recorded(update, truth, rows)
    if update.state != "noised":
        require_replay(update, truth)
    return truth


def _recorded(update: ClientUpdate, truth: GroundTruth, rows: PrivateRows) -> RecordedClient:
    if update.training_mode and drops_units(network_of(update, truth)):
        raise UnsupportedError(
            "a weight update of a network with dropout cannot be repeated from its rows, so they cannot be checked; "
            "capture it without them"
        )
    training, n = rows.training or _training(update), len(truth.labels)
    order = rows.order
    if order is None and training.batch_size < n:
        raise ObservationError(
            f"the rows' order is needed: {training.epochs} epochs took {n} rows in batches of {training.batch_size}; "
            "give order, int64 [epochs, rows]"
        )
    if order is None:
        order = torch.arange(n).expand(training.epochs, n)
    return RecordedClient(truth.inputs, truth.labels, order=order.clone(), training=training, buffers=update.buffers)


def _training(update: ClientUpdate) -> LocalTraining:
    facts = update.facts
    if facts.epochs is None or facts.batch_size is None or facts.learning_rate is None:
        raise ObservationError(
            "the server does not know epochs, batch_size or learning_rate; give the rows' training to check them"
        )
    return LocalTraining(facts.epochs, facts.batch_size, facts.learning_rate, facts.momentum, facts.weight_decay)


Rows = Callable[[int, int], PrivateRows | None]
"""The private rows of a client in a round (both counted from 0), where the auditor owns them."""


@dataclass(frozen=True)
class Received:
    """One update and, where its rows are known, the truth behind it.

    Attributes:
        client: number of the client.
        update: the observation.
        truth: None where no rows were given, or they do not reproduce the update.
    """

    client: int
    update: ClientUpdate
    truth: GroundTruth | None = None


class RoundRecorder:
    """Records chosen clients of chosen rounds; it only looks, and a client's bad update stops no training.

    Attributes:
        captured: what was recorded, in order, where ``keep`` asks for it.
    """

    def __init__(
        self,
        view: ServerView,
        *,
        rounds: Collection[int],
        root: Path | str | None = None,
        keep: bool = False,
        per_round: int = 100,
        clients: Collection[int] = (),
        max_captures: int = 100,
        rows: Rows | None = None,
        overwrite: bool = False,
    ) -> None:
        """Choose what is recorded and where it goes.

        Args:
            view: what the server knows.
            rounds: communication rounds, counted from 0.
            root: a folder per capture is written here, which ``lightleak attack CONFIG --capture ROOT`` reads.
            keep: hold captures in memory, in ``captured``.
            per_round: the first so many clients of each round.
            clients: these instead, by number, wherever they take part.
            max_captures: no more than these.
            rows: private rows of a client in a round; without them attacks run, but have no scores.
            overwrite: ``root`` may hold captures already, as where every client or round has a process of its own, and
                keeps those of other clients and rounds.

        Raises:
            UsageError: settings of the wrong type or that cannot work together, a folder that cannot be written, or one
                with captures of an earlier training.
        """
        self.root = destination(root, keep)
        if not overwrite:
            require_unused(self.root)
        require_kind("view", view, ServerView, "a ServerView")
        if rows is not None and not callable(rows):
            raise UsageError(
                "rows must be a function of client and round that returns PrivateRows or None, "
                f"got {type(rows).__name__}"
            )
        self.view, self.rows, self.keep = view, rows, keep
        self.schedule = RoundSchedule(rounds, per_round, clients, max_captures)
        self.captured: list[Received] = []
        self._taken = Counter[int]()  # by round

    def check(self, before: State) -> None:
        """Refuse weights that are not the view's network, before any client trains.

        Raises:
            ObservationError: see `network_tensors`.
        """
        network_tensors(before, build_network(self.view.network, seed=0), self.view, "before")

    def receive(
        self,
        round_number: int,
        client: int,
        before: State,
        sent: State,
        n_rows: int,
        labels: Tensor | Sequence[int] | None = None,
    ) -> None:
        """Record one client's update where it is wanted; what cannot be recorded is left out with a warning.

        Args:
            round_number: counted from 0.
            client: number of the client, at least 0.
            before: what it was sent.
            sent: what it sent back.
            n_rows: rows behind it; like ``client``, it may be a float without decimals, as metrics are.
            labels: where it shares them.
        """
        with self.looking_on(round_number, client):
            if not self.wants(round_number, client):
                return
            number = whole_number("client", as_whole(client), least=0)
            update = client_update(
                before,
                sent,
                self.view,
                as_whole(n_rows),
                labels=labels,
                round_number=whole_number("round_number", round_number, 0),
            )
            taken = Received(number, update, self._truth(round_number, number, update))
            if self.root is not None:
                save_capture(self.root, taken.update, taken.truth, number)
            if self.keep:
                self.captured.append(taken)
            self._taken[round_number] += 1

    @contextmanager
    def looking_on(self, round_number: int, client: object) -> Iterator[None]:
        """Within the block an error is a warning that this client was not captured: no training stops for it."""
        try:
            yield
        except Exception as error:  # whatever a client, a callback or a disk comes up with
            warnings.warn(f"client {client} of round {round_number} was not captured: {_reason(error)}", stacklevel=4)

    def wants(self, round_number: int, client: object) -> bool:
        """Whether the update of this client of this round would be recorded."""
        schedule = self.schedule
        if round_number not in schedule.rounds or self._taken.total() >= schedule.max_captures:
            return False
        if len(schedule.clients):
            return client in schedule.clients
        return self._taken[round_number] < schedule.per_round

    def _truth(self, round_number: int, client: int, update: ClientUpdate) -> GroundTruth | None:
        try:
            rows = None if self.rows is None else self.rows(client, round_number)
            if rows is None:
                return None
            require_kind("what rows returns", rows, PrivateRows, "PrivateRows, or None")
            return ground_truth(update, rows)
        except Exception as error:  # rows is a function of the user's
            warnings.warn(
                f"client {client} of round {round_number} was captured without truth: {_reason(error)}", stacklevel=3
            )
            return None


def as_whole(value: Any) -> Any:
    """Return a float without decimals as an int; any other value unchanged.

    >>> as_whole(6.0), as_whole(6.7), as_whole(float("nan"))
    (6, 6.7, nan)
    """
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
