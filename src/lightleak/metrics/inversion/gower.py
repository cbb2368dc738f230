"""Gower's distance between rows of mixed columns, and the nearest private row (thesis Eq. 3.20 to 3.22).

All categories of a pair of rows are compared by one matrix product: a column of two categories is a sign, any other is
one-hot. A chunk of queries meets all rows at once; so 10^5 queries and 10^5 rows need the two tables as float32 and
two matrices of `PAIRS_AT_ONCE` numbers, 16 MiB, never a matrix of all pairs.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.core.devices import keep_freed_memory
from lightleak.core.errors import UsageError
from lightleak.data.schema import TableSchema
from lightleak.metrics.cells import Cells, Rows
from lightleak.metrics.inversion.table import as_cells, checked_labels, some_cells, take

PAIRS_AT_ONCE = 2**21
"""Distances in memory at a time: on a CPU 2**24 is no faster, 2**18 slower by half."""

SAME_DISTANCE = 1e-5
"""Summed partial distances that differ by less are one: what float32 makes of equal sums in another order."""


def column_ranges(rows: Rows, schema: TableSchema) -> Tensor:
    """Range R_k of every numerical column (thesis Eq. 3.21), float64 ``[m]``.

    Raises:
        DataError: rows do not fit the schema.
        UsageError: no rows.
    """
    numbers = some_cells(rows, schema, "rows").numbers
    return numbers.amax(0) - numbers.amin(0)


def nearest_rows(
    queries: Rows,
    rows: Rows,
    schema: TableSchema,
    ranges: Tensor | None = None,
    chunk: int | None = None,
    device: torch.device | str = "cpu",
) -> tuple[Tensor, Tensor]:
    """Gower's distance to the nearest row, and which row it is.

    A partial distance of numbers is not capped: it exceeds 1 where a query lies beyond the range of the rows by more
    than that range. In a column without a range (constant in the rows) any other number is at 1.

    Args:
        queries: q rows.
        rows: n rows.
        schema: their columns.
        ranges: R_k ``[m]``; None takes those of ``rows``.
        chunk: queries at a time; None takes as many as make `PAIRS_AT_ONCE` pairs.
        device: where the work is done.

    Returns:
        Distances, float64 ``[q]``, the mean over all columns; and indices, LongTensor ``[q]``. Both on the CPU. Of
        rows within `SAME_DISTANCE` any may be named.

    Raises:
        DataError: rows do not fit the schema.
        UsageError: no rows, ranges of another shape, or a chunk below 1.

    >>> import pandas as pd
    >>> from lightleak.data.schema import Column
    >>> columns = Column.integer("age"), Column.categorical("sex", ["F", "M"])
    >>> schema = TableSchema(columns, Column.categorical("ill", ["0", "1"]))
    >>> rows = pd.DataFrame({"age": [30, 50], "sex": ["F", "M"]})
    >>> nearest_rows(pd.DataFrame({"age": [35], "sex": ["F"]}), rows, schema)
    (tensor([0.1250], dtype=torch.float64), tensor([0]))
    """
    asked, known = as_cells(queries, schema), some_cells(rows, schema, "rows")
    space = GowerSpace.of(known, schema, ranges)
    found = [distances.min(1).indices.cpu() for _, distances in space.compare(asked, known, chunk=chunk, device=device)]
    index = torch.cat(found) if found else torch.empty(0, dtype=torch.long)
    return space.paired(asked, take(known, index)), index


@dataclass(frozen=True)
class ClosestPairs:
    """The nearest private row of its own class for every sample, class by class (thesis Table A.2).

    Attributes:
        distance: float64 ``[n]``, to the nearest private row of the sample's class; NaN where the class has no row.
        nearest: LongTensor ``[n]``, index of that row; -1 where there is none.
        per_class: mean of ``distance`` over the samples of each class, float64 ``[C]``; NaN without a pair.
        sample: LongTensor ``[C]``, index of the sample in the closest pair of each class; -1 without one.
    """

    distance: Tensor
    nearest: Tensor
    per_class: Tensor
    sample: Tensor

    @property
    def mean(self) -> float:
        """Mean distance over all samples that have a pair."""
        return float(self.distance.nanmean())

    def closest(self, label: int) -> tuple[int, int, float] | None:
        """Index of the sample, index of the private row and distance of the closest pair of a class."""
        sample = int(self.sample[label])
        return None if sample < 0 else (sample, int(self.nearest[sample]), float(self.distance[sample]))


def nearest_of_class(
    samples: Rows,
    labels: Tensor,
    private: Rows,
    private_labels: Tensor,
    schema: TableSchema,
    device: torch.device | str = "cpu",
) -> ClosestPairs:
    """Compare every sample with the private rows of its own class; ranges are those of all private rows.

    Args:
        samples: n reconstructed rows.
        labels: classes they were made for ``[n]``.
        private: private rows.
        private_labels: their classes.
        schema: the columns; its label has the classes.
        device: where the work is done.

    Raises:
        DataError: rows do not fit the schema.
        UsageError: labels do not fit the rows or the classes, or no private rows.
    """
    made, known = as_cells(samples, schema), some_cells(private, schema, "private rows")
    classes = checked_labels(labels, len(made.codes), schema.n_classes)
    known_classes = checked_labels(private_labels, len(known.codes), schema.n_classes)
    ranges = column_ranges(known, schema)
    distance = torch.full((len(classes),), torch.nan, dtype=torch.float64)
    nearest, closest = torch.full_like(classes, -1), torch.full((schema.n_classes,), -1)
    per_class = torch.full((schema.n_classes,), torch.nan, dtype=torch.float64)
    for label in range(schema.n_classes):
        at, among = (classes == label).nonzero()[:, 0], (known_classes == label).nonzero()[:, 0]
        if len(at) and len(among):
            found, index = nearest_rows(take(made, at), take(known, among), schema, ranges, device=device)
            distance[at], nearest[at] = found, among[index]
            per_class[label], closest[label] = found.mean(), at[found.argmin()]
    return ClosestPairs(distance, nearest, per_class, closest)


@dataclass(frozen=True)
class GowerSpace:
    """What Gower's distance needs to know of the columns.

    Attributes:
        widths: categories of each categorical column ``[K]``.
        ranges: R_k of each numerical column, float64 ``[m]``; 0 for a constant one.
        origin: a number of each numerical column, float64 ``[m]``; that of a constant one.
    """

    widths: tuple[int, ...]
    ranges: Tensor
    origin: Tensor

    @classmethod
    def of(cls, rows: Cells, schema: TableSchema, ranges: Tensor | None = None) -> "GowerSpace":
        """The space of these rows; ``ranges`` in place of their own.

        Raises:
            UsageError: ranges of another shape, negative or not finite.
        """
        own = rows.numbers.amax(0) - rows.numbers.amin(0)
        ranges = own if ranges is None else ranges.detach().cpu().double()
        if ranges.shape != own.shape or not bool((ranges.isfinite() & (ranges >= 0)).all()):
            raise UsageError(f"ranges must be {len(own)} finite numbers of at least 0, got {ranges.tolist()}")
        return cls(tuple(column.width for column in schema.categorical), ranges, rows.numbers.amin(0))

    @property
    def columns(self) -> int:
        """Number of columns p."""
        return len(self.widths) + len(self.ranges)

    def compare(
        self, queries: Cells, rows: Cells, chunk: int | None = None, device: torch.device | str = "cpu"
    ) -> Iterator[tuple[slice, Tensor]]:
        """Summed partial distances of a chunk of queries to all rows, chunk by chunk.

        Yields:
            Which queries, and float32 ``[chunk, n]`` on ``device``: ``columns`` times Gower's distance.

        Raises:
            UsageError: a chunk below 1.
        """
        chunk = max(1, PAIRS_AT_ONCE // len(rows.codes)) if chunk is None else chunk
        if chunk < 1:
            raise UsageError(f"chunk must be at least 1, got {chunk}")
        keep_freed_memory()  # every chunk needs the same blocks again
        asked, known = self._scaled(queries.numbers).to(device), self._scaled(rows.numbers).to(device)
        categories = self._categories(rows.codes).to(device)
        asked_categories = self._categories(queries.codes, of_queries=True).to(device)
        for start in range(0, len(asked), chunk):
            at = slice(start, min(start + chunk, len(asked)))
            # Sums of halves: exact in float32, and before the fractions of the numbers are added.
            distances = asked_categories[at] @ categories.T
            if len(self.ranges):
                distances += torch.cdist(asked[at], known, p=1)
            yield at, distances

    def paired(self, first: Cells, second: Cells) -> Tensor:
        """Gower's distance of row i to row i, float64 ``[n]``, on the CPU."""
        moved = (first.numbers - second.numbers).abs()
        partial = torch.where(self.ranges > 0, moved / self.ranges, (moved > 0).double())
        return (partial.sum(1) + (first.codes != second.codes).sum(1)) / self.columns

    def _scaled(self, numbers: Tensor) -> Tensor:
        """Numbers whose absolute difference is the partial distance, float32 ``[n, m]``."""
        moved = numbers - self.origin
        return torch.where(self.ranges > 0, moved / self.ranges, (moved != 0).double()).float()

    def _categories(self, codes: Tensor, of_queries: bool = False) -> Tensor:
        """Float32 ``[n, w]`` such that the product of a query with a row is the number of differing categories."""
        onehot = [width for width in self.widths if width != 2]
        columns = torch.tensor([width != 2 for width in self.widths], dtype=torch.bool)
        signs = (codes[:, ~columns] * 2 - 1).float()
        starts = torch.tensor([0, *onehot], dtype=torch.long).cumsum(0)
        places = torch.zeros(len(codes), int(starts[-1])).scatter_(1, codes[:, columns] + starts[:-1], 1.0)
        ones = torch.ones(len(codes), 1)
        if not of_queries:
            return torch.cat([ones, signs, places], 1)
        # sum (1 - s s') / 2 over signs, plus sum (1 - e e') over the others.
        return torch.cat([ones * (signs.shape[1] / 2 + len(onehot)), -signs / 2, -places], 1)
