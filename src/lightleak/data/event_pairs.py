"""Which items occur for which unit (drugs of a hospital stay, say), from event files too large to hold in memory."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from lightleak.core.errors import DataError
from lightleak.data.column import category_text
from lightleak.data.sources import reading

CHUNK_ROWS = 1_000_000
_MOST_ITEMS = 2**24  # a pair is one int64: position of the unit times this, plus index of the item


@dataclass(frozen=True)
class EventPairs:
    """Every (unit, item) that occurs, once.

    Attributes:
        units: ``[m]`` position of the unit.
        items: ``[m]`` index of the item.
        names: names of the items.
        n_units: number of units, those without any item among them.
    """

    units: np.ndarray
    items: np.ndarray
    names: tuple[str, ...]
    n_units: int

    @property
    def items_per_unit(self) -> np.ndarray:
        """Number of distinct items of each unit, int64 ``[n_units]``."""
        return np.bincount(self.units, minlength=self.n_units)

    def most_frequent(self, k: int | None = None) -> dict[str, np.ndarray]:
        """For each of the ``k`` items of most units, or of all, which units have it: booleans ``[n_units]``.

        Equally frequent items are taken by name; the result is in the order of names.
        """
        counts = np.bincount(self.items, minlength=len(self.names))
        ranking = sorted(range(len(self.names)), key=lambda item: (-counts[item], self.names[item]))
        column_of = np.full(len(self.names), -1)
        chosen = sorted(ranking[:k], key=lambda item: self.names[item])
        column_of[chosen] = np.arange(len(chosen))
        columns = column_of[self.items]
        bits = np.zeros((len(chosen), self.n_units), dtype=bool)
        bits[columns[columns >= 0], self.units[columns >= 0]] = True
        return {self.names[item]: of_item for item, of_item in zip(chosen, bits, strict=True)}


def read_event_pairs(
    path: Path, units: pd.Index, unit_column: str, item_column: str, only: tuple[str, str] | None = None
) -> EventPairs:
    """Read a CSV file of events, gzipped or not, in chunks; memory holds one chunk and the distinct pairs.

    Args:
        path: the file; an event without unit or item, or of an unknown unit, is left out.
        units: whole-number names of the units, each once.
        unit_column: column with the unit of each event.
        item_column: column with its item.
        only: a column and the value that an event must have there.

    Raises:
        DataError: the file is damaged or lacks a column.
    """
    wanted = [unit_column, item_column, *(only[:1] if only else ())]
    index_of: dict[str, int] = {}
    pairs, fresh, n_fresh = np.empty(0, dtype=np.int64), [], 0
    with reading(path), pd.read_csv(path, usecols=wanted, chunksize=CHUNK_ROWS, low_memory=False) as chunks:
        for chunk in chunks:
            if only is not None:
                chunk = chunk[chunk[only[0]] == only[1]]
            rows = units.get_indexer(pd.Index(chunk[unit_column].fillna(-1).astype("int64")))
            codes, distinct = pd.factorize(chunk[item_column])
            items = np.asarray([index_of.setdefault(category_text(item), len(index_of)) for item in distinct] + [0])
            known = (rows >= 0) & (codes >= 0)
            fresh.append(np.unique(rows[known] * _MOST_ITEMS + items[codes[known]]))
            n_fresh += len(fresh[-1])
            if n_fresh > max(len(pairs), CHUNK_ROWS):  # merged as often as the total doubles
                pairs, fresh, n_fresh = np.unique(np.concatenate([pairs, *fresh])), [], 0
    if len(index_of) > _MOST_ITEMS:
        raise DataError(f"{path}: column {item_column!r} must have at most {_MOST_ITEMS} items, got {len(index_of)}")
    pairs = np.unique(np.concatenate([pairs, *fresh]))
    return EventPairs(pairs // _MOST_ITEMS, pairs % _MOST_ITEMS, tuple(index_of), len(units))
