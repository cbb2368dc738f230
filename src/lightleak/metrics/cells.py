"""Cells of a true and a reconstructed table, compared: TabLeak's accuracy (Eq. 6 and 7) before it is averaged.

A batch gradient does not say in which order its rows stood, so the rows are paired first, as in the paper: Hungarian
matching for most cells right. Among such pairings one with most rows equal is taken, so that the exact-match rate does
not hang on chance. Pairings that tie in both may differ in *which* cells are right; which of them is taken is
arbitrary, as in the paper, since any rule that prefers close rows also prefers one kind of column over the other.
"""

from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.tables.codec import TOLERANCE
from lightleak.core.errors import DataError, UsageError
from lightleak.core.matching import match_rows
from lightleak.data.cells import category_codes
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import ColumnKind

EXACT_TOLERANCE = 1e-6
"""Continuous numbers within this many deviations are equal: the rounding of a float32 row at a few deviations."""

_CELLS_AT_ONCE = 2**22  # pairs of rows times columns compared in one go; bounds memory, not results


class Cells(NamedTuple):
    """A table as tensors, what `TableEncoder.project` returns.

    Attributes:
        codes: category indices, LongTensor ``[..., K]``.
        numbers: numbers in the table's units, float64 ``[..., L]``.
    """

    codes: Tensor
    numbers: Tensor


Rows = pd.DataFrame | tuple[Tensor, Tensor]
"""A table, or its category indices and numbers as `TableEncoder.project` returns them."""


def checked_pair(encoder: TableEncoder, truth_rows: Rows, reconstructed_rows: Rows) -> tuple[Cells, Cells]:
    """Both tables as tensors on the CPU, of as many rows.

    Raises:
        DataError: a column is missing, holds an unknown category, or the truth is not finite.
        UsageError: no rows, or not as many reconstructed as true ones.
    """
    truth, reconstructed = table_cells(encoder, truth_rows), table_cells(encoder, reconstructed_rows)
    n, got = len(truth.codes), len(reconstructed.codes)
    if n == 0 or n != got:
        raise UsageError(f"as many reconstructed rows as true ones are needed, at least 1; got {got} for {n}")
    broken = ~torch.isfinite(truth.numbers).all(0)
    if bool(broken.any()):
        column = encoder.schema.numerical[int(broken.nonzero()[0])]
        raise DataError(f"column {column.name!r} of the truth must be finite, got NaN or infinity")
    return truth, reconstructed


def agreement(encoder: TableEncoder, truth: Cells, guess: Cells, tolerance: float = TOLERANCE) -> Tensor:
    """Cells on which rows agree (TabLeak Eq. 6).

    A category is right when it is equal, a number when it lies within ``tolerance`` deviations of the true one
    (``tolerance * encoder.deviation`` in the column's own units, TabLeak Table 7). NaN and infinity are wrong.

    Returns:
        bool ``[..., columns]`` in schema order; leading dimensions broadcast.
    """
    near = (guess.numbers - truth.numbers).abs() <= tolerance * encoder.deviation.cpu()
    return _in_schema_order(encoder, truth.codes == guess.codes, near)


def equality(encoder: TableEncoder, truth: Cells, guess: Cells) -> Tensor:
    """Cells that are equal; whole numbers after rounding, continuous ones within `EXACT_TOLERANCE` deviations.

    Returns:
        bool ``[..., columns]`` in schema order; leading dimensions broadcast.
    """
    whole = torch.tensor([column.kind is ColumnKind.INTEGER for column in encoder.schema.numerical], dtype=torch.bool)
    same = (guess.numbers - truth.numbers).abs() <= EXACT_TOLERANCE * encoder.deviation.cpu()
    rounded = guess.numbers.round() == truth.numbers.round()
    return _in_schema_order(encoder, truth.codes == guess.codes, torch.where(whole, rounded, same))


def categorical_mask(encoder: TableEncoder) -> Tensor:
    """Which columns of the schema are categorical: bool ``[columns]``."""
    return torch.tensor([not column.is_numerical for column in encoder.schema.columns])


def best_order(encoder: TableEncoder, truth: Cells, guess: Cells, tolerance: float = TOLERANCE) -> Tensor:
    """The pairing with most cells right and, among those, with most rows equal.

    Args:
        encoder: schema and statistics.
        truth: n rows.
        guess: n rows.
        tolerance: standard deviations.

    Returns:
        LongTensor ``[n]``: for each true row the index of its row in ``guess``.
    """
    n = len(truth.codes)
    values = []
    for rows in torch.arange(n).split(max(1, _CELLS_AT_ONCE // (n * len(encoder.schema.columns)))):
        some = Cells(truth.codes[rows, None], truth.numbers[rows, None])
        right = agreement(encoder, some, guess, tolerance).sum(-1)
        equal = equality(encoder, some, guess).all(-1)
        # The equal rows of a pairing come to at most 1/2 together: they never outweigh a cell.
        values.append(right + equal.double() / (2 * n))
    return match_rows(torch.cat(values))


def _in_schema_order(encoder: TableEncoder, categorical: Tensor, numerical: Tensor) -> Tensor:
    mask = categorical_mask(encoder)
    joined = torch.empty(*categorical.shape[:-1], len(mask), dtype=torch.bool)
    joined[..., mask], joined[..., ~mask] = categorical, numerical
    return joined


def table_cells(encoder: TableEncoder, rows: Rows) -> Cells:
    """Rows as tensors on the CPU.

    Raises:
        DataError: a column is missing or holds an unknown category or no numbers.
    """
    if isinstance(rows, tuple):
        return Cells(rows[0].cpu(), rows[1].cpu().double())
    missing = [name for name in encoder.schema.names if name not in rows.columns]
    if missing:
        raise DataError(f"columns {missing} are missing; the rows have {list(map(str, rows.columns))}")
    codes = torch.empty(len(rows), len(encoder.schema.categorical), dtype=torch.long)
    numbers = torch.empty(len(rows), len(encoder.schema.numerical), dtype=torch.float64)
    for i, column in enumerate(encoder.schema.categorical):
        found = category_codes(column, rows[column.name])
        if (found < 0).any():
            got = rows[column.name].iloc[int((found < 0).argmax())]
            raise DataError(f"column {column.name!r}: expected one of {list(column.categories[:12])}, got {got!r}")
        codes[:, i] = torch.from_numpy(found)
    for i, column in enumerate(encoder.schema.numerical):
        try:
            numbers[:, i] = torch.as_tensor(rows[column.name].to_numpy("float64", copy=True))
        except (TypeError, ValueError) as error:
            raise DataError(
                f"column {column.name!r}: expected numbers ({column.kind}), got {rows[column.name].dtype}"
            ) from error
    return Cells(codes, numbers)
