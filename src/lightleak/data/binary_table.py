"""Tables whose columns are all 0 or 1, kept at one byte per cell: Texas-100 is 415 MB so, and 3.3 GB as int64."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from lightleak.core.errors import DataError, UnsupportedError
from lightleak.data.cells import check_cells
from lightleak.data.column import Column, ColumnKind
from lightleak.data.schema import TableSchema, require_columns

BLOCK_COLUMNS = 1024
"""Columns taken out of a frame at once: pandas copies what it selects, so a block is all the memory that costs."""
_BYTE_KINDS = {np.dtype(np.uint8), np.dtype(np.bool_)}


def is_binary(schema: TableSchema) -> bool:
    """Whether every feature is a whole number with the declared bounds 0 and 1.

    >>> columns = tuple(Column.integer(f"x{i}", 0, 1) for i in range(3))
    >>> is_binary(TableSchema(columns, Column.categorical("y", ["0", "1"])))
    True
    """
    return all(map(_is_bit, schema.columns))


def holds_bits(schema: TableSchema, frame: pd.DataFrame) -> bool:
    """Whether a frame has the features of a schema as bool columns, or as uint8 columns of 0 and 1 alone."""
    require_columns(frame, schema.names)
    blocks = (frame[list(names)] for _, names in _named_blocks(schema))
    return all(set(block.dtypes) <= _BYTE_KINDS and block.to_numpy(np.uint8).max(initial=0) <= 1 for block in blocks)


def bit_blocks(schema: TableSchema, frame: pd.DataFrame) -> Iterator[tuple[slice, np.ndarray]]:
    """The features in order as uint8 ``[n, block]``, each block with its positions; no copy of the whole table.

    Raises:
        UnsupportedError: a column of the schema is not whole numbers with the bounds 0 and 1.
        DataError: a column is missing, or a cell is neither 0 nor 1.
    """
    for column in schema.columns:
        if not _is_bit(column):
            raise UnsupportedError(
                f"{column}: bits need whole-number columns with bounds 0 and 1; got {column.kind} with bounds "
                f"{column.lower} and {column.upper}. Use TableEncoder.encode"
            )
    require_columns(frame, schema.names)
    for at, names in _named_blocks(schema):
        yield at, _bits(schema.columns[at], frame[list(names)])


def _bits(columns: tuple[Column, ...], cells: pd.DataFrame) -> np.ndarray:
    if set(cells.dtypes) <= _BYTE_KINDS:
        values = cells.to_numpy(np.uint8)
    else:
        values = np.column_stack([check_cells(column, cells[column.name]) for column in columns])
    for outside in np.flatnonzero((values.min(0, initial=0) < 0) | (values.max(0, initial=0) > 1))[:1]:
        got = next(cell for cell in values[:, outside] if cell not in (0, 1))
        raise DataError(f"{columns[outside]}: bits are 0 or 1, got {got}")
    return values.astype(np.uint8, copy=False)


def _named_blocks(schema: TableSchema) -> Iterator[tuple[slice, tuple[str, ...]]]:
    for start in range(0, len(schema.names), BLOCK_COLUMNS):
        at = slice(start, min(start + BLOCK_COLUMNS, len(schema.names)))
        yield at, schema.names[at]


def _is_bit(column: Column) -> bool:
    return column.kind is ColumnKind.INTEGER and (column.lower, column.upper) == (0, 1)
