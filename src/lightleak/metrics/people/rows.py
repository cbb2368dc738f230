"""Rows as numbers, the table that they come from, and which rows agree."""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from lightleak.core.certificate import NUMBERS_WITHIN
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals
from lightleak.data.schema import TableSchema
from lightleak.data.table import Table

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Floats = np.ndarray[Any, np.dtype[np.float64]]


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


@dataclass(frozen=True)
class Population:
    """All rows of the table: those that clients hold, and the test rows, which nobody sent.

    Attributes:
        encoder: of the clients.
        sent: rows of the training part; a person is the number of a row.
        others: test rows.
        marginals: what a guess is drawn from; None where the table is not known: ``sent`` are the rows behind the
            updates then, ``others`` is empty, and risks that take the rest of the table are not measured.
        seed: root seed of guesses and of the split of the test rows.
        index: labels of the training rows in the source of the table.
        names: what each row of ``sent`` is called where that is not its number.
    """

    encoder: TableEncoder
    sent: Rows
    others: Rows
    marginals: Marginals | None
    seed: int = 0
    index: pd.Index | None = None
    names: Ints | None = None

    @classmethod
    def of(cls, table: Table, encoder: TableEncoder, marginals: Marginals, seed: int = 0) -> "Population":
        """The rows of a table as the clients' encoder gives them back."""
        sent, others = (
            Rows.of(encoder.project(encoder.encode(frame), clamp=False), encoder.encode_labels(frame))
            for frame in (table.train, table.test)
        )
        return cls(encoder, sent, others, marginals, seed, table.train_index)

    @property
    def schema(self) -> TableSchema:
        """The columns."""
        return self.encoder.schema

    @cached_property
    def deviation(self) -> Floats:
        """``[L]`` standard deviations of the numerical columns that the server knows."""
        return np.asarray(self.encoder.deviation.double().cpu().numpy())

    @cached_property
    def everyone(self) -> Rows:
        """All rows."""
        return Rows.together([self.sent, self.others])

    @cached_property
    def sharing(self) -> Ints:
        """By person: how many other rows of the table are equal in every column and the label."""
        both = self.everyone
        _, of, times = np.unique(
            np.column_stack([both.categories, both.numbers]), axis=0, return_inverse=True, return_counts=True
        )
        return np.asarray(times[of.reshape(-1)] - 1)[: len(self.sent)]

    def text(self, column: str, ids: Ints) -> list[str]:
        """Cells of a feature or of the label of those people, as text."""
        if column == self.schema.label.name:
            return [self.schema.label.categories[code] for code in self.sent.labels[ids]]
        found = self.schema.column(column)
        if found.is_numerical:
            return [f"{value:g}" for value in self.sent.numbers[ids, self.schema.numerical.index(found)]]
        return [found.categories[code] for code in self.sent.codes[ids, self.schema.categorical.index(found)]]


class RowIndex:
    """Finds rows that agree with others in all categories and the class, and in numbers within a tolerance.

    Args:
        rows: where to look.
        deviation: ``[L]`` of the numbers.
        without: column of `Rows.categories` that does not count.
    """

    def __init__(self, rows: Rows, deviation: Floats, without: int | None = None) -> None:
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
        kept = rows.categories if self._without is None else np.delete(rows.categories, self._without, axis=1)
        yield from (row.tobytes() for row in kept)
