"""Fit the numbers of explained rows to the gradient, while other rows are still unknown.

A search leaves a row's numbers as exact as few null directions allow; taken out like that it leaves a trace behind, and
hundreds of traces hide the rows that are left. But the rows that are left span only a space of their number: outside of
it, nothing of the gradient may remain. To first order in the errors ``dx`` of the numbers,

    Un^T (left) Vn = sum over rows i, numbers j of  dx_ij (Un^T e_i) (Vn^T d(h, 1)_i/dx_j)^T

with Un, Vn the null bases of what is left, at its known rank: linear least squares over all rows at once. Where errors
bend with the numbers (any activation but ReLU), ``(Un^T de_i/dx_j) (Vn^T (h, 1)_i)^T`` is added. The normal matrix is
made of elementwise products of Gram matrices, so no equation is ever written down.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.spaces.layer_spaces import Spaces
from lightleak.attacks.gradient_inversion.exact.spaces.residual import NOISE, Residual
from lightleak.attacks.gradient_inversion.network.row_network import with_one
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.data.schema import ColumnKind

LARGEST = 0.3
"""Deviations that a number is moved by at most: beyond, masks flip and the linear problem is another."""

SETTLED_ERROR = 0.15
"""Standard error, in the table's units, below which a whole number is rounded: the nearest one is then the right one
with odds of a thousand to one."""

OPEN = 1e-12
"""Eigenvalues of the normal matrix, scaled to a diagonal of 1, below which a combination of numbers is not changed:
float64 keeps sixteen digits of the matrix."""

INVOLVED = 1e-6
"""Part of a number's unit vector in such combinations from which on its error has no bound."""


@dataclass(frozen=True)
class Fit:
    """Corrections of numbers.

    Attributes:
        change: ``[r, columns]``, in the table's units.
        error: standard errors of the corrected numbers, likewise.
    """

    change: Tensor
    error: Tensor


def refit_numbers(
    residual: Residual,
    cells: tuple[Tensor, Tensor],
    space: RowDomain,
    spaces: Mapping[int, Spaces],
    turns: int,
) -> tuple[Residual, tuple[Tensor, Tensor]]:
    """Correct the numbers of explained rows; whole numbers are rounded once they are surely known.

    Args:
        residual: explained rows and what is left.
        cells: of those rows, category indices ``[r, K]`` and values ``[r, m]``.
        space: any space of the table; its ties keep their values.
        spaces: of what is left of some layers' gradients, by layer, at the rank of the rows that are left.
        turns: corrections at most.

    Returns:
        The same with corrected numbers, where less of the gradient is left outside of the spaces.
    """
    encoder = space.encoder
    columns = [j for j in range(len(encoder.schema.numerical)) if j not in space.ties]
    spaces = {layer: found for layer, found in spaces.items() if residual.observed[layer].any()}
    if not len(residual.x) or not columns or not spaces:
        return residual, cells
    whole = [encoder.schema.numerical[j].kind is ColumnKind.INTEGER for j in columns]
    integer = torch.tensor(whole, dtype=torch.bool, device=cells[1].device)
    if residual.network.errors_bend:  # a row that occurs several times may be the mean of near ones
        integer = integer & (residual.counts.sum(-1, keepdim=True) == 1)
    limit = LARGEST * encoder.deviation[columns]
    outside = _outside(residual, spaces)
    for _ in range(turns):
        fit = _fit(residual, space, spaces, columns)
        # Scaled down as a whole: numbers of one row move together.
        excess = (fit.change.abs() / limit).amax(-1, keepdim=True).clamp_min(1)
        settled = integer & (fit.error < SETTLED_ERROR) & (excess <= 1)
        values = cells[1].clone()
        moved = values[:, columns] + fit.change / excess
        values[:, columns] = torch.where(settled, moved.round(), moved)
        values = values.clamp(encoder.lower, encoder.upper)
        corrected = residual.explaining(space.encode((cells[0], values)), residual.counts)
        after = _outside(corrected, spaces)
        if not after < outside:
            break
        residual, cells, gain, outside = corrected, (cells[0], values), outside / after, after
        if gain < 1.1:
            break
    return residual, cells


def _fit(residual: Residual, space: RowDomain, spaces: Mapping[int, Spaces], columns: Sequence[int]) -> Fit:
    encoder, network = space.encoder, residual.network
    activations = network.forward(residual.x)
    counts = residual.counts
    errors = network.errors_of_rows(activations, counts, residual.n_rows)
    rows, width = len(residual.x), len(columns)
    at = [encoder.numerical_positions[j] for j in columns]
    normal = residual.x.new_zeros(rows, width, rows, width)
    right = residual.x.new_zeros(rows, width)
    squares, equations = residual.x.new_zeros(()), 0
    one_each, scale = torch.eye(encoder.width)[at].to(residual.x), encoder.scale[at].unsqueeze(-1)
    bent = network.error_slopes(activations, counts, one_each, residual.n_rows) if network.errors_bend else None
    for layer, by_number in enumerate(network.slopes(activations, one_each)):
        if layer > max(spaces):
            break  # of layers without spaces no slopes are computed
        if layer not in spaces:
            continue
        noise = NOISE * float(residual.observed[layer].norm())
        units, inputs = _null_units(spaces[layer]), spaces[layer].row_null
        e, g = errors[layer] @ units, (by_number / scale) @ inputs[:-1]
        left = units.T @ residual.left[layer] @ inputs
        # A column is e dv^T, and de v^T where errors bend.
        factors = [(e.unsqueeze(1), g)]
        if bent is not None:
            v = with_one(activations.hidden[layer]) @ inputs
            factors.append((bent[layer] / scale @ units, v.unsqueeze(1)))
        for (d, h), (other_d, other_h) in product(factors, factors):
            normal += _grams(d, other_d) * _grams(h, other_h) / noise**2
        for d, h in factors:
            right += ((d @ left) * h).sum(-1) / noise**2
        squares += left.square().sum() / noise**2
        equations += left.numel()
    matrix, vector = normal.reshape(rows * width, -1), right.flatten()
    scale = matrix.diagonal().sqrt().clamp_min(torch.finfo(matrix.dtype).tiny)
    matrix = matrix / scale.unsqueeze(0) / scale.unsqueeze(1)
    values, vectors = torch.linalg.eigh(matrix)
    known = values > OPEN
    inverse = (vectors[:, known] / values[known]) @ vectors[:, known].T
    unbounded = vectors[:, ~known].square().sum(1) > INVOLVED
    unbounded |= equations <= len(vector)
    change = inverse @ (vector / scale)
    misfit = (squares - (vector / scale) @ change).clamp_min(0) / max(1, equations - len(vector))
    error = (inverse.diagonal().clamp_min(0) * misfit).sqrt() / scale
    error = torch.where(unbounded, torch.inf, error)
    return Fit((change / scale).view(rows, width), error.view(rows, width))


def _outside(residual: Residual, spaces: Mapping[int, Spaces]) -> float:
    """What is left outside of the spaces, relative to rounding."""
    total = 0.0
    for layer, of_layer in spaces.items():
        part = _null_units(of_layer).T @ residual.left[layer] @ of_layer.row_null
        total += float(part.square().sum()) / (NOISE * float(residual.observed[layer].norm())) ** 2
    return total


def _null_units(spaces: Spaces) -> Tensor:
    """Orthonormal null directions of the gradient itself, units back from their scale, ``[out, q]``."""
    units = spaces.unit_null / spaces.unit_scale.unsqueeze(-1)
    return torch.linalg.qr(units)[0] if units.shape[1] else units


def _grams(one: Tensor, other: Tensor) -> Tensor:
    """Inner products of vectors ``[r, m or 1, q]`` with each other, ``[r, m or 1, r, m or 1]``."""
    return torch.einsum("ijq,klq->ijkl", one, other)
