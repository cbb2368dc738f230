"""The last step of every loader: canonical types, training and test rows, bounds."""

from dataclasses import replace

import numpy as np
import pandas as pd

from lightleak.data.cells import gaps
from lightleak.data.schema import Column, TableSchema
from lightleak.data.splits import holdout
from lightleak.data.table import DatasetCard, Table

TEST_FRACTION = 0.2  # TabLeak's split of the tables that come without an official one


def build_table(card: DatasetCard, schema: TableSchema, train: pd.DataFrame, test: pd.DataFrame) -> Table:
    """A table of two official parts.

    A numerical column without declared bounds gets its lowest and highest value over all rows, as the reference
    implementation of TabLeak takes them; a column that is constant there keeps none.

    Raises:
        DataError: a row does not fit the schema.
    """
    return _bounded_table(card, schema, schema.validate(train), schema.validate(test))


def cut_table(
    card: DatasetCard,
    schema: TableSchema,
    frame: pd.DataFrame,
    train: np.ndarray,
    test: np.ndarray,
    group: str | None = None,
) -> Table:
    """A table whose parts are rows of one frame, given by position; bounds as in `build_table`.

    Args:
        card: of the dataset.
        schema: of the frame.
        frame: all rows.
        train: positions of the training rows.
        test: positions of the test rows.
        group: a column outside the schema that the parts keep: whose row it is.

    Raises:
        DataError: a row does not fit the schema; missing values are counted over all rows.
    """
    valid = schema.validate(frame)
    table = _bounded_table(card, schema, valid.iloc[train], valid.iloc[test])
    imputed = {
        column.name: missing[np.concatenate([train, test])]
        for column in schema.columns
        if column.missing == "impute" and (missing := gaps(column, frame[column.name]).to_numpy()).any()
    }
    table = replace(table, imputed=imputed)
    if group is None or group in schema.names:
        return table
    groups = frame[group].to_numpy()
    return replace(
        table,
        train=table.train.assign(**{group: groups[train]}),
        test=table.test.assign(**{group: groups[test]}),
    )


def split_table(
    card: DatasetCard, schema: TableSchema, frame: pd.DataFrame, seed: int, test_fraction: float = TEST_FRACTION
) -> Table:
    """As `cut_table`, with test rows held out at random.

    Raises:
        DataError: a row does not fit the schema, or the fraction is none.
    """
    return cut_table(card, schema, frame, *holdout(len(frame), test_fraction, seed))


def _bounded_table(card: DatasetCard, schema: TableSchema, train: pd.DataFrame, test: pd.DataFrame) -> Table:
    columns = tuple(bounded_column(column, train, test) for column in schema.columns)
    seen = tuple(after.name for before, after in zip(schema.columns, columns, strict=True) if before != after)
    parts = (part.reset_index(drop=True) for part in (train, test))
    return Table(card, replace(schema, columns=columns), *parts, seen_bounds=seen, train_index=train.index)


def bounded_column(column: Column, train: pd.DataFrame, test: pd.DataFrame) -> Column:
    """A numerical column without bounds gets those of both parts; see `build_table`."""
    if not column.is_numerical or column.lower is not None or column.upper is not None:
        return column
    values = np.concatenate([train[column.name].to_numpy(), test[column.name].to_numpy()])
    lower, upper = float(values.min()), float(values.max())
    return replace(column, lower=lower, upper=upper) if lower < upper else column
