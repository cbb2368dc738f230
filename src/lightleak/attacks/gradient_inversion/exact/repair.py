"""Put right the last digits of numbers: the first layer's gradient is linear in them, all other cells known.

A search verifies rows against spaces that rounding blurs, so that a wide integer (Adult's fnlwgt, up to 1.5 million)
may come out one off. With the rows' errors ``e_1`` known, what is left of ``G_1`` in the column of a number is
``sum_i e_i dx_i``: one least-squares problem for all rows.
"""

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.residual import Residual
from lightleak.attacks.gradient_inversion.exact.rows import RowSpace

TURNS = 3
"""Corrections at most: each solves a linear problem exactly, and masks that flip by it are rare."""

LARGEST = 0.1
"""Deviations that a number is moved by at most: a larger correction is none of rounding's."""


def repair_numbers(
    residual: Residual, cells: tuple[Tensor, Tensor], space: RowSpace
) -> tuple[Residual, tuple[Tensor, Tensor]]:
    """Correct the numbers of explained rows as long as less of the gradient is left.

    Args:
        residual: explained rows and what is left.
        cells: of those rows, category indices ``[r, K]`` and values ``[r, m]``.
        space: any space of the table; its ties and constants keep their values.

    Returns:
        The same with corrected numbers.
    """
    encoder = space.encoder
    columns = [j for j in range(len(encoder.schema.numerical)) if j not in space.ties]
    if not len(residual.x) or not columns:
        return residual, cells
    at = [encoder.numerical_positions[j] for j in columns]
    whole = torch.tensor([column.kind == "integer" for column in encoder.schema.numerical], device=cells[1].device)
    for _ in range(TURNS):
        errors = _first_errors(residual)
        change = torch.linalg.pinv(errors.T) @ residual.left[0][:, at] * encoder.scale[at]
        change = torch.where(change.abs() <= LARGEST * encoder.deviation[columns], change, torch.zeros_like(change))
        values = cells[1].clone()
        values[:, columns] += change
        values = torch.where(whole, values.round(), values).clamp(encoder.lower, encoder.upper)
        if torch.equal(values, cells[1]):
            break
        moved = residual.explaining(space.encode((cells[0], values)), residual.counts)
        if moved.relative >= residual.relative:
            break
        residual, cells = moved, (cells[0], values)
    return residual, cells


def _first_errors(residual: Residual) -> Tensor:
    """``e_1`` of every explained row with its counts, ``[r, h]``."""
    activations = residual.chain.forward(residual.x)
    counts = residual.counts
    output = (counts.sum(-1, keepdim=True) * activations.probabilities - counts) / residual.n_rows
    return residual.chain.errors(activations, output)[0]
