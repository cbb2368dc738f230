"""The last step of every loader: bounds, canonical types, training and test rows."""

from dataclasses import replace

import numpy as np
import pandas as pd

from lightleak.data.schema import Column, TableSchema
from lightleak.data.splits import holdout
from lightleak.data.table import DatasetCard, Table

TEST_FRACTION = 0.2  # TabLeak's split of the tables that come without an official one


def build_table(card: DatasetCard, schema: TableSchema, train: pd.DataFrame, test: pd.DataFrame) -> Table:
    """Validate both parts and give the numerical columns the bounds of the whole table.

    A numerical column without declared bounds gets its lowest and highest value over all rows, as the reference
    implementation of TabLeak takes them; a column that is constant there keeps none.

    Raises:
        DataError: a row does not fit the schema.
    """
    train, test = (schema.validate(part).reset_index(drop=True) for part in (train, test))
    columns = tuple(_bounded(column, train, test) for column in schema.columns)
    return Table(card, replace(schema, columns=columns), train, test)


def split_table(card: DatasetCard, schema: TableSchema, frame: pd.DataFrame, seed: int) -> Table:
    """As `build_table`, after holding out a fifth of the rows at random.

    Raises:
        DataError: a row does not fit the schema.
    """
    stay, out = holdout(len(frame), TEST_FRACTION, seed)
    return build_table(card, schema, frame.iloc[stay], frame.iloc[out])


def _bounded(column: Column, train: pd.DataFrame, test: pd.DataFrame) -> Column:
    if not column.is_numerical or column.lower is not None or column.upper is not None:
        return column
    values = np.concatenate([train[column.name].to_numpy(), test[column.name].to_numpy()])
    lower, upper = float(values.min()), float(values.max())
    return replace(column, lower=lower, upper=upper) if lower < upper else column
