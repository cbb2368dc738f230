"""Column-pair trends: how alike every two columns hang together in two tables (thesis Sec. 3.6.5 to 3.6.8).

Two numbers score by their correlations (CorrelationSimilarity), two categories by their contingency tables
(ContingencySimilarity), a number and a category by the contingency table of the number cut into bins. Values equal
those of sdmetrics (tested), which takes one pair at a time; here all tables come from one product of one-hot matrices.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from lightleak.core.errors import UsageError
from lightleak.data.schema import TableSchema
from lightleak.metrics.cells import Cells, Rows
from lightleak.metrics.inversion.table import two_tables

Bins = Literal["real", "own"]

N_BINS = 10  # of numpy.histogram_bin_edges, which sdmetrics uses
_ROWS_AT_ONCE = 2**13  # one-hot rows in memory at a time; their counts are exact in float32


@dataclass(frozen=True)
class PairTrends:
    """Similarity of every pair of columns.

    Attributes:
        columns: names in order.
        matrix: float64 ``[columns, columns]``, symmetric, in [0, 1]; NaN on the diagonal and where a correlation is not
            defined, since a column is constant in one of the tables.
        score: mean over the pairs that have a number; NaN without any.
        undefined: number of pairs without one.
    """

    columns: tuple[str, ...]
    matrix: np.ndarray
    score: float
    undefined: int


def pair_trends(
    real: Rows, synthetic: Rows, schema: TableSchema, bins: Bins = "real", device: torch.device | str = "cpu"
) -> PairTrends:
    """Similarity of all pairs of columns (thesis Eq. 3.18 and 3.19) and their mean, the score of Table 5.5.

    Args:
        real: private rows.
        synthetic: reconstructed rows.
        schema: their columns.
        bins: where numbers are cut into 10 bins of equal width: ``real``, both tables at the edges of the real column,
            as ContingencySimilarity does; ``own``, each table at its own edges, as the ColumnPairTrends of sdmetrics'
            reports does, which does not see a column that is shifted or stretched.
        device: where the counting is done.

    Raises:
        DataError: rows do not fit the schema.
        UsageError: a table without rows, or an unknown rule for the bins.
    """
    if bins not in get_args(Bins):
        raise UsageError(f"bins must be one of {', '.join(get_args(Bins))}, got {bins!r}")
    tables = two_tables(real, synthetic, schema)
    is_number = np.array([column.is_numerical for column in schema.columns])
    matrix = _contingency_similarity(tables, schema, is_number, bins, device)
    matrix[np.ix_(is_number, is_number)] = _correlation_similarity(tables)
    np.fill_diagonal(matrix, np.nan)
    pairs = matrix[np.triu_indices(len(matrix), 1)]
    known = pairs[~np.isnan(pairs)]
    score = float(known.mean()) if len(known) else float("nan")
    return PairTrends(schema.names, matrix, score, len(pairs) - len(known))


def _correlation_similarity(tables: list[Cells]) -> np.ndarray:
    """``1 - |difference of correlations| / 2`` of all numerical columns, ``[m, m]``."""
    real, synthetic = (_correlations(cells.numbers) for cells in tables)
    return (1 - (real - synthetic).abs() / 2).numpy()


def _correlations(numbers: Tensor) -> Tensor:
    """Pearson's correlations of the columns of ``[n, m]``, float64 ``[m, m]``; NaN with a constant column."""
    centered = numbers - numbers.mean(0)
    scaled = centered / centered.norm(dim=0)
    found = (scaled.T @ scaled).clamp(-1, 1)
    constant = numbers.amin(0) == numbers.amax(0)  # by value: a mean rounds, so a deviation may miss 0
    found[constant] = found[:, constant] = torch.nan
    return found


def _contingency_similarity(
    tables: list[Cells], schema: TableSchema, is_number: np.ndarray, bins: Bins, device: torch.device | str
) -> np.ndarray:
    """``1 - total variation distance`` of the contingency tables of all pairs, numbers cut: ``[columns, columns]``."""
    widths = np.where(is_number, N_BINS + 1, [column.width for column in schema.columns])
    starts = np.cumsum(widths) - widths
    edges = [_edges(cells.numbers.numpy()) for cells in tables]
    if bins == "real":
        for of_column in edges[0]:
            of_column[[0, -1]] = -np.inf, np.inf
        edges[1] = edges[0]
    total, shares = int(widths.sum()), []
    for cells, of_table in zip(tables, edges, strict=True):
        at = torch.empty(len(cells.codes), len(widths), dtype=torch.long)
        at[:, ~is_number] = cells.codes
        for number, (column, of_column) in enumerate(zip(np.flatnonzero(is_number), of_table, strict=True)):
            cut = np.digitize(cells.numbers[:, number].numpy(), of_column) - 1  # the greatest value is bin N_BINS
            at[:, column] = torch.as_tensor(cut)
        shares.append(_cooccurrences(at + torch.as_tensor(starts), total, device) / len(at))
    gaps = (shares[0] - shares[1]).abs().numpy()
    distance = np.add.reduceat(np.add.reduceat(gaps, starts, axis=0), starts, axis=1) / 2
    return 1 - (distance + distance.T) / 2  # the two halves differ by the order of their sums


def _edges(numbers: np.ndarray) -> list[np.ndarray]:
    """Edges of 10 bins of equal width from the least to the greatest value of every column."""
    return [np.histogram_bin_edges(column, N_BINS) for column in numbers.T]


def _cooccurrences(at: Tensor, width: int, device: torch.device | str) -> Tensor:
    """Number of rows in which two one-hot positions are both set, float64 ``[width, width]``.

    Args:
        at: set positions of each row, ``[n, columns]``.
        width: one-hot positions.
        device: where to count.
    """
    counts = torch.zeros(width, width, dtype=torch.float64)
    for some in at.split(_ROWS_AT_ONCE):
        onehot = torch.zeros(len(some), width, device=device).scatter_(1, some.to(device), 1.0)
        counts += (onehot.T @ onehot).cpu()
    return counts
