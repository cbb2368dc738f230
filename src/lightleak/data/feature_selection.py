"""Encoded columns of a table, and the most important of them for distinguishing classes (thesis Sec. 4.4.2.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from lightleak.core.seeds import derive_seed, numpy_generator
from lightleak.data.cells import check_cells
from lightleak.data.schema import Column, TableSchema, require_columns
from lightleak.data.task_config import TaskConfig

if TYPE_CHECKING:
    from sklearn.ensemble import RandomForestClassifier

NO_YES = ("no", "yes")
# Permutation importance: an accuracy on 4,000 rows has a standard error of 0.8 points at most. One permutation of many
# rows says as much as several of few, and a forest answers it faster: 0.05 s per column.
PERMUTED_ROWS = 4000


@dataclass(frozen=True, eq=False)
class EncodedColumn:
    """A number of the table, or the boolean that says whether a column has one category.

    Attributes:
        column: the column of the new schema.
        source: name of the table's column.
        values: ``[n]`` numbers, or booleans that say ``yes``.
    """

    column: Column
    source: str
    values: np.ndarray


def encoded_columns(
    schema: TableSchema, frame: pd.DataFrame, deciding: np.ndarray, min_frequency: float
) -> tuple[EncodedColumn, ...]:
    """Columns that a table offers: numbers first, then one boolean per category, each in the order of the schema.

    Left out are numbers that are constant, and categories of fewer than ``min_frequency`` of the rows or of all but as
    few. Where two categories of a column are left and make up all rows but as few, one boolean says it all: that of the
    second. A column that already has the categories ``no`` and ``yes`` keeps its name.

    Args:
        schema: the table's columns.
        frame: ``n`` rows; they are checked and encoded one column at a time, for a table of hundreds of columns.
        deciding: positions of the rows that decide on frequencies.
        min_frequency: share of these rows, below 0.5.

    Raises:
        DataError: a column is missing or a row does not fit the schema.

    >>> frame = pd.DataFrame({"sex": ["F", "M", "F"], "age": [30, 31, 32]})
    >>> schema = TableSchema(
    ...     (Column.categorical("sex", ["F", "M"]), Column.integer("age")), Column.categorical("ill", ["0", "1"])
    ... )
    >>> [encoded.column.name for encoded in encoded_columns(schema, frame, np.arange(3), 0.1)]
    ['age', 'sex=M']
    """
    require_columns(frame, schema.names)
    numbers, booleans, n = [], [], len(deciding)
    for column in schema.columns:
        cells = check_cells(column, frame[column.name]).to_numpy()
        if column.is_numerical:
            if len(np.unique(cells[deciding])) > 1:
                numbers.append(EncodedColumn(column, column.name, cells))
            continue
        counts = pd.Series(cells[deciding]).value_counts()
        rows = {category: int(counts.get(category, 0)) for category in column.categories}
        frequent = [c for c, k in rows.items() if max(1, min_frequency * n) <= k <= min(n - 1, (1 - min_frequency) * n)]
        if len(frequent) == 2 and sum(rows[category] for category in frequent) >= (1 - min_frequency) * n:
            frequent = frequent[1:]
        for category in frequent:
            name = column.name if column.categories == NO_YES else f"{column.name}={category}"
            booleans.append(EncodedColumn(Column.categorical(name, NO_YES), column.name, cells == category))
    return (*numbers, *booleans)


def encoded_matrix(columns: Sequence[EncodedColumn], rows: np.ndarray) -> np.ndarray:
    """The rows at these positions as numbers, float32 ``[len(rows), len(columns)]``."""
    matrix = np.empty((len(columns), len(rows)), dtype=np.float32)
    for values, column in zip(matrix, columns, strict=True):
        values[:] = column.values[rows]
    return np.ascontiguousarray(matrix.T)


def encoded_frame(columns: Sequence[EncodedColumn], rows: np.ndarray) -> pd.DataFrame:
    """Return the rows at these positions as a table: numbers unchanged, booleans as ``no`` and ``yes``."""
    words = np.asarray(NO_YES, dtype=object)

    def cells(column: EncodedColumn) -> np.ndarray:
        values = column.values[rows]
        return values if column.column.is_numerical else words[values.astype(np.int8)]

    return pd.DataFrame({column.column.name: cells(column) for column in columns})


def importances(
    train: tuple[np.ndarray, np.ndarray], validation: tuple[np.ndarray, np.ndarray], config: TaskConfig, seed: int
) -> tuple[np.ndarray, Mapping[str, Any]]:
    """Importance of every column for a random forest, and the forest's accuracy on validation rows.

    ``impurity`` is scikit-learn's mean decrease in impurity, which sums to 1; ``permutation`` the accuracy that the
    forest loses on validation rows when the column is permuted. Neither depends on the order of the rows.

    Args:
        train: ``[n, d]`` rows and ``[n]`` class indices that the forest is grown on.
        validation: further such rows.
        config: kind of importance and size of the forest.
        seed: root seed.

    Returns:
        ``[d]`` importances; facts, JSON-ready.
    """
    forest = _forest(config, derive_seed(seed, "feature-forest") % 2**32)
    (rows, classes), (held_out, true) = (_in_canonical_order(*part) for part in (train, validation))
    forest.fit(rows, classes)
    facts = {"validation_accuracy": float(forest.score(held_out, true))}
    if config.importance == "impurity":
        return forest.feature_importances_, facts
    from sklearn.inspection import permutation_importance

    rng = numpy_generator(seed, "feature-permutation")
    chosen = rng.choice(len(true), min(PERMUTED_ROWS, len(true)), replace=False)
    state = derive_seed(seed, "feature-permutation") % 2**32
    lost = permutation_importance(forest, held_out[chosen], true[chosen], n_repeats=1, random_state=state)
    return lost.importances_mean, {**facts, "permuted_rows": len(chosen)}


def _forest(config: TaskConfig, state: int) -> "RandomForestClassifier":
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(config.trees, min_samples_leaf=config.leaf_rows, random_state=state)


def _in_canonical_order(rows: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same rows in the order of their bytes: a forest draws its rows by position."""
    whole = np.ascontiguousarray(np.column_stack([rows, classes.astype(np.float32)]))
    order = np.argsort(whole.view(np.dtype((np.void, whole.strides[0]))).reshape(-1), kind="stable")
    return rows[order], classes[order]
