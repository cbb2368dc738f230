"""The update written out as its rows: every row's share in every unit, and from the shares the rows themselves.

With one dual per row, ``D_i = G z_i`` up to a factor, which the bias column settles (it is the sum of all shares). Then
``G = D^T U`` is solved for U: category indicators that must come out as 0 and 1, and numbers that nothing else has to
determine.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import lstsq
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.enumerate.row_equations import RowEquations
from lightleak.attacks.gradient_inversion.fedavg.exact.observed import WeightUpdate
from lightleak.attacks.gradient_inversion.fedavg.exact.silent_units import nothing, silence

LEAST = 1e-300
"""Keeps quotients of zeros finite."""

DEPENDENT = 1e-6
"""Part of the largest singular value below which rows count as linearly dependent: their shares in a unit in which all
of them are active are then the least that do."""

SHARPENED = 3
"""Rounds of solving for shares on active units alone and for numbers: the second changes next to nothing."""


REFINED = 20
"""The same where numbers are not yet known."""

MARGINS = (0.3, 0.3, 0.1, 0.03)
"""Errors of the numbers, in deviations of each, at which a unit that is silent by less may be active after all."""


@dataclass(frozen=True)
class Decomposition:
    """Rows and shares that make up a first layer's update.

    Attributes:
        codes: LongTensor ``[r, K]``.
        numbers: ``[r, F]``, clamped.
        shares: ``[r, h]``.
        left: norm of what they leave of the update, relative to what noise explains: about 1 where all rows are found.
    """

    codes: Tensor
    numbers: Tensor
    shares: Tensor
    left: float


def decompose(equations: RowEquations, vectors: Tensor) -> Decomposition:
    """Write the update as rows, given as many duals as its rank.

    Args:
        equations: of the update.
        vectors: duals ``[r, coordinates]``.
    """
    gradient = equations.gradient
    active = ~nothing(equations, vectors)
    raw = vectors @ gradient.T
    factor = torch.linalg.pinv(raw.T) @ gradient[:, -1]
    shares = raw * factor.unsqueeze(-1)
    return _sharpened(equations, shares, active, SHARPENED)


def refine(observed: WeightUpdate, equations: RowEquations, codes: Tensor, numbers: Tensor) -> Decomposition:
    """Write the update as rows near given ones, whose numbers are known roughly.

    Args:
        observed: the update.
        equations: its.
        codes: ``[r, K]``.
        numbers: ``[r, F]``.
    """
    tables = equations.space.rows
    reach = (tables.numbers @ observed.start.weights[0].T).norm(dim=0)
    found: Decomposition | None = None
    for margin in MARGINS:
        active = silence(observed, tables.of(codes, numbers)) < margin * reach
        shares = _shares(equations.gradient, equations.coordinates(codes, numbers), active)
        tried = _sharpened(equations, shares, active, REFINED)
        if found is None or tried.left < found.left:
            found, codes, numbers = tried, tried.codes, tried.numbers
    assert found is not None
    return found


def _sharpened(equations: RowEquations, shares: Tensor, active: Tensor, rounds: int) -> Decomposition:
    """Rows from shares and shares from rows in turn."""
    gradient = equations.gradient
    for _ in range(rounds):
        codes, numbers = _rows(equations, shares)
        shares = _shares(gradient, equations.coordinates(codes, numbers), active)
    codes, numbers = _rows(equations, shares)
    left = gradient - shares.T @ equations.coordinates(codes, numbers)
    explained = equations.noise * left.numel() ** 0.5
    return Decomposition(codes, numbers, shares, float(left.norm()) / max(explained, LEAST))


def _rows(equations: RowEquations, shares: Tensor) -> tuple[Tensor, Tensor]:
    """Codes and numbers of the rows that fit shares best."""
    space = equations.space
    solved = torch.linalg.pinv(shares.T) @ equations.gradient
    codes, start = [], 0
    for size in space.sizes:
        codes.append(solved[:, start : start + size].argmax(1))
        start += size
    stacked = torch.stack(codes, 1) if codes else torch.empty(len(solved), 0, dtype=torch.long, device=solved.device)
    return stacked, space.clamp(solved[:, start : start + len(space.free)])


def _shares(gradient: Tensor, coordinates: Tensor, active: Tensor) -> Tensor:
    """Least-squares shares ``[r, h]`` that are zero outside the active units; the smallest where several fit."""
    # A QR factorization with pivots takes a fifth of an SVD's time; torch's depends on what memory held before.
    shares = np.zeros(active.shape)
    of_rows, wanted = coordinates.T.cpu().numpy(), gradient.cpu().numpy()
    for unit, some in enumerate(active.T.cpu().numpy()):
        if some.any():
            shares[some, unit] = lstsq(
                of_rows[:, some], wanted[unit], cond=DEPENDENT, lapack_driver="gelsy", check_finite=False
            )[0]
    return torch.from_numpy(shares).to(gradient)
