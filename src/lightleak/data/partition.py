"""Who holds which features in vertical federated learning."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np

from lightleak.core.errors import UsageError
from lightleak.data.schema import TableSchema


def partition_columns(
    schema: TableSchema,
    ratio: Sequence[float] | None = None,
    explicit: Sequence[Sequence[str]] | None = None,
    by: Literal["features", "width"] = "features",
) -> tuple[tuple[str, ...], ...]:
    """Deal features out to the parties of vertical federated learning; no feature is ever torn apart.

    (The published ProVFL code moves one one-hot column of a feature to the victim and leaves the others with the
    adversary, from which the victim's property can then be read off.)

    Args:
        schema: the table's schema.
        ratio: relative share of each party; default: two equal shares (ProVFL, Sec. VI-A).
        explicit: the column names of each party, together every feature once; excludes ``ratio``.
        by: shares count ``features``, or encoded positions (``width``), met as closely as whole features allow.

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
        if ratio is not None:
            raise UsageError("explicit lists of columns exclude ratio")
        return _explicit(schema, explicit)
    shares = np.asarray([1, 1] if ratio is None else ratio, dtype=np.float64)
    names = schema.names
    if not 1 <= len(shares) <= len(names):
        raise UsageError(f"the number of parties must be between 1 and {len(names)} (features), got {len(shares)}")
    if not (np.isfinite(shares).all() and (shares > 0).all()):
        raise UsageError(f"ratio must hold positive numbers, got {list(shares)}")
    weights = np.asarray([1 if by == "features" else column.width for column in schema.columns], dtype=np.float64)
    edges = [0, *_cuts(weights, shares / shares.sum()), len(names)]
    return tuple(names[start:end] for start, end in pairwise(edges))


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
