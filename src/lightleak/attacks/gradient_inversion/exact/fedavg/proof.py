"""Which rows behind a weight update are proven: judged at the end, against the first layer's update alone.

The update is ``sum_i D_i (x_i, 1)^T`` whatever the epochs, batches and order were, with a share D_i that vanishes on
the units that row i leaves silent and is free on the others. So to first order an update determines a cell only if
moving it changes what no shares can make good: at unit u, what lies outside of the span of the rows active there. Cells
are proven where that leaves no room for another category, a label and a count where the share is that of no other
labels and counts, and numbers where their standard errors are small. Rows of equal categories and active units mix at
no cost, and are not proven.
"""

from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import comb

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.chain import with_one
from lightleak.attacks.gradient_inversion.exact.fedavg.counts import LEAST, predicted_shares
from lightleak.attacks.gradient_inversion.exact.fedavg.observed import WeightUpdate
from lightleak.attacks.gradient_inversion.exact.fedavg.silent_units import silence
from lightleak.attacks.gradient_inversion.exact.rows import RowSpace
from lightleak.core.certificate import NUMBERS_WITHIN

EXPLAINED = 1.5
"""Times what rounding leaves of the first layer's update that all rows together may leave of it."""

STANDARD_ERRORS = 5.0
"""By which a number or an indicator may be off beyond what one step of least squares moves it."""

INDICATOR_WITHIN = 0.1
"""How near a category's indicators must come out to 0 and 1, were they free."""

DEPENDENT = 1e-6
"""Part of the largest singular value of the rows active at a unit below which they are dependent."""

DETERMINED = 1e-6
"""Part of a share that may lie in such dependencies while it counts as determined."""

MOST_UNKNOWN = 6000
"""Cells that are judged together, beyond which nothing is proven: a matrix of this size squared is inverted."""

JITTER = 1e-13
"""Added to the diagonal of 1 of that matrix: errors beyond what it lets be seen come out as large, not as infinite."""

SHARE_WITHIN = 0.3
"""Part of a share by which its prediction may miss: the way of the weights is known to 5 to 15 %."""

RIVAL_BEYOND, RIVAL_TIMES = 0.25, 2.0
"""Other labels or counts must miss by this part of the share, and by so many times what the best ones do."""

LEAST_UNITS = 3
"""Units in which a share must be determined."""

MOST_READINGS = 5000
"""Labels and counts that are told apart at most."""


@dataclass(frozen=True)
class Proof:
    """What is proven of rows.

    Attributes:
        cells: categories, label and how often the row occurs, bool ``[r]``.
        digits: its numbers as well, to `NUMBERS_WITHIN`, bool ``[r]``.
        left: norm of what the rows leave of the first layer's update, relative to what rounding does.
    """

    cells: Tensor
    digits: Tensor
    left: float


@dataclass(frozen=True)
class Fitted:
    """Shares that fit an update best, given its rows.

    Attributes:
        shares: ``[r, h]``, 0 where the row is silent.
        known: which of them the rows active at the unit determine, bool ``[r, h]``.
        left: what they leave of the update ``[h, d + 1]``.
        spans: per unit, an orthonormal basis of the rows active there ``[d + 1, rank]``.
        spare: elements of the update beyond what shares can always meet.
    """

    shares: Tensor
    known: Tensor
    left: Tensor
    spans: tuple[Tensor, ...]
    spare: int


def proven_rows(
    observed: WeightUpdate, space: RowSpace, codes: Tensor, numbers: Tensor, counts: Tensor, n_rows: int, rank: int
) -> Proof:
    """What is proven of distinct rows that are said to be all.

    Args:
        observed: the update.
        space: whose coordinates.
        codes: ``[r, K]``.
        numbers: ``[r, F]``, not rounded.
        counts: rows of each class ``[r, classes]``.
        n_rows: rows behind the update.
        rank: independent rows that the update shows: at least so many are distinct.
    """
    x = space.rows.of(codes, numbers)
    fitted = fitted_shares(observed, x)
    left = float(fitted.left.norm()) / max(observed.noise * max(1, fitted.spare) ** 0.5, LEAST)
    none = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    if left >= EXPLAINED or int(counts.sum()) != n_rows:
        return Proof(none, none, left)
    told = counts_told(
        observed, fitted.shares, fitted.known, predicted_shares(observed, x, n_rows), counts, n_rows - rank
    )
    categories, digits = _settled(observed, space, x, fitted)
    cells = told & categories
    return Proof(cells, cells & digits & (counts.sum(1) == 1), left)


def fitted_shares(observed: WeightUpdate, x: Tensor) -> Fitted:
    """Least-squares shares of rows ``[r, d]`` that vanish on the units they surely leave silent."""
    gradient, rows = observed.gradient[0], with_one(x)
    active = silence(observed, x) <= 0
    shares, known = torch.zeros_like(active, dtype=x.dtype), torch.zeros_like(active)
    left, spans, spare = gradient.clone(), [], 0
    for unit in range(len(gradient)):
        some = active[:, unit].nonzero().flatten()
        across, singular, along = torch.linalg.svd(rows[some], full_matrices=False)
        kept = singular > DEPENDENT * singular[:1].sum()
        across, singular, along = across[:, kept], singular[kept], along[kept]
        part = along @ gradient[unit]
        shares[some, unit] = (across / singular) @ part
        known[some, unit] = across.square().sum(1) > 1 - DETERMINED
        left[unit] -= part @ along
        spans.append(along.T)
        spare += gradient.shape[1] - len(singular)
    return Fitted(shares, known, left, tuple(spans), spare)


def counts_told(
    observed: WeightUpdate, shares: Tensor, known: Tensor, predicted: Tensor, counts: Tensor, extra: int
) -> Tensor:
    """Which rows' shares are those of their counts and of no others, bool ``[r]``.

    Args:
        observed: the update.
        shares: of distinct rows ``[r, h]``.
        known: where they are determined, bool ``[r, h]``.
        predicted: what one row of each class adds ``[r, classes, h]``.
        counts: what is said of them ``[r, classes]``.
        extra: rows beyond one each that there may be.
    """
    told = torch.zeros(len(shares), dtype=torch.bool, device=shares.device)
    n_classes = counts.shape[1]
    if extra < 0 or (extra > 0 and observed.fit_scale):
        return told
    if comb(1 + extra + n_classes, n_classes) > MOST_READINGS:
        return told
    readings = torch.stack(
        [
            torch.bincount(torch.tensor(way), minlength=n_classes)
            for total in range(1, 2 + extra)
            for way in combinations_with_replacement(range(n_classes), total)
        ]
    ).to(shares.device)
    scale = _scale(shares, predicted, counts) if observed.fit_scale else 1.0
    for i in range(len(shares)):
        at = known[i]
        share = shares[i, at] / scale
        size = float(share.norm())
        if int((share != 0).sum()) < LEAST_UNITS:
            continue
        misfit = (share - readings.to(share.dtype) @ predicted[i][:, at]).norm(dim=1) / max(size, LEAST)
        own = (readings == counts[i]).all(1)
        if not bool(own.any()):
            continue
        best = float(misfit[own])
        rival = float(misfit[~own].min()) if bool((~own).any()) else float("inf")
        told[i] = best < SHARE_WITHIN and rival > max(RIVAL_BEYOND, RIVAL_TIMES * best)
    return told


def _scale(shares: Tensor, predicted: Tensor, counts: Tensor) -> float:
    """Median ratio of shares to what is predicted of the counts."""
    expected = torch.einsum("rc,rch->rh", counts.to(predicted.dtype), predicted)
    ratio = (shares * expected).sum(1) / expected.square().sum(1).clamp_min(LEAST)
    return float(ratio.median().clamp_min(LEAST))


def _settled(observed: WeightUpdate, space: RowSpace, x: Tensor, fitted: Fitted) -> tuple[Tensor, Tensor]:
    """Rows whose categories, and whose numbers, the update determines with all cells of all rows free, bool ``[r]``."""
    directions, allowed = _directions(space)
    none = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    if not len(directions):
        return ~none, ~none
    if len(x) * len(directions) > MOST_UNKNOWN:
        return none, none
    normal, slope = _normal_equations(fitted, directions / allowed.unsqueeze(1))
    scale = normal.diagonal().sqrt()
    safe = torch.where(scale > 0, scale, torch.ones_like(scale))
    scaled = normal / safe.unsqueeze(0) / safe.unsqueeze(1)
    scaled.diagonal().add_(JITTER)
    factor, failed = torch.linalg.cholesky_ex(scaled)
    if bool(failed):
        return none, none
    inverse = torch.cholesky_inverse(factor)
    step = (inverse @ (slope / safe)) / safe
    error = observed.noise * inverse.diagonal().clamp_min(0).sqrt() / safe
    reach = torch.where(scale > 0, step.abs() + STANDARD_ERRORS * error, torch.inf)
    within = (reach < 1).view(len(x), -1)
    n_categories = len(directions) - len(space.encoder.schema.numerical)
    return within[:, :n_categories].all(1), within[:, n_categories:].all(1)


def _directions(space: RowSpace) -> tuple[Tensor, Tensor]:
    """Ways in which encoded rows may move ``[m, d + 1]``, categories first, and how far along each is too far."""
    encoder, ways, allowed = space.encoder, [], []
    for table in space.rows.categories:
        ways += list(table[1:] - table[:1])
        allowed += [INDICATOR_WITHIN] * (len(table) - 1)
    for j, position in enumerate(encoder.numerical_positions):
        way = encoder.scale.new_zeros(encoder.width)
        way[position] = encoder.deviation[j] / encoder.scale[position]
        ways.append(way)
        allowed.append(NUMBERS_WITHIN)
    stacked = torch.stack(ways) if ways else encoder.scale.new_empty(0, encoder.width)
    return torch.nn.functional.pad(stacked, (0, 1)), torch.tensor(allowed, dtype=stacked.dtype, device=stacked.device)


def _normal_equations(fitted: Fitted, directions: Tensor) -> tuple[Tensor, Tensor]:
    """``J^T J`` ``[r m, r m]`` and ``J^T left`` ``[r m]`` of cells in steps of ``directions``, shares left free.

    A cell's column is ``D_i[u]`` times its direction outside of the span of the rows active at u.
    """
    n, m = len(fitted.shares), len(directions)
    normal = directions.new_zeros(n, n, m, m)
    inner = directions @ directions.T
    for unit, span in enumerate(fitted.spans):
        some = (fitted.shares[:, unit] != 0).nonzero().flatten()
        within = directions @ span
        share = fitted.shares[some, unit]
        outer = share.unsqueeze(0) * share.unsqueeze(1)
        normal[some.unsqueeze(1), some.unsqueeze(0)] += outer[:, :, None, None] * (inner - within @ within.T)
    slope = fitted.shares @ (fitted.left @ directions.T)
    return normal.transpose(1, 2).reshape(n * m, n * m), slope.flatten()
