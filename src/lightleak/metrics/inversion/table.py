"""Rows as tensors, and the labels that go with them: what every statistic of this package starts from."""

import pandas as pd
import torch
from torch import Tensor

from lightleak.core.errors import DataError, UsageError
from lightleak.data.cells import category_codes
from lightleak.data.encoder import table_cells
from lightleak.data.schema import TableSchema
from lightleak.metrics.cells import Cells, Rows


def as_cells(rows: Rows, schema: TableSchema) -> Cells:
    """The feature columns as category indices ``[n, K]`` and numbers ``[n, m]`` on the CPU; cells pass unchanged.

    Checking and reading a table takes longer than most statistics of it: convert a table once that is used often.

    Raises:
        DataError: the rows do not fit the schema.

    >>> from lightleak.data.schema import Column
    >>> columns = Column.integer("age"), Column.categorical("sex", ["F", "M"])
    >>> schema = TableSchema(columns, Column.categorical("ill", ["0", "1"]))
    >>> as_cells(pd.DataFrame({"age": [30, 50], "sex": ["M", "F"]}), schema)
    Cells(codes=tensor([[1],
            [0]]), numbers=tensor([[30.],
            [50.]], dtype=torch.float64))
    """
    if not isinstance(rows, pd.DataFrame):
        cells = Cells(*rows)
        expected = [(len(cells.codes), len(schema.categorical)), (len(cells.codes), len(schema.numerical))]
        found = [tuple(part.shape) for part in cells]
        if found != expected:
            raise DataError(f"codes and numbers must have the shapes {expected} of the schema, got {found}")
        return cells
    return Cells(*table_cells(schema, schema.validate(rows, require_label=False)))


def some_cells(rows: Rows, schema: TableSchema, name: str) -> Cells:
    """`as_cells` of at least one row.

    Raises:
        DataError: the rows do not fit the schema.
        UsageError: there is none; ``name`` says what they are.
    """
    cells = as_cells(rows, schema)
    if not len(cells.codes):
        raise UsageError(f"{name}: at least one is needed, got none")
    return cells


def two_tables(real: Rows, synthetic: Rows, schema: TableSchema) -> list[Cells]:
    """`as_cells` of both tables.

    Raises:
        DataError: rows do not fit the schema.
        UsageError: a table without rows.
    """
    tables = [as_cells(rows, schema) for rows in (real, synthetic)]
    for name, cells in zip(("real", "synthetic"), tables, strict=True):
        if not len(cells.codes):
            raise UsageError(f"the {name} table needs at least one row")
    return tables


def class_labels(rows: pd.DataFrame, schema: TableSchema) -> Tensor:
    """Class indices ``[n]`` of rows that carry the schema's label column.

    Raises:
        DataError: the label column is missing or holds an unknown class.
    """
    return torch.from_numpy(category_codes(schema.label, schema.validate_label(rows)))


def take(cells: Cells, rows: Tensor | slice) -> Cells:
    """The rows of an index, a mask or a slice."""
    return Cells(cells.codes[rows], cells.numbers[rows])


def checked_labels(labels: Tensor, rows: int, n_classes: int) -> Tensor:
    """LongTensor ``[rows]`` on the CPU.

    Raises:
        UsageError: not one label per row, or one outside 0 to ``n_classes - 1``.
    """
    if labels.shape != (rows,) or labels.is_floating_point():
        raise UsageError(f"labels must be {rows} whole numbers, one per row; got {labels.dtype} {tuple(labels.shape)}")
    labels = labels.detach().cpu().long()
    if rows and not 0 <= int(labels.min()) <= int(labels.max()) < n_classes:
        raise UsageError(
            f"labels must lie in 0..{n_classes - 1}, the classes; got {int(labels.min())} to {int(labels.max())}"
        )
    return labels
