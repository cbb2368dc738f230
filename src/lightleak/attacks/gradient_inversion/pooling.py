"""Merging an ensemble of reconstructions of one batch (TabLeak Sec. 3.1.2, Fig. 3, Eq. 3-4)."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.config import Pooling
from lightleak.core.matching import match_rows
from lightleak.data.encoder import TableEncoder

TOLERANCE = 0.319
"""Tolerance of a number in standard deviations: a quarter of a Gaussian lies within it (TabLeak App. A)."""


def similarity(encoder: TableEncoder, reference: Tensor, candidates: Tensor, tolerance: float = TOLERANCE) -> Tensor:
    """Cells on which two projected rows agree (TabLeak Eq. 6), as a fraction.

    Args:
        encoder: schema and statistics.
        reference: encoded rows ``[n, d]``.
        candidates: encoded rows ``[..., n, d]``.
        tolerance: numbers agree within this many standard deviations.

    Returns:
        ``[..., n, n]``; entry ``[i, j]`` compares reference row ``i`` with candidate row ``j``.
    """
    codes, numbers = encoder.project(reference)
    other_codes, other_numbers = encoder.project(candidates)
    agree = (codes.unsqueeze(-2) == other_codes.unsqueeze(-3)).sum(-1)
    within = (numbers.unsqueeze(-2) - other_numbers.unsqueeze(-3)).abs() <= tolerance * encoder.deviation
    return (agree + within.sum(-1)).double() / len(encoder.schema.columns)


def align(encoder: TableEncoder, ensemble: Tensor, best: int) -> Tensor:
    """Reorder the rows of every restart to match those of the best one.

    Args:
        encoder: schema and statistics.
        ensemble: ``[restarts, n, d]``.
        best: restart of least loss.

    Returns:
        ``[restarts, n, d]``.
    """
    return align_rows(partial(similarity, encoder), ensemble[best], ensemble)


def align_rows(similar: Callable[[Tensor, Tensor], Tensor], reference: Tensor, candidates: Tensor) -> Tensor:
    """Candidates ``[..., n, d]`` with their rows in the order that matches ``reference`` ``[..., n, d]`` best.

    Args:
        similar: how alike reference row i and candidate row j are, ``[..., n, n]``.
        reference: its leading dimensions broadcast against those of the candidates.
        candidates: what is reordered.
    """
    order = match_rows(similar(reference, candidates))
    return torch.gather(candidates, -2, order.unsqueeze(-1).expand(*order.shape, candidates.shape[-1]))


def pool(aligned: Tensor, best: int, pooling: Pooling) -> Tensor:
    """One batch ``[n, d]`` from the aligned ensemble (TabLeak Eq. 3-4).

    Args:
        aligned: ``[restarts, n, d]``.
        best: restart that ``none`` keeps.
        pooling: ``median`` (of an even number the lower one), ``mean``, or ``none``.
    """
    if pooling == "median":
        return aligned.median(0).values
    return aligned.mean(0) if pooling == "mean" else aligned[best]
