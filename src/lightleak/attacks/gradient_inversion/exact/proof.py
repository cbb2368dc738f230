"""Which of the rows that were found are proven: judged once, at the end, on the rows as they are returned.

A row is proven in one of two ways. Either the batch explains the gradient to rounding, what is left of it is nothing
beside the row's own part, and no other numbers would do as well. Or the row alone passes the tests of `verification`
against the whole observed gradient, with enough of them left over beyond those that its own numbers could be bent to
meet.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.refit import number_errors
from lightleak.attacks.gradient_inversion.exact.residual import Residual
from lightleak.attacks.gradient_inversion.exact.rows import RowSpace
from lightleak.attacks.gradient_inversion.exact.spaces import Spaces, numerical_rank
from lightleak.attacks.gradient_inversion.exact.verification import held_against

EXPLAINED = 1e-6
"""Part of the gradient that may be left of a batch that counts as explained: rounding leaves 1e-7; two rows of equal
masks read as one, the nearest wrong explanation that was met, leave 1e-3."""

OWN_PART = 1e-3
"""Part of a row's own contribution that what is left may amount to: a wrong category changes it by a tenth."""

DETERMINED = 0.01
"""Standard error of a proven row's numbers, in deviations, where the whole batch is the proof. Others than rows that
share all masks stay below 1e-4 in batches of Adult; where only a sum of two rows shows, 0.1 and more was met."""

ROW_TOLERANCE, UNIT_TOLERANCE, COEFFICIENT_TOLERANCE = 2e-5, 6e-4, 1e-3
"""Of a row alone. True rows of Adult in batches of up to 96 reach 3e-5, 1e-5 and 4e-4 in untrained networks."""

DOUBTFUL_COEFFICIENT_TOLERANCE = 2e-5
"""Of a row alone where the rank does not count all rows. Rows that share all masks show as one whose cells are their
weighted mean; where those happen to be cells of the table, the coefficient alone tells, unless that fits by chance."""

FIRST_LAYER_FACTOR = 10.0
"""The first layer's row space is blurred more, as rare categories make its smallest singular values small."""

CLEAR_GAP = 100.0
"""A spectrum that runs into rounding without a gap tells no rank, and its spaces are not those of the rows. Batches of
96 at width 100 still have a gap of 300."""

SPARE_TESTS = 4
"""Equations left over to refute a row that is proven alone: a wrong row meets each within the tolerance once in
thousands of times, and a search looks at millions of rows."""


def proven_rows(residual: Residual, space: RowSpace, whole: Sequence[Spaces], free: int) -> Tensor:
    """Which explained rows are proven, bool ``[r]``.

    Args:
        residual: explained rows and what is left.
        space: any space of the table.
        whole: spaces of the first layers of the whole observed gradient.
        free: most numbers that a row's search was free to choose.
    """
    if not len(residual.x) or residual.rows_left < 0:
        return torch.zeros(len(residual.x), dtype=torch.bool, device=residual.x.device)
    if residual.rows_left > 0 or residual.relative >= EXPLAINED:
        return _proven_alone(residual, whole, free)
    determined = determined_rows(residual, space)
    # A row that adds next to nothing may be there for the count alone: then another may be several in one.
    return determined if bool(_adds_something(residual).all()) else determined & _proven_alone(residual, whole, free)


def determined_rows(residual: Residual, space: RowSpace) -> Tensor:
    """Which rows of a batch that explains the gradient could have no other cells, bool ``[r]``.

    Of equal rows only the mean shows to first order: they may as well be different ones around it.

    Args:
        residual: the whole batch as explained rows.
        space: any space of the table.
    """
    errors = number_errors(residual, space)
    alone = (residual.counts.sum(-1) == 1) | (len(space.encoder.schema.numerical) == 0)
    return (errors < DETERMINED).all(-1) & alone & _adds_something(residual)


def _adds_something(residual: Residual) -> Tensor:
    left = torch.stack([layer.square().sum() for layer in residual.left]).sum().sqrt()
    return left < OWN_PART * residual.own_parts


def _proven_alone(residual: Residual, whole: Sequence[Spaces], free: int) -> Tensor:
    proven = residual.counts.sum(-1) == 1  # equal rows may be different ones that share all masks
    tests = -free
    for layer, spaces in enumerate(whole):
        if spaces.rank > residual.n_rows:
            return torch.zeros_like(proven)
        factor = FIRST_LAYER_FACTOR if layer == 0 else 1.0
        counts = residual.counts.unsqueeze(1)
        tested = held_against(residual.chain, layer, spaces, residual.x, counts, residual.n_rows)
        row_distance, unit_distance, coefficient = tested[0], tested[1].squeeze(1), tested[2].squeeze(1)
        proven &= row_distance < factor * ROW_TOLERANCE
        if layer > 0:
            # Only distinct rows with independent errors have coefficients: the first layer has fewer inputs than rows.
            proven &= spaces.gap > CLEAR_GAP
            tests += spaces.row_null.shape[1] + spaces.unit_null.shape[1]
            proven &= unit_distance < UNIT_TOLERANCE
            tolerance = COEFFICIENT_TOLERANCE if _all_show(residual, layer, spaces) else DOUBTFUL_COEFFICIENT_TOLERANCE
            proven &= (coefficient - 1).abs() < tolerance
    return proven if tests >= SPARE_TESTS else torch.zeros_like(proven)


def _all_show(residual: Residual, layer: int, spaces: Spaces) -> bool:
    """Whether a layer's rank counts all rows but those known to be dependent: then no row found is several in one."""
    explained = residual.chain.gradient(residual.x, residual.counts, residual.n_rows)[layer]
    known = int(residual.counts.sum())
    shown = numerical_rank(torch.linalg.svdvals(explained / spaces.unit_scale.unsqueeze(-1)), known)
    return residual.n_rows - spaces.rank == known - min(shown, known)
