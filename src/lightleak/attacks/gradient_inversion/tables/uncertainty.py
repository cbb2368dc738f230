"""Entropy of every cell that exact inversion returns, in the units of `cell_entropy` (TabLeak Sec. 3.2)."""

import math

import pandas as pd
import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.tables.entropy import SMALLEST_VARIANCE
from lightleak.attacks.gradient_inversion.tables.row_prior import RowPrior
from lightleak.data.encoder import TableEncoder


def cell_uncertainty(encoder: TableEncoder, prior: RowPrior, found_rows: int, missing: int) -> pd.DataFrame:
    """Nothing is open in a row that was found; a missing row's cells have the prior's entropy.

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
