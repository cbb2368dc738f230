"""Samples that equal a private row in every cell."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lightleak.data.schema import ColumnKind, TableSchema
from lightleak.metrics.cells import Rows
from lightleak.metrics.inversion.table import as_cells, checked_labels, some_cells

MOST_DECIMALS = 6
FINEST_STEP = 1e-5
"""A private column of more than `MOST_DECIMALS` is compared in steps of this part of its range: well above the rounding
of a number that was encoded as float32 and decoded again."""


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
    with; a column of more than `MOST_DECIMALS` of them is compared in steps of `FINEST_STEP` of its range.

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
    steps = _steps(known.numbers.numpy(), schema)
    codes, numbers = (torch.cat(parts).numpy() for parts in zip(made, known, strict=True))
    cells = np.concatenate([codes, (numbers / steps).round()], 1)
    matches = torch.as_tensor(_among(cells, n))
    labeled = np.concatenate([cells, torch.cat([classes, known_classes])[:, None].numpy()], 1)
    of_class = torch.as_tensor(_among(labeled, n))
    size = torch.bincount(classes, minlength=schema.n_classes)
    per_class = [
        torch.bincount(classes[hit], minlength=schema.n_classes).double() / size for hit in (matches, of_class)
    ]
    return ExactMatches(float(matches.double().mean()), float(of_class.double().mean()), *per_class)


def _steps(numbers: np.ndarray, schema: TableSchema) -> np.ndarray:
    """What the private numbers of each column are multiples of, ``[m]``."""
    steps = np.ones(numbers.shape[1])
    for at, column in enumerate(schema.numerical):
        if column.kind is not ColumnKind.INTEGER:
            values = np.unique(numbers[:, at])
            fine = float(values[-1] - values[0]) * FINEST_STEP or FINEST_STEP
            steps[at] = next((10.0**-d for d in range(MOST_DECIMALS + 1) if (values.round(d) == values).all()), fine)
    return steps


def _among(cells: np.ndarray, n: int) -> np.ndarray:
    """Which of the first ``n`` rows stand among the others, bool ``[n]``."""
    group = pd.DataFrame(cells).groupby(list(range(cells.shape[1])), sort=False).ngroup().to_numpy()
    return np.isin(group[:n], group[n:])
