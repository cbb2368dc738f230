"""Every row's share in a first layer's update, given the rows, and numbers that leave less of it.

The update is ``sum_i D_i (x_i, 1)^T`` whatever the epochs, batches and order were. The share D_i vanishes on the units
that row i leaves silent and is free on the others; it is eliminated here unit by unit (variable projection, Golub and
Pereyra 1973), so that what is left of the update is a function of the rows alone.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.certify.least_squares import solve
from lightleak.attacks.gradient_inversion.fedavg.exact.observed import WeightUpdate
from lightleak.attacks.gradient_inversion.fedavg.exact.silent_units import silence
from lightleak.attacks.gradient_inversion.network.row_network import with_one
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain

DEPENDENT = 1e-6
"""Part of the largest singular value of the rows active at a unit below which they are dependent."""

DETERMINED = 1e-6
"""Part of a share that may lie in such dependencies while it counts as determined."""

UNEXPLAINED = 1.5
"""Times what rounding leaves of a unit's update that rows may leave: beyond, one that was taken for silent is not. At
3, a share that was left out at a few units bent numbers of other rows by two tolerances."""

MARGINS = (0.0, 0.03, 0.1, 0.3)
"""Parts of what a deviation of every number moves a unit by; rows that are silent by less may be active after all. The
first that explains a unit is taken, and all are silent where none does: then numbers are at fault."""

STEPS, HALVINGS, LEAST_GAIN = 8, 3, 0.99
"""Steps towards better numbers, halvings of each, and part of what was left at which no further one is taken."""


@dataclass(frozen=True)
class Fit:
    """Rows, and the shares with which they fit a first layer's update best.

    Attributes:
        codes: LongTensor ``[r, K]``.
        numbers: ``[r, F]``.
        x: the rows encoded ``[r, d]``.
        shares: ``[r, h]``, 0 where the row is silent.
        known: shares that the rows active at the unit determine, bool ``[r, h]``.
        remains: what they leave of the update ``[h, d + 1]``.
        spans: per unit, an orthonormal basis of the rows active there ``[d + 1, rank]``.
        left: norm of what they leave, relative to what rounding does: about 1 where all rows are right.
        worst: the same of the unit where it is largest.
    """

    codes: Tensor
    numbers: Tensor
    x: Tensor
    shares: Tensor
    known: Tensor
    remains: Tensor
    spans: tuple[Tensor, ...]
    left: float
    worst: float


def fit_shares(observed: WeightUpdate, space: RowDomain, codes: Tensor, numbers: Tensor) -> Fit:
    """The best shares of rows ``[r, K]`` and ``[r, F]`` that vanish on the units which they surely leave silent."""
    x = space.rows.of(codes, numbers)
    gradient, rows, below = observed.gradient[0], with_one(x), silence(observed, x)
    reach = (space.rows.numbers @ observed.start.weights[0].T).norm(dim=0)
    shares, known = torch.zeros_like(below), torch.zeros_like(below, dtype=torch.bool)
    remains, spans, spare = gradient.clone(), [], 0
    of_unit = max(observed.noise * gradient.shape[1] ** 0.5, torch.finfo(x.dtype).tiny)
    allowed = UNEXPLAINED * of_unit
    for unit, update in enumerate(gradient):
        fits = [_of_unit(rows, below[:, unit] <= margin * reach[unit], update) for margin in MARGINS[:1]]
        if fits[0].left > allowed:
            fits += [_of_unit(rows, below[:, unit] <= margin * reach[unit], update) for margin in MARGINS[1:]]
        best = next((one for one in fits if one.left <= allowed), fits[0])
        shares[best.rows, unit] = best.shares
        known[best.rows, unit] = best.known
        remains[unit] = best.remains
        spans.append(best.span)
        spare += gradient.shape[1] - best.span.shape[1]
    rounding = max(observed.noise * max(1, spare) ** 0.5, torch.finfo(x.dtype).tiny)
    worst = float(remains.norm(dim=1).max()) / of_unit
    return Fit(codes, numbers, x, shares, known, remains, tuple(spans), float(remains.norm()) / rounding, worst)


@dataclass(frozen=True)
class _UnitFit:
    """Shares of the rows active at one unit, which of them are determined, the rows' span, and what remains."""

    rows: Tensor
    shares: Tensor
    known: Tensor
    span: Tensor
    remains: Tensor

    @property
    def left(self) -> float:
        return float(self.remains.norm())


def _of_unit(rows: Tensor, active: Tensor, update: Tensor) -> _UnitFit:
    """Least squares for one unit's update ``[d + 1]`` with the active ones of rows ``[r, d + 1]``."""
    some = active.nonzero().flatten()
    across, singular, along = torch.linalg.svd(rows[some], full_matrices=False)
    kept = singular > DEPENDENT * singular[:1].sum()
    across, singular, along = across[:, kept], singular[kept], along[kept]
    part = along @ update
    known = across.square().sum(1) > 1 - DETERMINED
    return _UnitFit(some, (across / singular) @ part, known, along.T, update - part @ along)


def with_better_numbers(observed: WeightUpdate, space: RowDomain, fit: Fit) -> Fit:
    """The same rows with numbers that leave less of the update: Gauss-Newton steps with the shares eliminated."""
    directions = torch.nn.functional.pad(space.rows.numbers, (0, 1))
    for _ in range(STEPS if fit.numbers.numel() else 0):
        step, _ = least_squares(fit, directions)
        best = fit
        for halved in range(HALVINGS):
            numbers = space.clamp(fit.numbers + step.view_as(fit.numbers) / 2**halved)
            tried = fit_shares(observed, space, fit.codes, numbers)
            if tried.left < fit.left:
                best = tried
                break
        if best.left > LEAST_GAIN * fit.left:
            return best
        fit = best
    return fit


def least_squares(fit: Fit, directions: Tensor) -> tuple[Tensor, Tensor]:
    """How far rows should move along directions to leave least of the update, to first order.

    Args:
        fit: the rows.
        directions: ways in which each of them may move ``[m, d + 1]``.

    Returns:
        Steps ``[r m]``, and their standard errors where every element of the update has an error of deviation 1; the
        errors are infinite where shares make the move good, alone or together with moves of other rows.
    """
    normal, slope, scale = _normal_equations(fit, directions)
    solution = solve(normal, slope)
    return solution.step / scale, solution.error / scale


def _normal_equations(fit: Fit, directions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``J^T J`` ``[r m, r m]``, ``J^T remains`` ``[r m]`` and the unit of every move, in which both are.

    Moving row i adds ``D_i[u]`` times the part of its direction outside of the span of the rows active at u; the part
    within is what other shares make good. The unit of a move is what it would add were there no shares to make it good.
    """
    n, m = len(fit.shares), len(directions)
    normal = directions.new_zeros(n, n, m, m)
    for unit, span in enumerate(fit.spans):
        some = (fit.shares[:, unit] != 0).nonzero().flatten()
        beyond = directions - (directions @ span) @ span.T
        share = fit.shares[some, unit]
        outer = share.unsqueeze(0) * share.unsqueeze(1)
        normal[some.unsqueeze(1), some.unsqueeze(0)] += outer[:, :, None, None] * (beyond @ beyond.T)
    slope = fit.shares @ (fit.remains @ directions.T)
    scale = (fit.shares.norm(dim=1).unsqueeze(1) * directions.norm(dim=1)).flatten()
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    scaled = normal.transpose(1, 2).reshape(n * m, n * m) / scale.unsqueeze(0) / scale.unsqueeze(1)
    return scaled, slope.flatten() / scale, scale
