"""Who holds what: rows over clients (horizontal federated learning), features over parties (vertical)."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from torch import Tensor

from lightleak.core.errors import DataError, UsageError
from lightleak.core.seeds import numpy_generator
from lightleak.data.schema import TableSchema

Rows = tuple[np.ndarray, ...]


def partition_iid(n_rows: int, n_clients: int, seed: int) -> Rows:
    """Deal rows out at random; sizes differ by at most one.

    Returns:
        One ascending int64 array of row indices per client; together they cover every row once.

    Raises:
        DataError: fewer rows than clients.
        UsageError: no client.

    >>> [len(rows) for rows in partition_iid(10, 3, seed=0)]
    [4, 3, 3]
    """
    _check_sizes(n_rows, n_clients, 1)
    order = numpy_generator(seed, "partition-iid", n_clients).permutation(n_rows)
    return tuple(np.sort(rows) for rows in np.array_split(order, n_clients))


def partition_dirichlet(
    labels: np.ndarray | Tensor | Sequence[int] | Sequence[str],
    n_clients: int,
    alpha: float,
    seed: int,
    min_rows: int = 1,
) -> Rows:
    """Deal the rows of each class out in proportions drawn from a symmetric Dirichlet distribution.

    A small ``alpha`` gives each client few classes, a large one approaches `partition_iid` (label skew as in Hsu et
    al. 2019, arXiv:1909.06335). A client that would get fewer than ``min_rows`` takes rows at random from the one that
    then has most.

    Args:
        labels: ``[n_rows]`` class of each row.
        n_clients: number of clients.
        alpha: concentration, above 0.
        seed: root seed.
        min_rows: rows every client has at least.

    Returns:
        One ascending int64 array of row indices per client; together they cover every row once.

    Raises:
        DataError: fewer rows than ``n_clients * min_rows``.
        UsageError: ``alpha`` is not positive and finite, or no client.
    """
    classes = np.unique(np.asarray(labels), return_inverse=True)[1].reshape(-1)
    _check_sizes(len(classes), n_clients, min_rows)
    if not (np.isfinite(alpha) and alpha > 0):
        raise UsageError(f"alpha must be positive and finite, got {alpha}")
    rng = numpy_generator(seed, "partition-dirichlet", n_clients)
    owner = np.empty(len(classes), dtype=np.int64)
    for c in range(int(classes.max()) + 1):
        rows = rng.permutation(np.flatnonzero(classes == c))
        cuts = np.floor(np.cumsum(_proportions(rng, n_clients, alpha))[:-1] * len(rows) + rng.random()).astype(np.int64)
        for client, share in enumerate(np.split(rows, np.minimum(cuts, len(rows)))):
            owner[share] = client
    _fill_up(owner, n_clients, min_rows, rng)
    return tuple(np.flatnonzero(owner == client) for client in range(n_clients))


def partition_columns(
    schema: TableSchema,
    n_parties: int = 2,
    ratio: Sequence[float] | None = None,
    explicit: Sequence[Sequence[str]] | None = None,
    by: Literal["features", "width"] = "features",
    seed: int | None = None,
) -> tuple[tuple[str, ...], ...]:
    """Deal features out to the parties of vertical federated learning; no feature is ever torn apart.

    (The published ProVFL code moves one one-hot column of a feature to the victim and leaves the others with the
    adversary, from which the victim's property can then be read off.)

    Args:
        schema: the table's schema.
        n_parties: number of parties, where neither ``ratio`` nor ``explicit`` says so.
        ratio: relative share of each party; default: equal shares (ProVFL, Sec. VI-A).
        explicit: the column names of each party, together every feature once; excludes ``ratio`` and ``seed``.
        by: shares count ``features``, or encoded positions (``width``), met as closely as whole features allow.
        seed: shuffle the features before dealing them out; ``None``: the order of the schema.

    Returns:
        Column names of each party, in the order of the schema; every party has at least one.

    Raises:
        UsageError: shares or lists that cannot be.

    >>> from lightleak.data.schema import Column
    >>> columns = tuple(Column.integer(name) for name in "abcd")
    >>> partition_columns(TableSchema(columns, Column.categorical("y", ["0", "1"])), ratio=[1, 3])
    (('a',), ('b', 'c', 'd'))
    """
    if explicit is not None:
        if ratio is not None or seed is not None:
            raise UsageError("explicit lists of columns exclude ratio and seed")
        return _explicit(schema, explicit)
    shares = np.asarray([1.0] * n_parties if ratio is None else ratio, dtype=np.float64)
    names = list(schema.names)
    if not 1 <= len(shares) <= len(names):
        raise UsageError(f"the number of parties must be between 1 and {len(names)} (features), got {len(shares)}")
    if not (np.isfinite(shares).all() and (shares > 0).all()):
        raise UsageError(f"ratio must hold positive numbers, got {list(shares)}")
    order = (
        np.arange(len(names)) if seed is None else numpy_generator(seed, "partition-columns").permutation(len(names))
    )
    weights = np.asarray([1 if by == "features" else schema.columns[i].width for i in order], dtype=np.float64)
    parties = np.split(order, _cuts(weights, shares / shares.sum()))
    return tuple(tuple(names[i] for i in sorted(party)) for party in parties)


def _cuts(weights: np.ndarray, shares: np.ndarray) -> list[int]:
    """Positions that cut the features into runs of about the given shares of the total weight, none empty."""
    reached = np.concatenate([[0.0], np.cumsum(weights)]) / weights.sum()
    cuts: list[int] = []
    for k, goal in enumerate(np.cumsum(shares)[:-1], start=1):
        lowest, highest = (cuts[-1] if cuts else 0) + 1, len(weights) - (len(shares) - k)
        cuts.append(lowest + int(np.abs(reached[lowest : highest + 1] - goal).argmin()))
    return cuts


def _explicit(schema: TableSchema, lists: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    named = [name for party in lists for name in party]
    unknown = sorted(set(named) - set(schema.names))
    repeated = sorted({name for name in named if named.count(name) > 1})
    absent = [name for name in schema.names if name not in named]
    for problem, names in (("unknown", unknown), ("named twice", repeated), ("of no party", absent)):
        if names:
            raise UsageError(f"the parties' columns must cover every feature once; {problem}: {names}")
    if not all(lists):
        raise UsageError("every party must hold at least one column, got an empty list")
    return tuple(tuple(name for name in schema.names if name in set(party)) for party in lists)


def _proportions(rng: np.random.Generator, n_clients: int, alpha: float) -> np.ndarray:
    """A draw from the symmetric Dirichlet distribution; where ``alpha`` underflows it, one client gets everything."""
    shares = rng.dirichlet(np.full(n_clients, alpha))
    if np.isfinite(shares).all() and shares.sum() > 0:
        return shares
    return np.eye(n_clients)[rng.integers(n_clients)]


def _fill_up(owner: np.ndarray, n_clients: int, min_rows: int, rng: np.random.Generator) -> None:
    sizes = np.bincount(owner, minlength=n_clients)
    while (poor := int(sizes.argmin())) != (rich := int(sizes.argmax())) and sizes[poor] < min_rows:
        # Half the difference at most, so that the giver never falls below the taker.
        n_moved = max(1, min(min_rows - int(sizes[poor]), int(sizes[rich] - sizes[poor]) // 2))
        owner[rng.choice(np.flatnonzero(owner == rich), n_moved, replace=False)] = poor
        sizes[poor] += n_moved
        sizes[rich] -= n_moved


def _check_sizes(n_rows: int, n_clients: int, min_rows: int) -> None:
    if n_clients < 1 or min_rows < 1:
        raise UsageError(f"n_clients and min_rows must be at least 1, got {n_clients} and {min_rows}")
    if n_rows < n_clients * min_rows:
        raise DataError(
            f"{n_clients} clients of at least {min_rows} rows need {n_clients * min_rows} rows, got {n_rows}"
        )
