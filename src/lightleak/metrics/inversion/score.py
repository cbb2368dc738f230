"""Everything that is said of reconstructed class rows: of rows made for given classes, and of rows of any class."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lightleak.core.errors import UsageError
from lightleak.data.encoder import table_of_cells
from lightleak.data.schema import TableSchema
from lightleak.metrics.cells import Cells, Rows
from lightleak.metrics.inversion.attack_accuracy import accuracy_of_counts, class_counts
from lightleak.metrics.inversion.column_shapes import (
    KINDS,
    ColumnScore,
    class_shapes,
    column_kind,
    column_shapes,
    lowest_columns,
    shapes_by_kind,
    shapes_score,
)
from lightleak.metrics.inversion.exact_matches import ExactMatches, exact_match_rate
from lightleak.metrics.inversion.gower import ClosestPairs, nearest_of_class
from lightleak.metrics.inversion.memorization import Memorization, memorization
from lightleak.metrics.inversion.pair_trends import PairTrends, pair_trends
from lightleak.metrics.inversion.table import as_cells, class_labels, some_cells, take

MEASURES = (
    "attack_accuracy",
    "disjoint_accuracy",
    "class_shapes_score",
    "distinct_nearest_rows",
    "nearer_to_train",
)
"""What says how much of the classes rows show, each higher where they show more; a report draws conclusions from all of
them together, never from one."""


@dataclass(frozen=True)
class PrivateRows:
    """Private rows read once, for any number of scores.

    Attributes:
        schema: feature columns; the label's categories are the classes.
        train: rows the target was trained on, in the order of their table.
        train_labels: LongTensor ``[n]``.
        held_out: rows that neither trained it nor chose when training stopped.
        held_out_labels: LongTensor ``[k]``.
    """

    schema: TableSchema
    train: Cells
    train_labels: Tensor
    held_out: Cells
    held_out_labels: Tensor

    @classmethod
    def of(cls, schema: TableSchema, train: pd.DataFrame, held_out: pd.DataFrame) -> "PrivateRows":
        """Read both tables, which carry the label column.

        Raises:
            DataError: rows or labels do not fit the schema.
            UsageError: a table without rows.
        """
        known = some_cells(train, schema, "training rows"), class_labels(train, schema)
        return cls(schema, *known, some_cells(held_out, schema, "held-out rows"), class_labels(held_out, schema))


@dataclass(frozen=True)
class SampleStatistics:
    """How alike a sample of all classes and the private training rows are (thesis Table 5.5, Fig. 5.5).

    Attributes:
        columns: shape score of every column.
        pairs: similarity of every pair of columns.
        lowest: the 8 columns with the lowest scores.
    """

    columns: Mapping[str, float]
    pairs: PairTrends
    lowest: tuple[ColumnScore, ...]

    def to_row(self) -> dict[str, float | None]:
        """``shapes_score`` and ``pair_trends_score``, as a row of results.json has them."""
        return {"shapes_score": _known(shapes_score(self.columns)), "pair_trends_score": _known(self.pairs.score)}

    def to_dict(self) -> dict[str, Any]:
        """``column_shapes`` and ``lowest_columns``, as an entry of inversion.json has them."""
        return {"column_shapes": dict(self.columns), "lowest_columns": [asdict(one) for one in self.lowest]}


def sample_statistics(sample: Rows, private: PrivateRows, device: torch.device | str = "cpu") -> SampleStatistics:
    """Compare rows that were made for no class in particular with the private training rows.

    Raises:
        DataError: rows do not fit the schema.
        UsageError: no rows.
    """
    cells, schema = as_cells(sample, private.schema), private.schema
    columns = column_shapes(private.train, cells, schema)
    return SampleStatistics(
        columns, pair_trends(private.train, cells, schema, device=device), tuple(lowest_columns(columns, schema))
    )


@dataclass(frozen=True)
class SampleScores:
    """What is said of rows that were made for given classes.

    Attributes:
        schema: feature columns; the label's categories are the classes.
        n: rows of each class, LongTensor ``[C]``.
        accuracy: what `AttackAccuracy` computes.
        disjoint: the same by the evaluation model that shares no training row with the target; None without one.
        class_shapes: shape score of every column within every class, float64 ``[C, columns]``; NaN without rows.
        nearest: nearest private training rows of the same class.
        exact: samples that equal a private training row.
        memorization: distances to training rows against those to held-out rows.
        pairs: sample and private row of the closest pair of each class, in the table's values, by class index.
    """

    schema: TableSchema
    n: Tensor
    accuracy: Mapping[str, Tensor]
    disjoint: Mapping[str, Tensor] | None
    class_shapes: np.ndarray
    nearest: ClosestPairs
    exact: ExactMatches
    memorization: Memorization
    pairs: Mapping[int, tuple[Mapping[str, Any], Mapping[str, Any]]]

    @property
    def classes(self) -> list[int]:
        """Classes with samples."""
        return [int(index) for index in self.n.nonzero()[:, 0]]

    def to_row(self) -> dict[str, Any]:
        """All classes together, as a row of results.json has them.

        ``attack_accuracy`` is the mean over classes, its interval that of all rows pooled: the same thing where every
        class has as many. ``gower_distance`` is the mean distance to the nearest private row of the same class.
        """
        return {
            "attack_accuracy": _known(self.accuracy["mean"]),
            "attack_accuracy_low": _known(self.accuracy["pooled_low"]),
            "attack_accuracy_high": _known(self.accuracy["pooled_high"]),
            "disjoint_accuracy": None if self.disjoint is None else _known(self.disjoint["mean"]),
            "class_shapes_score": _known(np.nanmean(self.class_shapes)) if self.classes else None,
            "distinct_nearest_rows": _known(self.memorization.overall.distinct_rows),
            "nearer_to_train": _known(self.memorization.overall.share),
            "gower_distance": _known(self.nearest.mean),
            "exact_match_rate": _known(self.exact.rate),
            "exact_match_rate_with_label": _known(self.exact.with_label),
            "samples": int(self.n.sum()),
        }

    def class_rows(self) -> list[dict[str, Any]]:
        """The same by class, for classes with samples; ``class`` is the class's name."""
        return [
            {
                "class": self.schema.label.categories[index],
                "attack_accuracy": _known(self.accuracy["per_class"][index]),
                "attack_accuracy_low": _known(self.accuracy["per_class_low"][index]),
                "attack_accuracy_high": _known(self.accuracy["per_class_high"][index]),
                "disjoint_accuracy": None if self.disjoint is None else _known(self.disjoint["per_class"][index]),
                "distinct_nearest_rows": _known(self.memorization.per_class[index].distinct_rows),
                "nearer_to_train": _known(self.memorization.per_class[index].share),
                "class_shapes_score": _known(self.class_shapes[index].mean()),
                "gower_distance": _known(self.nearest.per_class[index]),
                "exact_match_rate": _known(self.exact.per_class[index]),
                "exact_match_rate_with_label": _known(self.exact.per_class_with_label[index]),
                "samples": int(self.n[index]),
            }
            for index in self.classes
        ]

    def to_dict(self) -> dict[str, Any]:
        """``class_shapes`` (Fig. 5.3), ``nearest`` (Table A.2) and ``memorization`` of an entry of inversion.json.

        ``nearest`` holds private rows: a redacted run leaves it out.
        """
        kinds = [column_kind(column) for column in self.schema.columns]
        heat_map = shapes_by_kind(self.class_shapes, self.schema)
        names = self.schema.label.categories
        return {
            "class_shapes": {
                "groups": list(heat_map),
                "columns": {kind: kinds.count(kind) for kind in KINDS if kind in heat_map},
                "classes": [
                    {"class": names[index], "scores": {kind: _known(of[index]) for kind, of in heat_map.items()}}
                    for index in self.classes
                ],
            },
            "nearest": [
                {
                    "class": names[index],
                    "distance": float(self.nearest.distance[self.nearest.sample[index]]),
                    "reconstructed": dict(made),
                    "private": dict(private),
                }
                for index, (made, private) in self.pairs.items()
            ],
            "memorisation": {
                **self.memorization.to_dict(),
                "classes": [
                    {"class": names[index], **self.memorization.per_class[index].to_dict()} for index in self.classes
                ],
            },
        }


def score_samples(
    samples: Rows,
    labels: Tensor,
    predicted: Tensor,
    private: PrivateRows,
    seed: int = 0,
    device: torch.device | str = "cpu",
    disjoint: Tensor | None = None,
) -> SampleScores:
    """Score rows that were made for given classes: an attack's, a baseline's or, to compare with, held-out rows.

    Args:
        samples: n rows.
        labels: classes they were made for, LongTensor ``[n]``.
        predicted: what the evaluation model says of them: logits ``[n, C]`` or class indices ``[n]``.
        private: private rows.
        seed: of the draws behind the mean distances of `memorization`.
        device: where rows are compared.
        disjoint: what the evaluation model says that shares no training row with the target, like ``predicted``.

    Raises:
        DataError: samples do not fit the schema.
        UsageError: no samples, or labels or predictions that do not fit them.
    """
    schema, cells = private.schema, as_cells(samples, private.schema)
    if not len(cells.codes):
        raise UsageError("samples: at least one row is needed, got none")
    right, total = class_counts(predicted, labels, schema.n_classes)
    second = None if disjoint is None else accuracy_of_counts(*class_counts(disjoint, labels, schema.n_classes))
    nearest = nearest_of_class(cells, labels, private.train, private.train_labels, schema, device)
    pairs = {
        label: (row_values(cells, schema, found[0]), row_values(private.train, schema, found[1]))
        for label in range(schema.n_classes)
        if (found := nearest.closest(label)) is not None
    }
    train, held_out = (private.train, private.train_labels), (private.held_out, private.held_out_labels)
    return SampleScores(
        schema=schema,
        n=total,
        accuracy=accuracy_of_counts(right, total),
        disjoint=second,
        class_shapes=class_shapes(*train, cells, labels, schema, schema.n_classes),
        nearest=nearest,
        exact=exact_match_rate(cells, labels, *train, schema),
        memorization=memorization(cells, labels, *train, *held_out, schema, seed, device),
        pairs=pairs,
    )


def row_values(cells: Cells, schema: TableSchema, row: int) -> dict[str, str | int | float]:
    """One row by column, in the table's values, JSON-ready."""
    (values,) = table_of_cells(schema, *take(cells, slice(row, row + 1))).to_dict("records")
    return {str(name): value for name, value in values.items()}


def _known(value: float | Tensor | np.floating[Any]) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None
