"""Column-shape scores: how alike one column at a time is in two tables, over all rows and class by class.

Numbers score the complement of the two-sample Kolmogorov-Smirnov statistic (KSComplement), categories that of the total
variation distance (TVComplement), as in sdmetrics, whose values these equal (tested; sdmetrics adds 1e-6 of a row for
every category that only the synthetic table has). sdmetrics scores one column of one class at a time: a heat map of 20
classes and 50 columns takes it over ten times as long.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lightleak.data.schema import Column, ColumnKind, TableSchema
from lightleak.metrics.cells import Rows
from lightleak.metrics.inversion.table import as_cells, checked_labels, two_tables

KINDS = ("continuous", "discrete", "categorical", "boolean")
"""Rows of the heat map, in the order of thesis Fig. 5.3."""

_DECIMALS = 14  # sdmetrics rounds numbers so, to the digits that float64 holds of numbers below 10


@dataclass(frozen=True)
class ColumnScore:
    """Shape score of one column, its kind (one of `KINDS`) and its metric (``KSComplement`` or ``TVComplement``)."""

    column: str
    kind: str
    metric: str
    score: float


def column_shapes(real: Rows, synthetic: Rows, schema: TableSchema) -> dict[str, float]:
    """Shape score of every column, in [0, 1], 1 for equal distributions (thesis Eq. 3.15 and 3.16).

    Args:
        real: private rows.
        synthetic: reconstructed rows.
        schema: their columns.

    Raises:
        DataError: rows do not fit the schema.
        UsageError: a table without rows.

    >>> import pandas as pd
    >>> schema = TableSchema((Column.categorical("sex", ["F", "M"]),), Column.categorical("ill", ["0", "1"]))
    >>> column_shapes(pd.DataFrame({"sex": ["F", "M"]}), pd.DataFrame({"sex": ["F", "F", "F", "M"]}), schema)
    {'sex': 0.75}
    """
    tables = two_tables(real, synthetic, schema)
    one_class = [torch.zeros(len(cells.codes), dtype=torch.long) for cells in tables]
    scores = class_shapes(tables[0], one_class[0], tables[1], one_class[1], schema, 1)[0]
    return dict(zip(schema.names, scores.tolist(), strict=True))


def shapes_score(scores: Mapping[str, float]) -> float:
    """Mean over columns: the shapes score of thesis Table 5.5."""
    return float(np.mean(list(scores.values())))


def class_shapes(
    real: Rows, real_labels: Tensor, synthetic: Rows, synthetic_labels: Tensor, schema: TableSchema, n_classes: int
) -> np.ndarray:
    """Shape score of every column within every class (thesis Sec. 5.2.3, Fig. 5.3), float64 ``[n_classes, columns]``.

    Scores fall with the number of rows, for real rows too: compare with as many held-out private rows.

    Args:
        real: private rows ``[n]``.
        real_labels: their classes ``[n]``.
        synthetic: reconstructed rows ``[k]``.
        synthetic_labels: classes they were made for ``[k]``.
        schema: the columns, whose order the result has.
        n_classes: number of classes; one without real or without synthetic rows is NaN.

    Raises:
        DataError: rows do not fit the schema.
        UsageError: labels do not fit the rows or the classes.
    """
    tables = [as_cells(rows, schema) for rows in (real, synthetic)]
    classes = [
        checked_labels(labels, len(cells.codes), n_classes).numpy()
        for cells, labels in zip(tables, (real_labels, synthetic_labels), strict=True)
    ]
    sizes = np.stack([np.bincount(of_table, minlength=n_classes) for of_table in classes])
    widths = [column.width for column in schema.categorical]
    shares = [
        _category_shares(cells.codes.numpy(), of_rows, widths, n)
        for cells, of_rows, n in zip(tables, classes, sizes, strict=True)
    ]
    scores = np.empty((n_classes, len(schema.columns)))
    is_number = np.array([column.is_numerical for column in schema.columns])
    if widths:
        starts = np.cumsum([0, *widths[:-1]])
        scores[:, ~is_number] = 1 - np.add.reduceat(np.abs(shares[0] - shares[1]), starts, axis=1) / 2
    in_both = np.concatenate(classes)
    is_real = np.arange(len(in_both)) < len(classes[0])
    numbers = np.concatenate([cells.numbers.numpy() for cells in tables]).round(_DECIMALS)
    for at, column in zip(np.flatnonzero(is_number), numbers.T, strict=True):
        scores[:, at] = 1 - _largest_gaps(column, is_real, in_both, sizes)
    scores[(sizes == 0).any(0)] = np.nan
    return scores


def column_kind(column: Column) -> str:
    """Row of the heat map that a column belongs to: one of `KINDS`; a category of two values is boolean.

    >>> column_kind(Column.integer("age")), column_kind(Column.categorical("sex", ["F", "M"]))
    ('discrete', 'boolean')
    """
    if column.is_numerical:
        return "discrete" if column.kind is ColumnKind.INTEGER else "continuous"
    return "boolean" if column.width == 2 else "categorical"


def shapes_by_kind(scores: np.ndarray, schema: TableSchema) -> dict[str, np.ndarray]:
    """The heat map of thesis Fig. 5.3: mean score of the columns of each kind, ``[C]`` by kind; absent kinds left out.

    Args:
        scores: what `class_shapes` returns, ``[C, columns]``.
        schema: the columns.
    """
    kinds = np.array([column_kind(column) for column in schema.columns])
    return {kind: scores[:, kinds == kind].mean(1) for kind in KINDS if (kinds == kind).any()}


def lowest_columns(scores: Mapping[str, float], schema: TableSchema, n: int = 8) -> list[ColumnScore]:
    """The ``n`` columns with the lowest scores, lowest first (thesis Fig. 5.5 and 5.6)."""
    ranked = sorted(schema.columns, key=lambda column: scores[column.name])[:n]
    metrics = {True: "KSComplement", False: "TVComplement"}
    return [
        ColumnScore(column.name, column_kind(column), metrics[column.is_numerical], scores[column.name])
        for column in ranked
    ]


def _category_shares(codes: np.ndarray, classes: np.ndarray, widths: list[int], sizes: np.ndarray) -> np.ndarray:
    """Share of every category of every column within each class, ``[C, sum(widths)]``; 0 for a class without rows."""
    starts = np.cumsum([0, *widths])
    at = classes[:, None] * starts[-1] + starts[:-1] + codes
    counts = np.bincount(at.ravel(), minlength=len(sizes) * starts[-1])
    return counts.reshape(len(sizes), starts[-1]) / np.maximum(sizes, 1)[:, None]


def _largest_gaps(values: np.ndarray, is_real: np.ndarray, classes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Largest distance of the two empirical distribution functions within each class, ``[C]``.

    Args:
        values: numbers of both tables ``[N]``.
        is_real: which of them are real ``[N]``.
        classes: their classes ``[N]``.
        sizes: real and synthetic rows of each class ``[2, C]``.
    """
    order = values.argsort(kind="stable")
    order = order[classes[order].argsort(kind="stable")]  # by class, and by value within a class
    values, classes, is_real = values[order], classes[order], is_real[order]
    # Rows up to and with this one, counted from the start of its class: whole numbers, so nothing rounds.
    at_start = np.cumsum(sizes.sum(0)) - sizes.sum(0)
    real_seen = np.cumsum(is_real) - (np.cumsum(sizes[0]) - sizes[0])[classes]
    synthetic_seen = np.arange(1, len(values) + 1) - at_start[classes] - real_seen
    real_size, synthetic_size = np.maximum(sizes, 1)
    gaps = np.abs(real_seen / real_size[classes] - synthetic_seen / synthetic_size[classes])
    # Equal values make one step of both functions: only its end counts. A class ends with a gap of 0, so that it does
    # not matter whether the next one begins with the same value.
    gaps[:-1][values[1:] == values[:-1]] = 0
    largest = np.zeros(sizes.shape[1])
    np.maximum.at(largest, classes, gaps)
    return largest
