"""Several solutions of one batch merged into one: what most of them agree on is right more often than any of them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.joint.problem import JointRows
from lightleak.attacks.gradient_inversion.tables.codec import TOLERANCE
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.core.matching import match_rows

LABEL_WEIGHT = 0.5
"""What an equal label counts in matching rows, in cells: it breaks ties and no more."""


def pooled(space: RowDomain, solutions: Sequence[JointRows], best: int) -> tuple[JointRows, list[JointRows]]:
    """The commonest category, the median number and the commonest label of every cell; and the solutions, matched.

    Args:
        space: what the numbers are of.
        solutions: of one batch, at least one.
        best: index of the one whose rows the others' are matched to.
    """
    tolerance = TOLERANCE * space.encoder.deviation[list(space.free)] / space.unit
    matched = [_matched(solutions[best], other, tolerance) for other in solutions]
    codes = torch.stack([m.codes for m in matched]).mode(0).values
    numbers = torch.stack([m.numbers for m in matched]).median(0).values
    return JointRows(codes, numbers, torch.stack([m.labels for m in matched]).mode(0).values), matched


def _matched(reference: JointRows, other: JointRows, tolerance: Tensor) -> JointRows:
    """The other's rows in the order that agrees with the reference in most cells."""
    cells = (reference.codes.unsqueeze(1) == other.codes).sum(-1).double()
    cells += ((reference.numbers.unsqueeze(1) - other.numbers).abs() <= tolerance).sum(-1)
    cells += LABEL_WEIGHT * (reference.labels.unsqueeze(1) == other.labels)
    return other[match_rows(cells)]
