"""Which rows are proven by their own equations, whatever the rest of the batch is.

A row of the batch passes the tests of `verification`: its vectors lie in the row and the column space of each layer's
gradient, and its coefficient is that of its label and multiplicity. A wrong row may pass them too, where its numbers
can be bent to meet them. Under ReLU the column space fixes masks and label but says nothing about a number inside its
mask cell; numbers are constrained by the row spaces and the coefficient. So a row is proven only where

* no other categories, with any numbers, would meet the equations of the row spaces (`excludes_other_categories`),
  and,
* for its digits, these equations determine every number to `NUMBERS_WITHIN`, by standard errors that follow from the
  rounding of the gradient (`_numbers`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.certify.alternatives import (
    excludes_other_categories,
    has_one_reading,
)
from lightleak.attacks.gradient_inversion.exact.certify.least_squares import STANDARD_ERRORS
from lightleak.attacks.gradient_inversion.exact.certify.row_evidence import (
    COEFFICIENT_TOLERANCE,
    FIRST_LAYER_FACTOR,
    ROW_TOLERANCE,
    UNIT_TOLERANCE,
    VECTOR_ROUNDING,
    RowEvidence,
    evidence_of,
    number_tolerances,
)
from lightleak.attacks.gradient_inversion.exact.spaces.layer_spaces import (
    Spaces,
    numerical_rank,
    spaces_of,
    unit_scale,
)
from lightleak.attacks.gradient_inversion.exact.spaces.residual import Residual
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.data.encoder import TableEncoder

DOUBTFUL_COEFFICIENT_TOLERANCE = 2e-5
"""Of equal rows, and where the rank does not count all rows. Different rows that share all masks show as one whose
numbers are their weighted mean; only the coefficient distinguishes it from a row, unless that fits by chance."""

CLEAR_GAP = 100.0
"""A spectrum that runs into rounding without a gap gives no rank, and its spaces are not those of the rows. Batches of
96 at width 100 still have a gap of 300."""

COEFFICIENT_KNOWN = 0.02
"""Relative standard error that numbers may leave in a coefficient which is to tell label and multiplicity."""

LEAST_APART = 1e-4
"""Relative distance of the coefficients of two readings of label and multiplicity that are distinguished."""

UNBOUNDED = 1e-12
"""Eigenvalues of the numbers' normal matrix, in units of tolerances, are raised to this: an error without bound."""

ELEMENTS = 4_000_000
"""Derivatives that are held at once."""


def lone_proof(residual: Residual, space: RowDomain, all_distinct: bool = False) -> tuple[Tensor, Tensor]:
    """Which explained rows are proven by their own equations: their cells and their digits, bool ``[r]`` each.

    Args:
        residual: explained rows and what is left.
        space: rows that may be in the batch.
        all_distinct: prove nothing unless the gradient shows as many distinct rows as the batch has.
    """
    rows, n = len(residual.x), residual.n_rows
    layer = residual.network.searched
    whole = [spaces_of(of_layer, unit_scale(of_layer), most=n) for of_layer in residual.observed[:-1]]
    cells, digits = torch.zeros(2, rows, dtype=torch.bool, device=residual.x.device)
    if len(whole) <= layer or any(spaces.rank > n for spaces in whole) or not whole[layer].gap > CLEAR_GAP:
        return cells, digits
    if all_distinct and whole[layer].rank < n:
        return cells, digits
    # A deeper layer of another rank shows sums of rows only, or has lost them.
    same = [
        at
        for at in range(min(1, layer), len(whole))
        if whole[at].rank == whole[layer].rank and whole[at].gap > CLEAR_GAP
    ]
    used = {at: whole[at] for at in (0, *same)}
    all_show = _all_show(residual, whole[layer])
    width = space.encoder.width * sum(spaces.row_null.shape[1] for spaces in used.values())
    for at in torch.arange(rows).split(max(1, ELEMENTS // max(1, width))):
        tested = evidence_of(residual.network, used, residual.x[at], residual.counts[at], n, space.encoder)
        numbers = _numbers(tested, space.encoder)
        sure = _passes(tested, numbers, all_show) & excludes_other_categories(tested, space)
        # Distinct rows that the gradient shows leave room for few to occur again.
        sure &= residual.counts[at].sum(-1) - 1 <= n - whole[layer].rank
        cells[at] = sure
        alone = (residual.counts[at].sum(-1) == 1) | (len(space.encoder.schema.numerical) == 0)
        digits[at] = sure & alone & numbers.determined
    return cells, digits


@dataclass(frozen=True)
class _Numbers:
    """What the equations say of the numbers of rows.

    Attributes:
        determined: every number is, within its tolerance, bool ``[r]``.
        coefficient_error: standard error of the coefficient by what the row spaces leave open of the numbers ``[r]``.
    """

    determined: Tensor
    coefficient_error: Tensor


def _numbers(tested: RowEvidence, encoder: TableEncoder) -> _Numbers:
    """Least squares for the numbers of each row, categories held: step and standard errors against the tolerances."""
    at, tolerance = encoder.numerical_positions, number_tolerances(encoder)
    if not len(tolerance):
        sure = torch.ones_like(tested.error, dtype=torch.bool)
        return _Numbers(sure, torch.zeros_like(tested.error))
    # A step of one tolerance in every number, in units of rounding.
    steps = tested.slopes[:, at] * (tolerance / encoder.scale[at])[:, None]  # [r, m, Q]
    normal, right = steps @ steps.mT, (steps @ tested.missed.unsqueeze(-1)).squeeze(-1)
    of_coefficient = tested.coefficient_slopes * (tolerance / encoder.scale[at])  # [r, m]
    values, vectors = torch.linalg.eigh(normal)
    along = (vectors * of_coefficient.unsqueeze(-1)).sum(1)
    open_error = (along.square() / values.clamp_min(UNBOUNDED)).sum(1).sqrt()
    by_coefficient = of_coefficient / tested.error.clamp_min(VECTOR_ROUNDING).unsqueeze(-1)
    off = (tested.coefficient[tested.layers.index(tested.searched)] - 1) / tested.error.clamp_min(VECTOR_ROUNDING)
    values, vectors = torch.linalg.eigh(normal + by_coefficient.unsqueeze(-1) * by_coefficient.unsqueeze(1))
    inverse = (vectors / values.clamp_min(UNBOUNDED).unsqueeze(1)) @ vectors.mT
    right = right + by_coefficient * off.unsqueeze(-1)
    change = (inverse @ right.unsqueeze(-1)).squeeze(-1)
    squares = tested.missed.square().sum(1) + off.square() - (right * change).sum(1)
    misfit = (squares.clamp_min(0) / max(1, tested.missed.shape[1] + 1 - len(at))).sqrt().clamp_min(1)
    error = inverse.diagonal(dim1=1, dim2=2).sqrt() * misfit.unsqueeze(-1)
    determined = (change.abs() + STANDARD_ERRORS * error).amax(1) < 1
    return _Numbers(determined, open_error * misfit)


def _passes(tested: RowEvidence, numbers: _Numbers, all_show: bool) -> Tensor:
    """Rows that pass every test, whose coefficient allows one reading only, and whose numbers leave tests over."""
    first = torch.tensor([FIRST_LAYER_FACTOR if at == 0 else 1.0 for at in tested.layers]).to(tested.x)
    deeper = torch.tensor([at > 0 or at == tested.searched for at in tested.layers], device=tested.x.device)
    off = (tested.coefficient[deeper] - 1).abs().amax(0)
    single = tested.counts.sum(-1) == 1
    strict = torch.full_like(off, COEFFICIENT_TOLERANCE)
    strict[~single | (not all_show)] = DOUBTFUL_COEFFICIENT_TOLERANCE
    passed = (tested.row_distance < ROW_TOLERANCE * first.unsqueeze(1)).all(0)
    passed &= (tested.unit_distance[deeper] < UNIT_TOLERANCE).all(0) & (off < strict)
    uncertain = STANDARD_ERRORS * (numbers.coefficient_error.square() + tested.error.square()).sqrt()
    one_reading = has_one_reading(tested, uncertain.clamp_min(LEAST_APART))
    return passed & (numbers.coefficient_error < COEFFICIENT_KNOWN) & one_reading


def _all_show(residual: Residual, spaces: Spaces) -> bool:
    """Whether a layer's rank counts all rows but those known to be dependent: then no row found is several in one."""
    explained = residual.network.gradient(residual.x, residual.counts, residual.n_rows)[residual.network.searched]
    known = int(residual.counts.sum())
    shown = numerical_rank(torch.linalg.svdvals(explained / spaces.unit_scale.unsqueeze(-1)), known)
    return residual.n_rows - spaces.rank == known - min(shown, known)
