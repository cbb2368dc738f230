"""Samples that equal a private row in every cell."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from lightleak.data.schema import ColumnKind, TableSchema
from lightleak.metrics.cells import Rows
from lightleak.metrics.inversion.table import as_cells, checked_labels, some_cells

MOST_DECIMALS = 6
FINEST_STEP = 1e-5
"""A private column of more than `MOST_DECIMALS` is compared in steps of this part of its range: well above the rounding
of a number that was encoded as float32 and decoded again."""

FLOAT32_STEP = 2.0**-22
"""The same for a column of few decimals whose range is so large that float32 does not keep them: four times the largest
error of rounding."""


@dataclass(frozen=True)
class ExactMatches:
    """Shares of samples that equal a private row.

    Attributes:
        rate: share of all samples that equal a private row of any class in every feature; NaN without samples.
        with_label: share that equal a private row of their own class.
        per_class: ``rate`` of the samples of each class, float64 ``[C]``; NaN without samples.
        per_class_with_label: ``with_label`` of the samples of each class.
    """

    rate: float
    with_label: float
    per_class: Tensor
    per_class_with_label: Tensor


def exact_match_rate(
    samples: Rows, labels: Tensor, private: Rows, private_labels: Tensor, schema: TableSchema
) -> ExactMatches:
    """Share of samples that equal a private row in every cell, numbers after the column's rounding.

    Whole numbers are compared exactly. Other numbers are rounded to the decimals that the private column is written
    with. Where float32 does not keep these, or there are more than `MOST_DECIMALS`, numbers are equal that differ by
    less than half a step of `FLOAT32_STEP` or `FINEST_STEP` of the range.

    Args:
        samples: n reconstructed rows.
        labels: classes they were made for ``[n]``.
        private: private rows.
        private_labels: their classes.
        schema: the columns; its label has the classes.

    Raises:
        DataError: rows do not fit the schema.
        UsageError: labels do not fit the rows or the classes, or no private rows.
    """
    made, known = as_cells(samples, schema), some_cells(private, schema, "private rows")
    n = len(made.codes)
    classes = checked_labels(labels, n, schema.n_classes)
    known_classes = checked_labels(private_labels, len(known.codes), schema.n_classes)
    steps, on_grid = _steps(known.numbers.numpy(), schema)
    codes, numbers = (torch.cat(parts).numpy() for parts in zip(made, known, strict=True))
    numbers = numbers / steps
    grid, near = np.concatenate([codes, numbers[:, on_grid].round()], 1), numbers[:, ~on_grid]
    both = torch.cat([classes, known_classes])[:, None].numpy()
    matches, of_class = (
        torch.as_tensor(_among(np.concatenate([same, grid], 1), near, n)) for same in (np.zeros_like(both), both)
    )
    size = torch.bincount(classes, minlength=schema.n_classes)
    per_class = [
        torch.bincount(classes[hit], minlength=schema.n_classes).double() / size for hit in (matches, of_class)
    ]
    return ExactMatches(float(matches.double().mean()), float(of_class.double().mean()), *per_class)


def _steps(numbers: np.ndarray, schema: TableSchema) -> tuple[np.ndarray, np.ndarray]:
    """The step of each column ``[m]``, and of which columns the private numbers are multiples of it, bool ``[m]``."""
    steps, on_grid = np.ones(numbers.shape[1]), np.ones(numbers.shape[1], dtype=bool)
    for at, column in enumerate(schema.numerical):
        if column.kind is not ColumnKind.INTEGER:
            values = np.unique(numbers[:, at])
            span = float(values[-1] - values[0])
            decimals = (10.0**-d for d in range(MOST_DECIMALS + 1) if (values.round(d) == values).all())
            step, kept = next(decimals, None), span * FLOAT32_STEP
            on_grid[at] = step is not None and step >= kept
            steps[at] = max(step, kept) if step is not None else span * FINEST_STEP or FINEST_STEP
    return steps, on_grid


def _among(grid: np.ndarray, near: np.ndarray, n: int) -> np.ndarray:
    """Which of the first ``n`` rows equal one of the others on the grid, within half a step elsewhere; bool ``[n]``."""
    group = pd.DataFrame(grid).groupby(list(range(grid.shape[1])), sort=False).ngroup().to_numpy()
    if not near.shape[1]:
        return np.isin(group[:n], group[n:])
    places = np.column_stack([group, near])  # other groups are a whole step away
    found = np.isfinite(near[:n]).all(1)  # NaN, as of a generator that diverged, equals nothing
    distance, _ = cKDTree(places[n:]).query(places[:n][found], p=np.inf, distance_upper_bound=0.5)
    found[found] = np.isfinite(distance)
    return found
