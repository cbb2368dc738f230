"""What the first layer's gradient says of a batch's columns at a glance: absent categories, constants, tied numbers.

``[G_1 gb_1] = sum_i e_i (x_i, 1)^T``: in the raw basis (one-hot 0/1, numbers in the table's units) the column of a
category is the sum of ``e_i`` over its rows. No row, no column; a number that is the same in every row has a column
proportional to the bias's; one that follows from a categorical column has a column that is a combination of that
column's categories.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.prior import RowPrior
from lightleak.attacks.gradient_inversion.exact.rows import RowSpace, Tie
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import ColumnKind

ABSENT_BELOW = 1e-5
"""Norm of an absent category's column, relative to the largest column: a client sums float32 numbers, which leaves
about 1e-7; the rarest category of a batch of 1,000 rows still has 1e-3."""

CONSTANT_WITHIN = 1e-5
"""Distance of a constant number's column from a multiple of the bias's column; as for `ABSENT_BELOW`."""

TIED_WITHIN = 3e-6
"""Distance of a tied number's column from the span of its categories' columns: tighter, as least squares over many
columns could fit a free number by chance."""

SPARE_ROWS = 2
"""A number can be told to be tied only where the batch has this many rows more than the column has categories."""

WHOLE_WITHIN = 0.1
"""A constant of an integer column must come out this near to a whole number, and the values of a tie half as near."""


def raw_basis(gradient: Tensor, encoder: TableEncoder) -> Tensor:
    """The first layer's gradient ``[h, d + 1]`` by raw cells: one-hot 0/1, and numbers in deviations from 0."""
    weights, bias = gradient[:, :-1], gradient[:, -1:]
    raw = weights * encoder.scale + bias * encoder.shift
    at = encoder.numerical_positions
    raw[:, at] = raw[:, at] / encoder.deviation
    return torch.cat([raw, bias], -1)


def infer_space(
    gradient: Tensor,
    encoder: TableEncoder,
    prior: RowPrior,
    n_rows: int,
    scale: float | None = None,
    ties: Mapping[int, Tie] | None = None,
) -> RowSpace:
    """The rows that may be behind a first layer's gradient.

    Args:
        gradient: ``[h, d + 1]``, of a batch or of what is left of it.
        encoder: on the same device.
        prior: handed on.
        n_rows: rows behind the gradient.
        scale: norm that tolerances are relative to; default: the largest column's. For what is left of a batch it is
            the whole batch's, as rounding is.
        ties: those already known; default: looked for.
    """
    raw = raw_basis(gradient, encoder)
    norms = raw.norm(dim=0)
    scale = float(norms.max()) if scale is None else scale
    present = tuple(_present(norms[block.slice], scale) for block in encoder.layout.categorical)
    constants = _constants(raw, encoder, scale)
    if ties is None:
        ties = _ties(raw, encoder, present, constants, scale, n_rows)
    return RowSpace(encoder, prior, present, constants, {j: tie for j, tie in ties.items() if j not in constants})


def largest_column(gradient: Tensor, encoder: TableEncoder) -> float:
    """Norm of the largest column of a first layer's gradient by raw cells."""
    return float(raw_basis(gradient, encoder).norm(dim=0).max())


def _present(norms: Tensor, scale: float) -> Tensor:
    """Categories with a column; the largest where rounding is all that is left."""
    there = norms > ABSENT_BELOW * scale
    return (there if bool(there.any()) else norms >= norms.max()).nonzero().flatten()


def _constants(raw: Tensor, encoder: TableEncoder, scale: float) -> dict[int, float]:
    ones, found = raw[:, -1], {}
    for j, (column, position) in enumerate(zip(encoder.schema.numerical, encoder.numerical_positions, strict=True)):
        factor = (ones @ raw[:, position]) / (ones @ ones)
        value = float(factor * encoder.deviation[j])
        if float((raw[:, position] - factor * ones).norm()) >= CONSTANT_WITHIN * scale:
            continue
        if column.kind is ColumnKind.INTEGER:
            if abs(value - round(value)) >= WHOLE_WITHIN:
                continue
            value = float(round(value))
        found[j] = value
    return found


def _ties(
    raw: Tensor,
    encoder: TableEncoder,
    present: tuple[Tensor, ...],
    constants: Mapping[int, float],
    scale: float,
    n_rows: int,
) -> dict[int, Tie]:
    found: dict[int, Tie] = {}
    most = min(n_rows, len(raw)) - SPARE_ROWS
    for j, (column, position) in enumerate(zip(encoder.schema.numerical, encoder.numerical_positions, strict=True)):
        for k, block in enumerate(encoder.layout.categorical):
            if j in constants or len(present[k]) >= most:
                continue
            of_categories = raw[:, block.start + present[k]]
            fitted = torch.linalg.pinv(of_categories) @ raw[:, position]
            if float((of_categories @ fitted - raw[:, position]).norm()) >= TIED_WITHIN * scale:
                continue
            values = fitted * encoder.deviation[j]
            if column.kind is ColumnKind.INTEGER:
                if not bool(((values - values.round()).abs() < WHOLE_WITHIN / 2).all()):
                    continue
                values = values.round()
            full = raw.new_zeros(block.width)
            full[present[k]] = values
            found[j] = Tie(k, full)
            break
    return found
