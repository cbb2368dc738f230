"""Elements of a gradient that were not sent, computed from those that were: a batch's gradient has a low rank.

A linear layer's gradient is a sum of one product of two vectors for every row of the batch. So n rows make a matrix of
rank n, ``A B``, and where more of its elements are known than A and B have degrees of freedom, the others follow. B is
found by Wiberg's algorithm (Psychometrika 1976; Okatani and Deguchi, IJCV 2007): for every B the best A is a least
squares problem of one row each, and B takes damped Gauss-Newton steps on what these leave.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.data.encoder import TableEncoder

STEPS = 40
"""Most steps under each of the weights. Adult, 32 rows, 7 to 14% of the elements unknown: 8 to 15 are enough."""

FITS = 1e-3
"""Largest root mean square that elements which were sent may leave, relative to theirs: more is no completion."""

SPARE = 1.05
"""Known elements for every degree of freedom that a completion needs at least."""

SMALL_WEIGHTS = (1e-4, 1e-8)
"""Weights, one after the other, of elements that were left out for being small, which are taken for zeros, relative to
that of the sent ones. The last decides only where these leave them open, as in a column of which little was sent;
elsewhere they follow too."""

DAMPING, LEAST_DAMPING, MOST_DAMPING = 1e-2, 1e-14, 1e2
"""Of the first step, and at least and most, as parts of the mean diagonal of the normal equations."""

RIDGE = 1e-12
"""Of every row's least squares, as part of its mean diagonal: a rank below n would leave them singular."""

LEAST_PROGRESS, SMALL_DAMPING = 0.01, 1e-4
"""A step that lowers the error by a smaller part is the last one, unless it was a short one: damped by more."""


def completed(
    layer: Tensor, is_known: Tensor, is_small: Tensor, rank: int, basis: Tensor | None = None
) -> tuple[Tensor, float] | None:
    """A layer's gradient ``[out, in + 1]`` as elements that are not known follow from the others.

    Also the root mean square by which it misses those that are known. None where too few are, or where no matrix of the
    rank has them.

    Args:
        layer: ``[out, in + 1]``, float64; of elements that are not known a first value.
        is_known: elements that were sent as they are.
        is_small: elements that were left out for being small; all others may be anything.
        rank: of the gradient at most.
        basis: orthonormal columns ``[in + 1, k]`` that span all rows it may have; None: any.
    """
    basis = torch.eye(layer.shape[1]).to(layer) if basis is None else basis
    rank = min(rank, *layer.shape, basis.shape[1])
    if int(is_known.sum()) < SPARE * rank * (layer.shape[0] + basis.shape[1] - rank):
        return None
    scale = layer[is_known].square().mean().sqrt().clamp_min(torch.finfo(layer.dtype).tiny)
    rows, damping = _directions(layer @ basis, rank), DAMPING
    for small in SMALL_WEIGHTS:
        fit = _Fit.at(layer / scale, is_known.to(layer) + small * is_small.to(layer), rows, basis)
        for _ in range(STEPS):
            moved = fit.stepped(damping)
            gained = 1 - moved.error / fit.error
            damping = max(damping / 10, LEAST_DAMPING) if gained > 0 else 10 * damping
            fit = moved if gained > 0 else fit
            if (0 < gained < LEAST_PROGRESS and damping < SMALL_DAMPING) or damping > MOST_DAMPING:
                break
        rows, damping = fit.rows, min(damping, SMALL_DAMPING)
    left = float((fit.layer - fit.product)[is_known].square().mean().sqrt())
    return (torch.where(is_known, layer, scale * fit.product), float(scale) * left) if left < FITS else None


def one_hot_basis(encoder: TableEncoder) -> Tensor:
    """Orthonormal columns that span all encoded rows with a one ``[d + 1, d + 1 - K]``.

    The categories of a column sum to one, whatever the row.
    """
    equations = encoder.shift.new_zeros(len(encoder.layout.categorical), encoder.width + 1)
    for equation, block in zip(equations, encoder.layout.categorical, strict=True):
        equation[block.slice] = encoder.scale[block.slice]
        equation[-1] = encoder.shift[block.slice].sum() - 1
    if not len(equations):
        return torch.eye(encoder.width + 1).to(encoder.shift)
    _, _, rows = torch.linalg.svd(equations, full_matrices=True)
    return rows[len(equations) :].T


def _directions(layer: Tensor, rank: int) -> Tensor:
    """The strongest directions of the rows ``[rank, k]``."""
    return torch.linalg.svd(layer, full_matrices=False)[2][:rank]


@dataclass(frozen=True)
class _Fit:
    """The best ``A`` for a ``B``.

    Attributes:
        layer: ``[out, in]``.
        weights: of its elements, likewise.
        rows: B in the basis, orthonormal ``[rank, k]``.
        basis: ``[in, k]``.
        coefficients: A ``[out, rank]``.
        inverses: of every row's normal equations ``[out, rank, rank]``.
    """

    layer: Tensor
    weights: Tensor
    rows: Tensor
    basis: Tensor
    coefficients: Tensor
    inverses: Tensor

    @classmethod
    def at(cls, layer: Tensor, weights: Tensor, rows: Tensor, basis: Tensor) -> "_Fit":
        """Solve for A."""
        full = rows @ basis.T
        normal = torch.einsum("oi,ri,si->ors", weights, full, full)
        ridge = RIDGE * normal.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(RIDGE)
        normal = normal + ridge[:, None, None] * torch.eye(len(rows)).to(layer)
        inverses = torch.linalg.inv(normal)
        right = (weights * layer) @ full.T
        solved = (inverses @ right.unsqueeze(-1)).squeeze(-1)
        # Once more on what is left: the normal equations have the square of the condition.
        left = (weights * (layer - solved @ full)) @ full.T
        solved = solved + (inverses @ left.unsqueeze(-1)).squeeze(-1)
        return cls(layer, weights, rows, basis, solved, inverses)

    @property
    def product(self) -> Tensor:
        """``A B``."""
        return self.coefficients @ self.rows @ self.basis.T

    @property
    def error(self) -> float:
        """Root of the weighted sum of squares that is left."""
        return float((self.weights * (self.layer - self.product).square()).sum().sqrt())

    def stepped(self, damping: float) -> "_Fit":
        """After a damped Gauss-Newton step of B."""
        weights, full = self.weights, self.rows @ self.basis.T
        rank, k = self.rows.shape
        # Per row, the projection that leaves what no A explains, in the basis: basis^T (W - W B^T N B W) basis.
        masked = weights.unsqueeze(1) * full  # [out, rank, in]
        seen = torch.einsum("oi,ia,ib->oab", weights, self.basis, self.basis)
        explained = masked @ self.basis  # [out, rank, k]
        projections = seen - explained.mT @ self.inverses @ explained
        pairs = torch.einsum("or,os->ors", self.coefficients, self.coefficients).flatten(1)
        normal = (pairs.T @ projections.flatten(1)).view(rank, rank, k, k).transpose(1, 2).reshape(rank * k, rank * k)
        left = weights * (self.layer - self.product)
        slope = (self.coefficients.T @ left @ self.basis).flatten()
        shift = damping * normal.diagonal().mean()
        normal.diagonal().add_(shift)
        factor, failed = torch.linalg.cholesky_ex(normal)
        if int(failed):
            return self
        step = torch.cholesky_solve(slope.unsqueeze(1), factor).view(rank, k)
        rows = torch.linalg.qr((self.rows + step).T)[0].T
        return _Fit.at(self.layer, self.weights, rows, self.basis)
