"""`RoundRecorder`: keeps what a server of any framework received, client by client, as captures of ours."""

import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from lightleak.callbacks.capture_schedule import RoundSchedule
from lightleak.callbacks.capture_store import save_capture
from lightleak.core.arguments import require_kind
from lightleak.core.errors import UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.integrations.private_rows import PrivateRows, ground_truth
from lightleak.integrations.server_view import ServerView
from lightleak.integrations.state_dicts import State, client_update, network_tensors
from lightleak.targets.spec import build_network

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

        Raises:
            UsageError: settings that cannot work together.
        """
        if root is None and not keep:
            raise UsageError("captures would be lost: give a folder (root=...) or keep them in memory (keep=True)")
        require_kind("view", view, ServerView, "a ServerView")
        self.view, self.rows, self.keep = view, rows, keep
        self.root = None if root is None else Path(root)
        self.schedule = RoundSchedule(rounds, per_round, clients, max_captures)
        self.captured: list[Received] = []
        self._taken, self._in_round = 0, (-1, 0)

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
            n_rows: rows behind it.
            labels: where it shares them.
        """
        if not self._wanted(round_number, client):
            return
        try:
            update = client_update(before, sent, self.view, n_rows, labels=labels, round_number=round_number)
        except UsageError as error:
            warnings.warn(f"client {client} of round {round_number} was not captured: {error}", stacklevel=2)
            return
        self._count(round_number)
        taken = Received(client, update, self._truth(round_number, client, update))
        if self.keep:
            self.captured.append(taken)
        if self.root is not None:
            save_capture(self.root, taken.update, taken.truth, client)

    def _wanted(self, round_number: int, client: int) -> bool:
        schedule = self.schedule
        if round_number not in schedule.rounds or self._taken >= schedule.max_captures:
            return False
        if len(schedule.clients):
            return client in schedule.clients
        current, taken = self._in_round
        return current != round_number or taken < schedule.per_round

    def _count(self, round_number: int) -> None:
        current, taken = self._in_round
        self._taken += 1
        self._in_round = (round_number, taken + 1 if current == round_number else 1)

    def _truth(self, round_number: int, client: int, update: ClientUpdate) -> GroundTruth | None:
        rows = None if self.rows is None else self.rows(client, round_number)
        if rows is None:
            return None
        try:
            return ground_truth(update, rows)
        except UsageError as error:
            warnings.warn(f"client {client} of round {round_number} was captured without truth: {error}", stacklevel=3)
            return None
