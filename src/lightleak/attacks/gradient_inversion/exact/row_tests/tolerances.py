"""How near to the spaces a candidate must come to be taken; what is proven is decided later, by `proof`."""

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.row_tests.verification import Verdict
from lightleak.attacks.gradient_inversion.exact.spaces.layer_spaces import Spaces

ROW_TOLERANCE = 2e-5
"""Part of ``(h_1, 1)`` that may lie outside the row space: rounding leaves about 1e-6 of it."""

BLUR = 1e-6
"""Tolerance of rows whose part of the gradient is 1, by rounding: 1e-7 of the gradient, and ten times that for what the
pseudo-inverse makes of it."""

UNIT_FACTOR = 30.0
"""The column space is known less well, as its vectors are 0 or 1 times a weight: its tolerance is this many times that
of rows."""

COEFFICIENT_TOLERANCE = 0.02
"""Relative error of a coefficient; those of different counts differ by a fifth or more."""

COEFFICIENT_FACTOR = 5.0
"""A coefficient is blurred this many times as much as a row."""

WIDEN, WIDEST = 4.0, 3e-3
"""By how much the tolerance of rows grows where nothing is found, and up to where."""

MANY_TESTS, WIDEST_OF_MANY = 30, 2e-2
"""Where either space leaves this many equations, no wrong row comes anywhere near all of them, and the weak rows of a
trained network, whose directions rounding blurs, are taken at a wider tolerance."""


def widest(spaces: Spaces) -> float:
    """Largest tolerance of rows that are held against these spaces."""
    many = min(spaces.row_null.shape[1], spaces.unit_null.shape[1]) >= MANY_TESTS
    return WIDEST_OF_MANY if many else WIDEST


def wider(tolerance: float, spaces: Spaces) -> float:
    """The tolerance after searches that found nothing."""
    return min(widest(spaces), WIDEN * tolerance)


def narrower(tolerance: float, spaces: Spaces, left: Tensor, whole: Tensor) -> float:
    """The tolerance after rows were found: rounding is that of the whole gradient, however little of it is left.

    Args:
        tolerance: before.
        spaces: of what is left.
        left: of the layer's gradient ``[out, in + 1]``.
        whole: the layer's observed gradient.
    """
    part = float(whole.norm() / left.norm().clamp_min(torch.finfo(left.dtype).tiny))
    return max(ROW_TOLERANCE, min(widest(spaces), BLUR * part), tolerance / 2)


def passing(verdict: Verdict, tolerance: float, alone: bool) -> Tensor:
    """Which candidates pass all three tests, bool ``[n]``.

    Args:
        verdict: how they fare.
        tolerance: part of a row that may lie outside of the row space.
        alone: pass only rows that no other row of the batch is equal to.
    """
    passed = (
        (verdict.row_distance < tolerance)
        & (verdict.unit_distance < UNIT_FACTOR * tolerance)
        & (verdict.coefficient_error < max(COEFFICIENT_TOLERANCE, COEFFICIENT_FACTOR * tolerance))
    )
    return passed & (verdict.counts.sum(-1) == 1) if alone else passed


def passing_but_for_scale(verdict: Verdict, tolerance: float) -> Tensor:
    """Which candidates lie in both spaces, whatever their coefficient, bool ``[n]``: a client may have scaled it."""
    return (verdict.row_distance < tolerance) & (verdict.single_distance < UNIT_FACTOR * tolerance)
