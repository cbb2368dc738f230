"""Flower (Beutel et al. 2020): what the server of a running federation receives, recorded alongside any strategy.

Both sides are wrapped by duck typing, so that nothing of `flwr` is imported here and every strategy stays what it is.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lightleak.core.errors import ObservationError
from lightleak.integrations.round_recorder import RoundRecorder, as_whole
from lightleak.integrations.state_dicts import State

ROUND_KEY = "server-round"
"""Where Flower's strategies tell a client the round, counted from 1."""


class CapturingStrategy:
    """Any strategy of `flwr.serverapp.strategy`, which it leaves to do its work, and a recorder that looks on.

    Every client is recorded against the weights that its own message carried. A client's number is its metric
    ``client_key`` where it sends one (Flower's ``partition-id``), else its node id.
    """

    def __init__(
        self,
        strategy: Any,
        recorder: RoundRecorder,
        *,
        client_key: str = "partition-id",
        rows_key: str | None = None,
    ) -> None:
        """Wrap a strategy.

        Args:
            strategy: the strategy that the server would use.
            recorder: where updates go.
            client_key: metric of a reply that numbers its client.
            rows_key: metric of a reply that counts its rows; None: the one by which the strategy weights.
        """
        self.strategy, self.recorder, self.client_key = strategy, recorder, client_key
        self.rows_key = rows_key or str(getattr(strategy, "weighted_by_key", "num-examples"))
        self._sent: dict[int, State] = {}

    def __getattr__(self, name: str) -> Any:
        """Whatever else the strategy has."""
        if name == "strategy":  # while unpickled, before __init__
            raise AttributeError(name)
        return getattr(self.strategy, name)

    def start(self, *arguments: Any, **settings: Any) -> Any:
        """Run the federation as the strategy does, through this wrapper."""
        return type(self.strategy).start(self, *arguments, **settings)

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> list[Any]:
        """The strategy's messages, noting what each client is sent.

        Raises:
            ObservationError: weights that are not the network of the recorder's view; before any client trains.
        """
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        states: dict[int, State] = {}
        self._sent = {}
        for message in messages:
            record = _only_arrays(message.content)
            if id(record) not in states:
                states[id(record)] = arrays_by_name(record)
                self.recorder.check(states[id(record)])
            self._sent[message.metadata.dst_node_id] = states[id(record)]
        return messages

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> Any:
        """Record the replies, then let the strategy aggregate them."""
        arrived = list(replies)
        whole = [reply for reply in arrived if reply.has_content()]
        for client, reply in sorted(((self._client(reply), reply) for reply in whole), key=_by_number):
            before = self._sent.get(reply.metadata.src_node_id)
            _record(self.recorder, server_round - 1, client, before, reply, self.rows_key)
        return self.strategy.aggregate_train(server_round, arrived)

    def _client(self, reply: Any) -> Any:
        """What a reply gives as the number of its client, be it a number or not."""
        return _merged(reply.content.metric_records).get(self.client_key, reply.metadata.src_node_id)


def capture_mod(recorder: RoundRecorder, rows_key: str = "num-examples", client_key: str = "partition-id") -> Any:
    """A client mod that records, on the client's side, what leaves it: ``ClientApp(mods=[capture_mod(recorder)])``.

    For a client that audits itself. Put it first in the list, so that it sees the update as the server will.

    Args:
        recorder: where updates go.
        rows_key: metric of the reply that counts the rows.
        client_key: entry of the node's configuration that numbers the client; without it the node id does.
    """

    def mod(message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        if message.metadata.message_type.partition(".")[0] != "train":
            return call_next(message, context)
        counted = as_whole(_merged(message.content.config_records).get(ROUND_KEY, 1))
        round_number = counted - 1 if isinstance(counted, int) else counted
        client = context.node_config.get(client_key, context.node_id)
        before = None
        with recorder.looking_on(round_number, client):
            if recorder.wants(round_number, client):
                before = arrays_by_name(_only_arrays(message.content))
        reply = call_next(message, context)
        if before is not None and reply.has_content():
            _record(recorder, round_number, client, before, reply, rows_key)
        return reply

    return mod


def arrays_by_name(record: Any) -> State:
    """The arrays of an ``ArrayRecord``, by name, or in their order where they were made of a plain list."""
    arrays = {name: array.numpy() for name, array in record.items()}
    plain = list(arrays) == [str(position) for position in range(len(arrays))]
    return list(arrays.values()) if plain else arrays


def _record(
    recorder: RoundRecorder, round_number: int, client: Any, before: State | None, reply: Any, rows_key: str
) -> None:
    with recorder.looking_on(round_number, client):
        if not recorder.wants(round_number, client):
            return
        if before is None:
            raise ObservationError("nothing was sent to it in this round")
        n_rows = _merged(reply.content.metric_records).get(rows_key, 0)
        recorder.receive(round_number, client, before, arrays_by_name(_only_arrays(reply.content)), n_rows)


def _by_number(pair: tuple[Any, Any]) -> tuple[bool, int]:
    """Replies come in the order of the clock; those whose client has no whole number come last."""
    client = as_whole(pair[0])
    return (False, client) if isinstance(client, int) else (True, 0)


def _merged(records: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Entries of all records; of equal names the last counts."""
    return {name: value for record in records.values() for name, value in record.items()}


def _only_arrays(content: Any) -> Any:
    records = list(content.array_records.values())
    if len(records) != 1:
        raise ObservationError(f"a message that trains must carry one ArrayRecord, got {list(content.array_records)}")
    return records[0]
