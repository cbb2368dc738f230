"""Rows that exact inversion did not find: guessed from the prior, with labels that the last bias leaves for them."""

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.spaces.residual import Residual
from lightleak.attacks.gradient_inversion.optimize.labels import expand_counts, round_counts
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior

SAMPLE = 1000
"""Random rows whose mean probabilities stand in for those of the missing rows."""


def guess_rows(
    residual: Residual, space: RowDomain, prior: RowPrior, draws: torch.Generator
) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """The likeliest row of the prior for every missing one, and their labels.

    Args:
        residual: explained rows and what is left.
        space: rows that may be behind what is left.
        prior: what is believed of cells.
        draws: of random rows.

    Returns:
        Cells (category indices ``[k, K]``, values ``[k, m]``) of the k rows that are missing; labels ``[k]``.
    """
    missing = max(0, residual.rows_left)
    codes, numbers = space.draw(SAMPLE, draws, from_prior=True)
    probabilities = residual.network.forward(space.encode(space.cells(codes, numbers))).probabilities.mean(0)
    # The gradient by the last bias is the mean over the batch of p - y.
    counts = missing * probabilities - residual.n_rows * residual.left[-1][:, -1]
    labels = expand_counts(round_counts(counts.cpu(), missing))
    modes = [shares[present].argmax() for shares, present in zip(prior.shares, space.present, strict=True)]
    code = torch.stack(modes) if modes else codes.new_empty(0)
    number = torch.where(space.skewed, space.lower, torch.zeros_like(space.lower))
    cells = space.cells(code.expand(missing, -1), number.expand(missing, -1))
    return cells, labels.to(codes.device)
