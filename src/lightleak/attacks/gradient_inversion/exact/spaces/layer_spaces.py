"""Row and column space of one layer's gradient, and what a row must satisfy to lie in both.

``R = sum_i d_i v_i^T / n`` with ``v = (h_{l-1}, 1)`` and ``d = e_l``: as long as the v and the d of the distinct rows
are linearly independent, every v lies in the row space of R, every d in its column space, and
``v_i^T pinv(R) d_i = n``: three tests that a wrong row fails. SPEAR (Dimitrov et al., NeurIPS 2024) uses the
column space, DAGER (Petrov et al., NeurIPS 2024) tests discrete tokens against the row space, and MUSIC (Schmidt 1986)
searches by the null space.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

RANK_FLOOR = 2e-6
"""Singular values below this part of the largest may be rounding of float32 sums ..."""

RANK_DROP = 15.0
"""... where the first of them is this many times smaller than the one before."""

CLEAR_OF_PLATEAU = 5.0
"""Where a spectrum runs into rounding without such a gap, singular values this many times above the first that no row
accounts for count: rows that a trained network is sure of have parts of the gradient of every size down to nothing."""

FLOAT32 = 1e-7
"""Rounding of a float32 gradient relative to its norm."""

LEAST_SCALE = 0.05
"""Where every row reaches every unit, a unit whose gradient is a smaller part of the median's is small because its
rows cancel. Their rounding does not: divided by so little it would drown weak rows."""


@dataclass(frozen=True)
class Spaces:
    """What a layer's (residual) gradient spans.

    Attributes:
        rank: number of distinct rows behind it.
        row_null: basis of what every v is orthogonal to, ``[in + 1, in + 1 - rank]``.
        unit_null: basis of what every scaled d is orthogonal to, ``[out, out - rank]``.
        inverse: pseudo-inverse of the scaled gradient ``[in + 1, out]``.
        unit_scale: by which every unit's gradient and every d are divided, so that all have one size, ``[out]``.
        gap: the last singular value that counts, relative to the first that does not.
        noise: deviation of the errors in the scaled gradient's elements, as what lies outside of both spaces shows it.
    """

    rank: int
    row_null: Tensor
    unit_null: Tensor
    inverse: Tensor
    unit_scale: Tensor
    gap: float
    noise: float


def unit_scale(gradient: Tensor, least: float = 0.0) -> Tensor:
    """Norm of every unit's gradient; 1 for units that no row reaches.

    Args:
        gradient: ``[out, in + 1]``.
        least: part of the median norm that smaller ones are raised to.

    >>> unit_scale(torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 1.0]]), least=0.5)
    tensor([5.0000, 1.0000, 1.5000])
    """
    norms = gradient.norm(dim=1)
    reached = norms > 0
    if least and bool(reached.any()):
        norms = norms.clamp_min(least * float(norms[reached].quantile(0.5)))
    return torch.where(reached, norms, torch.ones_like(norms))


def numerical_rank(singular: Tensor, most: int) -> int:
    """Rank by the first gap into rounding, or by what rises above it where there is no gap.

    Args:
        singular: singular values, the largest first.
        most: rows behind the matrix: no more are due to them.

    >>> numerical_rank(torch.tensor([1.0, 0.1, 1e-8, 1e-9]), most=3)
    2
    >>> numerical_rank(torch.logspace(0, -8, 9), most=7)
    7
    >>> numerical_rank(torch.tensor([1.0, 0.1, 1e-2, 1e-3]), most=2)
    4
    """
    relative = (singular / singular[0]).tolist()
    for i, (here, following) in enumerate(pairwise(relative)):
        if following < RANK_FLOOR and here > RANK_DROP * following:
            return i + 1
    if most >= len(relative) or relative[most] >= RANK_FLOOR:
        return len(relative)
    return sum(value > CLEAR_OF_PLATEAU * relative[most] for value in relative[:most])


def spaces_of(gradient: Tensor, scale: Tensor, rank: int | None = None, most: int | None = None) -> Spaces:
    """Decompose a layer's gradient.

    Args:
        gradient: ``[out, in + 1]``, float64.
        scale: see `unit_scale`; of the whole batch's gradient.
        rank: known rank; default: `numerical_rank`.
        most: rows behind the gradient, for that; default: unknown.
    """
    if not bool(gradient[:, -1].any()):
        return _without_bias(gradient, scale, rank, most)
    return _decomposed(gradient, scale, rank, most)


def _without_bias(gradient: Tensor, scale: Tensor, rank: int | None, most: int | None) -> Spaces:
    """Of a layer that has no bias: the one behind its inputs is part of no equation."""
    found = _decomposed(gradient[:, :-1], scale, rank, most)
    row_null, inverse = (torch.cat([part, torch.zeros_like(part[:1])]) for part in (found.row_null, found.inverse))
    return replace(found, row_null=row_null, inverse=inverse)


def _decomposed(gradient: Tensor, scale: Tensor, rank: int | None, most: int | None) -> Spaces:
    left, singular, right = torch.linalg.svd(gradient / scale.unsqueeze(-1), full_matrices=True)
    if rank is None:
        rank = numerical_rank(singular, len(singular) if most is None else most)
    rank = min(rank, len(singular))
    inverse = (right[:rank].T / singular[:rank]) @ left[:, :rank].T
    row_null, unit_null = right[rank:].T.contiguous(), left[:, rank:].contiguous()
    noise = _noise(singular, rank, gradient)
    return Spaces(rank, row_null, unit_null, inverse, scale, _gap(singular, rank), noise)


def _gap(singular: Tensor, rank: int) -> float:
    if not 0 < rank < len(singular):
        return float("inf")
    return float(singular[rank - 1] / singular[rank].clamp_min(torch.finfo(singular.dtype).tiny))


def _noise(singular: Tensor, rank: int, gradient: Tensor) -> float:
    """Of the singular values that do not count: their mean square, or what the largest alone says; never below float32.

    A matrix of independent noise has no singular value above noise times the sum of its sides' square roots.
    """
    out, into = (max(1, int(gradient.any(side).sum()) - rank) for side in (1, 0))
    dropped = singular[rank:]
    rounding = FLOAT32 * float(singular.norm()) / gradient.numel() ** 0.5
    if not len(dropped):
        return rounding
    mean_square = float(dropped.norm()) / (out * into) ** 0.5
    return max(rounding, mean_square, float(dropped[0]) / (out**0.5 + into**0.5))


def whitened(null: Tensor, sample: Tensor, floor: float) -> Tensor:
    """A null basis in which the projections of random rows are uncorrelated and of one size.

    Without this a few directions, along which all rows differ most, drown the others.

    Args:
        null: ``[in, q]``.
        sample: vectors of random rows ``[n, in]``.
        floor: eigenvalues of the second moment are raised to this part of the largest.
    """
    if not null.shape[1]:
        return null
    projected = sample @ null
    values, vectors = torch.linalg.eigh(projected.T @ projected / len(sample))
    return null @ (vectors / values.clamp_min(floor * float(values[-1])).sqrt())
