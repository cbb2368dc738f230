"""How sure an attacker can be of each cell without the truth: entropy of the ensemble or of the prior (TabLeak 3.2)."""

import math

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from lightleak.attacks.gradient_inversion.config import EntropyMethod
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.data.encoder import TableEncoder

SMALLEST_VARIANCE = 1e-12
"""Restarts that agree exactly would have entropy minus infinity; this keeps ranks and means finite."""
SMALLEST_WEIGHT = 1e-12
"""Weight of a category that the pooled rows give none: where no category has any, all are equally likely."""


def cell_entropy(encoder: TableEncoder, aligned: Tensor, method: EntropyMethod = "frequency") -> pd.DataFrame:
    """Entropy of every cell: in [0, 1] for a category, of a Gaussian in units of the column's deviation for a number.

    Args:
        encoder: schema and statistics.
        aligned: matched ensemble ``[restarts, n, d]``; with one restart every entropy is NaN.
        method: ``frequency`` counts projected restarts (paper, Sec. 3.2); ``soft`` takes the mean of their
            distributions (published code, and with it Tables 4 and 25 to 32). Numbers vary as found, before they are
            rounded or kept in bounds.

    Returns:
        ``[n, columns]`` in the order of the schema.
    """
    restarts = len(aligned)
    codes, numbers = encoder.project(aligned, clamp=False, whole=False)
    cells: dict[str, Tensor] = {}
    raw = (aligned.mean(0).double() * encoder.scale + encoder.shift).clamp_min(SMALLEST_WEIGHT)
    for i, block in enumerate(encoder.layout.categorical):
        if method == "soft":
            weights = raw[:, block.slice]
            probabilities = weights / weights.sum(-1, keepdim=True)
        else:
            probabilities = one_hot(codes[:, :, i], block.width).double().mean(0)
        cells[block.name] = -torch.xlogy(probabilities, probabilities).sum(-1) / math.log(block.width)
    if restarts > 1:
        scaled = numbers / encoder.deviation
        variance = (scaled.var(0) if scaled.numel() else scaled[0]).clamp_min(SMALLEST_VARIANCE)  # torch warns of none
        gaussian = 0.5 + 0.5 * torch.log(2 * math.pi * variance)
    else:
        gaussian = torch.full(numbers.shape[1:], float("nan"), dtype=torch.float64)
        cells = {name: torch.full_like(values, float("nan")) for name, values in cells.items()}
    cells |= {block.name: gaussian[:, i] for i, block in enumerate(encoder.layout.numerical)}
    return pd.DataFrame({name: cells[name].cpu().numpy() for name in encoder.schema.names})


def cell_uncertainty(encoder: TableEncoder, prior: RowPrior, found_rows: int, missing: int) -> pd.DataFrame:
    """Entropy of what exact inversion returns: none in a row that was found, the prior's in a missing one.

    Args:
        encoder: schema and statistics.
        prior: what is believed of cells.
        found_rows: rows that were found, which come first.
        missing: rows that are guesses.

    Returns:
        ``[found_rows + missing, columns]``: 0 to 1 for categories, of a Gaussian in units of the column's deviation
        for numbers.
    """
    known = 0.5 + 0.5 * math.log(2 * math.pi * SMALLEST_VARIANCE)
    categorical, numerical = iter(prior.shares), iter((prior.deviation / encoder.deviation).tolist())
    cells = {}
    for column in encoder.schema.columns:
        if column.is_numerical:
            open_ = 0.5 + 0.5 * math.log(2 * math.pi * max(next(numerical) ** 2, SMALLEST_VARIANCE))
            closed = known
        else:
            open_, closed = _normalized_entropy(next(categorical)), 0.0
        cells[column.name] = [closed] * found_rows + [open_] * missing
    return pd.DataFrame(cells)


def _normalized_entropy(shares: Tensor) -> float:
    return float(-torch.xlogy(shares, shares).sum() / math.log(len(shares)))
