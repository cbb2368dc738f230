"""Rows as numbers, and which of them agree."""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from lightleak.core.certificate import NUMBERS_WITHIN

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Floats = np.ndarray[Any, np.dtype[np.float64]]


LABEL = -1
"""Column of `Rows.categories` with the class."""


@dataclass(frozen=True)
class Rows:
    """Rows as numbers.

    Attributes:
        codes: ``[n, K]`` category indices.
        numbers: ``[n, L]`` in the table's units.
        labels: ``[n]`` classes.
    """

    codes: Ints
    numbers: Floats
    labels: Ints

    @classmethod
    def of(cls, cells: tuple[Tensor, Tensor], labels: Tensor) -> "Rows":
        """Rows from category indices and numbers as an encoder's ``project`` returns them."""
        codes, numbers = cells
        return cls(codes.cpu().numpy(), numbers.double().cpu().numpy(), labels.cpu().numpy())

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Any) -> "Rows":
        return Rows(self.codes[rows], self.numbers[rows], self.labels[rows])

    @classmethod
    def together(cls, parts: "Sequence[Rows]") -> "Rows":
        """Several tables below each other."""
        columns = zip(*((part.codes, part.numbers, part.labels) for part in parts), strict=True)
        return cls(*(np.concatenate(column) for column in columns))

    @cached_property
    def categories(self) -> Ints:
        """Category indices and class, ``[n, K + 1]``."""
        return np.ascontiguousarray(np.column_stack([self.codes, self.labels]))


class RowIndex:
    """Finds rows that agree with others in all categories and the class, and in numbers within a tolerance.

    Args:
        rows: where to look.
        deviation: ``[L]`` of the numbers.
        without: columns of `Rows.categories` that do not count.
    """

    def __init__(self, rows: Rows, deviation: Floats, without: Collection[int] = ()) -> None:
        self._numbers, self._deviation, self._without = rows.numbers, deviation, without
        places: dict[Hashable, list[int]] = defaultdict(list)
        for place, key in enumerate(self._keys(rows)):
            places[key].append(place)
        self._places = {key: np.array(found) for key, found in places.items()}

    def fitting(self, rows: Rows, within: float | Bools = NUMBERS_WITHIN) -> Iterator[Ints]:
        """Yield for each row the places of the rows that fit it.

        Args:
            rows: what to look for.
            within: deviations by which numbers may differ; or by row, whether its numbers count at all (within
                `NUMBERS_WITHIN`).
        """
        counts = within if isinstance(within, np.ndarray) else np.ones(len(rows), dtype=bool)
        reach = self._deviation * (NUMBERS_WITHIN if isinstance(within, np.ndarray) else within)
        none = np.empty(0, dtype=np.int64)
        for i, key in enumerate(self._keys(rows)):
            places = self._places.get(key, none)
            if counts[i] and len(places):
                near = (np.abs(self._numbers[places] - rows.numbers[i]) <= reach).all(-1)
                places = places[near]
            yield places

    def _keys(self, rows: Rows) -> Iterator[bytes]:
        kept = np.delete(rows.categories, list(self._without), axis=1)
        yield from (row.tobytes() for row in kept)
