"""What the first layer's gradient says of a batch's columns at a glance: absent categories, constants, tied numbers.

``[G_1 gb_1] = sum_i e_i (x_i, 1)^T``: in the raw basis (one-hot 0/1, numbers in the table's units) the column of a
category is the sum of ``e_i`` over its rows. No row, no column; a number that is the same in every row has a column
proportional to the bias's; one that follows from a categorical column has a column that is a combination of that
column's categories.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain, Tie
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import ColumnKind

ROUNDING = 6e-8
"""Relative rounding of float32."""

CLEAR_OF_ROUNDING = 12.0
"""A column that is this many times its rounding is there. Measured on Adult, batches of 8 to 64, untrained networks and
after one and ten epochs: columns of absent categories reach 2.5, those of present ones begin at 2,000, however little
a well-fitted row adds to the gradient."""

BEYOND_NOISE = 3.0
"""A column of noise alone has a norm of ``noise sqrt(h)``, which varies little: three times that is no noise."""

TRACE = 1e-5
"""Part of a column that explained rows may leave behind, whose numbers are not yet exact."""

SPARE_ROWS = 2
"""A number can be identified as tied only where the batch has this many rows more than the column has categories."""

WHOLE_WITHIN = 0.1
"""A constant of an integer column must come out this near to a whole number, and the values of a tie half as near."""


def raw_basis(gradient: Tensor, encoder: TableEncoder) -> Tensor:
    """The first layer's gradient ``[h, d + 1]`` by raw cells: one-hot 0/1, and numbers in deviations from 0."""
    weights, bias = gradient[:, :-1], gradient[:, -1:]
    raw = weights * encoder.scale + bias * encoder.shift
    at = encoder.numerical_positions
    raw[:, at] = raw[:, at] / encoder.deviation
    return torch.cat([raw, bias], -1)


def infer_domain(
    gradient: Tensor,
    encoder: TableEncoder,
    prior: RowPrior,
    n_rows: int,
    whole: Tensor | None = None,
    ties: Mapping[int, Tie] | None = None,
    noise: float | None = None,
) -> RowDomain:
    """The rows that may be behind a first layer's gradient.

    Args:
        gradient: ``[h, d + 1]``, of a batch or of what is left of it.
        encoder: on the same device.
        prior: handed on.
        n_rows: rows behind the gradient.
        whole: the batch's gradient where ``gradient`` is what is left of it: its rounding is what tolerances follow.
        ties: those already known; default: looked for.
        noise: deviation of the errors in the gradient's elements; default: rounding by their own sizes. The weights
            of an update are rounded by theirs.
    """
    raw = raw_basis(gradient, encoder)
    if noise is None:
        allowed = _allowed(gradient if whole is None else whole, encoder, explained=whole is not None)
    else:
        allowed = BEYOND_NOISE * _raw_norms(
            gradient.new_full((gradient.shape[1],), noise * len(gradient) ** 0.5), encoder
        )
    norms = raw.norm(dim=0)
    present = tuple(_present(norms[b.slice], allowed[b.slice]) for b in encoder.layout.categorical)
    constants = _constants(raw, encoder, allowed)
    if ties is None:
        ties = _ties(raw, encoder, present, constants, allowed, n_rows)
    return RowDomain(encoder, prior, present, constants, {j: tie for j, tie in ties.items() if j not in constants})


def _allowed(gradient: Tensor, encoder: TableEncoder, explained: bool) -> Tensor:
    """Norm by raw cells that every column of nothing may have, ``[d + 1]``."""
    allowed = CLEAR_OF_ROUNDING * ROUNDING * _raw_norms(gradient.norm(dim=0), encoder)
    return allowed + TRACE * raw_basis(gradient, encoder).norm(dim=0) if explained else allowed


def _raw_norms(norms: Tensor, encoder: TableEncoder) -> Tensor:
    """Greatest norms by raw cells of errors whose norms by columns of the gradient are given ``[d + 1]``."""
    raw = torch.cat([norms[:-1] * encoder.scale + norms[-1] * encoder.shift.abs(), norms[-1:]])
    at = encoder.numerical_positions
    raw[at] = raw[at] / encoder.deviation
    return raw


def _present(norms: Tensor, allowed: Tensor) -> Tensor:
    """Categories with a column; the largest where rounding is all that is left."""
    there = norms > allowed
    return (there if bool(there.any()) else norms >= norms.max()).nonzero().flatten()


def _constants(raw: Tensor, encoder: TableEncoder, allowed: Tensor) -> dict[int, float]:
    ones, found = raw[:, -1], {}
    for j, (column, position) in enumerate(zip(encoder.schema.numerical, encoder.numerical_positions, strict=True)):
        factor = (ones @ raw[:, position]) / (ones @ ones)
        distance = (raw[:, position] - factor * ones).norm()
        if not bool(distance <= allowed[position] + factor.abs() * allowed[-1]):
            continue
        value = float(factor * encoder.deviation[j])
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
    allowed: Tensor,
    n_rows: int,
) -> dict[int, Tie]:
    found: dict[int, Tie] = {}
    most = min(n_rows, len(raw)) - SPARE_ROWS
    inverses: dict[int, Tensor] = {}  # a column of many categories takes long, and every number is fitted by it
    for j, (column, position) in enumerate(zip(encoder.schema.numerical, encoder.numerical_positions, strict=True)):
        for k, block in enumerate(encoder.layout.categorical):
            if j in constants or len(present[k]) >= most:
                continue
            of_categories = raw[:, block.start + present[k]]
            if k not in inverses:
                inverses[k] = torch.linalg.pinv(of_categories)
            fitted = inverses[k] @ raw[:, position]
            distance = (of_categories @ fitted - raw[:, position]).norm()
            if not bool(distance <= allowed[position] + fitted.abs() @ allowed[block.start + present[k]]):
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
