"""Which person each private row of captured updates is, where no audit has recorded it."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lightleak.core.errors import DataError, UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.data.encoder import TableEncoder
from lightleak.data.prepared import PreparedTable
from lightleak.metrics.people.population import Population
from lightleak.metrics.people.rows import Ints, RowIndex, Rows
from lightleak.metrics.score import true_rows

SAME_NUMBERS = 1e-4
"""Deviations by which the numbers of a row may differ from those of the table, which another order of float32
arithmetic explains."""

DIGEST_BITS = 60
"""Of the number of a person who is known by the row alone: two in a million rows get the same with probability 1e-6."""


@dataclass(frozen=True)
class Behind:
    """What is behind a captured update.

    Attributes:
        truth: the private rows.
        encoder: of these.
        epoch: when it was captured; epoch or round.
    """

    truth: GroundTruth
    encoder: TableEncoder
    epoch: int = 0


def identify(
    captured: Mapping[str, Behind], table: PreparedTable | None = None, seed: int = 0
) -> tuple[Population, dict[str, Ints]]:
    """Find the person of each row behind captured updates.

    With a table, a person is one of its training rows; equal ones are taken in turn within an epoch, in which each
    occurs once. Without, a person is the number that the captures record (`GroundTruth.ids`). Where one has none, or
    two give different rows the same number, a person is the row itself: equal rows of one update are different people,
    equal rows of different updates are the same.

    Args:
        captured: by name of the update, what is behind it; at least one.
        table: the table whose training rows they are.
        seed: root seed of `Population`.

    Returns:
        The population, and for each update the places of its rows in ``Population.sent``.

    Raises:
        UsageError: the updates are of tables with different columns.
        DataError: a row is not a training row of ``table``.
    """
    encoder = next(iter(captured.values())).encoder
    if any(one.encoder.schema != encoder.schema for one in captured.values()):
        raise UsageError("the updates are of tables with different columns; attack those of each table on their own")
    rows = {name: Rows.of(true_rows(one.truth, one.encoder).cells, one.truth.labels) for name, one in captured.items()}
    if table is not None:
        if table.schema != encoder.schema:
            raise UsageError(
                "the columns of the table are not those of the updates; pass the table they were made from"
            )
        population = Population.of(table.table, encoder, table.marginals, seed)
        return population, _in_table(captured, rows, population)
    persons = _recorded(captured, rows) or {name: _digests(of) for name, of in rows.items()}
    names, first = np.unique(np.concatenate(list(persons.values())), return_index=True)
    everyone = Rows.together(list(rows.values()))
    where = pd.Index([f"{name}:{row}" for name, of in rows.items() for row in range(len(of))])
    population = Population(encoder, everyone[first], everyone[:0], None, seed, where[first], names)
    return population, {name: np.searchsorted(names, of) for name, of in persons.items()}


def _in_table(captured: Mapping[str, Behind], rows: Mapping[str, Rows], population: Population) -> dict[str, Ints]:
    """The place of every row in the table; of equal training rows, the next one for each that occurs in an epoch."""
    index, deviation = RowIndex(population.sent, population.deviation), population.deviation
    found, of_epoch = {}, defaultdict[int, Counter[int]](Counter)
    for name, of in rows.items():
        taken, places = of_epoch[captured[name].epoch], []
        for row, fitting in enumerate(index.fitting(of, SAME_NUMBERS)):
            if not len(fitting):
                raise DataError(f"row {row} of update {name} is not a training row of the table")
            apart = (np.abs(population.sent.numbers[fitting] - of.numbers[row]) / deviation).max(-1, initial=0.0)
            nearest = fitting[apart == apart.min()]
            places.append(nearest[taken[nearest[0]] % len(nearest)])
            taken[nearest[0]] += 1
        found[name] = np.array(places, dtype=np.int64)
    return found


def _recorded(captured: Mapping[str, Behind], rows: Mapping[str, Rows]) -> dict[str, Ints] | None:
    """The numbers that the captures record; None where one is missing or stands for different rows."""
    found = {}
    row_of: dict[int, set[bytes]] = defaultdict(set)
    for name, one in captured.items():
        if one.truth.ids is None:
            return None
        found[name] = one.truth.ids.cpu().numpy()
        for person, row in zip(found[name].tolist(), _contents(rows[name]), strict=True):
            row_of[person].add(row)
    return None if any(len(different) > 1 for different in row_of.values()) else found


def _digests(rows: Rows) -> Ints:
    """A number for each row from its content, and from how many rows above equal it."""
    copies: Counter[bytes] = Counter()
    found = []
    for row in _contents(rows):
        digest = hashlib.sha256(row + copies[row].to_bytes(8, "little")).digest()
        found.append(int.from_bytes(digest[:8], "little") >> (64 - DIGEST_BITS))
        copies[row] += 1
    return np.array(found, dtype=np.int64)


def _contents(rows: Rows) -> Sequence[bytes]:
    numbers = rows.numbers.astype(np.float32) + 0.0  # float32: the precision of the inputs; -0.0 is 0.0
    return [a.tobytes() + b.tobytes() for a, b in zip(rows.categories, numbers, strict=True)]
