"""What a FedAvg update must tell before its training can be simulated; everything else is refused before any work."""

from lightleak.core.errors import ObservationError, UnsupportedError
from lightleak.core.observations import ClientUpdate, ProtocolFacts


def require_fedavg(name: str, update: ClientUpdate) -> None:
    """Check that an update is a weight delta of local SGD whose facts agree with each other.

    Args:
        name: of the attack, for messages.
        update: the observation.

    Raises:
        ObservationError: a gradient; an aggregate that does not say of how many clients; facts that contradict each
            other; or no learning rate.
        UnsupportedError: another loss or optimizer, or an aggregate of clients with unequal numbers of rows.
    """
    facts = update.facts
    if update.kind != "delta":
        raise ObservationError(f"{name} simulates local training (FedAvg); this update is one FedSGD gradient")
    if facts.loss != "cross_entropy":
        raise UnsupportedError(f"{name} needs the loss 'cross_entropy', got {facts.loss!r}")
    if facts.optimizer != "sgd":
        raise UnsupportedError(f"{name} simulates local SGD; the clients trained with {facts.optimizer!r}")
    if facts.learning_rate is None or not facts.learning_rate > 0:
        raise ObservationError(f"{name} needs the local learning rate, got {facts.learning_rate!r}")
    rows_per_client(name, facts)
    local_epochs(name, facts)


def rows_per_client(name: str, facts: ProtocolFacts) -> int:
    """Rows of each client behind an update.

    Raises:
        ObservationError: the number of clients is not stated, or their rows do not sum up.
        UnsupportedError: clients with unequal numbers of rows.
    """
    clients = facts.n_clients
    if clients is None:
        raise ObservationError(f"{name}: the update aggregates clients, but does not say how many (n_clients)")
    rows = facts.client_rows or (facts.n_rows // clients,) * clients
    if sum(rows) != facts.n_rows:
        raise ObservationError(
            f"{name}: {clients} clients with rows {list(rows)} do not make up the update's {facts.n_rows} rows"
        )
    if len(set(rows)) > 1:
        raise UnsupportedError(f"{name} attacks aggregates of clients with equally many rows, got {list(rows)}")
    return rows[0]


def local_epochs(name: str, facts: ProtocolFacts) -> int | None:
    """Local epochs that the facts tell or imply; None where they leave it open (App. C.4).

    Raises:
        ObservationError: the facts contradict each other, or tell too little.
    """
    rows, steps, epochs = rows_per_client(name, facts), facts.local_steps, facts.epochs
    batches = None if facts.batch_size is None else -(-rows // facts.batch_size)
    if steps is None:
        if epochs is None or batches is None:
            raise ObservationError(
                f"{name} needs the client's epochs and batch size, or the number of its steps (local_steps)"
            )
        return epochs
    for what, part in (("epochs", epochs), ("batches per epoch", batches)):
        if part is not None and steps % part:
            raise ObservationError(f"{name}: {steps} local steps contradict {part} {what} of {rows} rows")
    if epochs is not None and batches is not None and epochs * batches != steps:
        raise ObservationError(
            f"{name}: {steps} local steps contradict {epochs} epochs of {batches} batches ({rows} rows in batches of "
            f"{facts.batch_size})"
        )
    if epochs is None and batches is not None:
        return steps // batches
    if epochs is not None and batches is None:
        require_cut(name, rows, steps // epochs)
    return epochs


def can_be_cut(rows: int, batches: int) -> bool:
    """Whether rows make so many batches of one size, the last perhaps smaller, none empty.

    >>> can_be_cut(10, 4), can_be_cut(10, 6)
    (True, False)
    """
    return -(-rows // -(-rows // batches)) == batches


def require_cut(name: str, rows: int, batches: int) -> None:
    """Check `can_be_cut`.

    Raises:
        ObservationError: some batch would be empty.
    """
    if not can_be_cut(rows, batches):
        raise ObservationError(f"{name}: {rows} rows cannot be cut into {batches} batches of equal size per epoch")


def total_steps(name: str, facts: ProtocolFacts) -> int:
    """Optimizer steps of each client (U); errors as for `local_epochs`."""
    epochs = local_epochs(name, facts)
    if facts.local_steps is not None:
        return facts.local_steps
    assert epochs is not None and facts.batch_size is not None  # `local_epochs` refuses the rest
    return epochs * -(-rows_per_client(name, facts) // facts.batch_size)
