"""Least squares with standard errors, which are infinite where the equations leave an unknown open."""

from dataclasses import dataclass

import torch
from torch import Tensor

OPEN = 1e-15
"""Eigenvalues of the normal matrix, scaled to a diagonal of 1, below which (times its size) float64 knows nothing."""

INVOLVED = 1e-9
"""Part of a number's unit vector in such directions from which on its error has no bound."""

STANDARD_ERRORS = 5.0
"""Standard errors that must fit within a tolerance."""


@dataclass(frozen=True)
class Solution:
    """The least squares step of unknowns that are scaled to a normal matrix with a diagonal of 1.

    Attributes:
        step: of the scaled unknowns ``[m]``.
        error: standard errors of the scaled unknowns where every equation has an error of deviation 1 ``[m]``.
        rank: directions that the equations determine.
    """

    step: Tensor
    error: Tensor
    rank: int


def solve(normal: Tensor, slope: Tensor) -> Solution:
    """Solve the normal equations ``normal @ step = slope`` in the directions that they determine.

    Args:
        normal: scaled normal matrix ``[m, m]``.
        slope: right-hand side ``[m]``.
    """
    values, vectors = torch.linalg.eigh(normal)
    known = values > OPEN * max(1, len(values))
    inverse = (vectors[:, known] / values[known]) @ vectors[:, known].T
    loose = vectors[:, ~known].square().sum(1) > INVOLVED
    error = torch.where(loose, torch.inf, inverse.diagonal().clamp_min(0).sqrt())
    return Solution(inverse @ slope, error, int(known.sum()))
