"""Rows on a line of the first layer's row space: the whole numbers of a narrow column name its points.

Two rows of equal categories span a line, and every point of it lies in their row space. Of the points at which one
column is a whole number only the two rows themselves are likely to have whole numbers in all columns.
"""

from math import prod

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.rows import RowSpace
from lightleak.attacks.gradient_inversion.exact.spaces import Spaces

MOST_VALUES = 256
"""Values of the narrowest column that are tried; ages and hours have fewer."""

MOST_ROWS = 64
"""Combinations of categories that are tried."""


def points_of_lines(space: RowSpace, spaces: Spaces, codes: Tensor) -> tuple[Tensor, Tensor] | None:
    """Candidates with every whole number of the narrowest column, the other numbers by least squares.

    Args:
        space: the rows.
        spaces: of the first layer's (residual) gradient.
        codes: combinations of categories ``[n, K]``; none: every combination, where they are few.

    Returns:
        Codes ``[k, K]`` and numbers ``[k, F]``; ``None`` where no column is narrow, or too many combinations are asked.
    """
    if not len(codes):
        codes = _combinations(space)
    whole = [i for i in range(len(space.free)) if bool(space.integer[i])]
    span = (space.upper - space.lower) * space.unit
    narrow = min(whole, key=lambda i: float(span[i]), default=None)
    if narrow is None or float(span[narrow]) >= MOST_VALUES or not 0 < len(codes) <= MOST_ROWS:
        return None
    values = torch.arange(int(span[narrow].round()) + 1).to(space.unit) / space.unit[narrow] + space.lower[narrow]
    others = [i for i in range(len(space.free)) if i != narrow]
    null, rows = spaces.row_null, space.rows
    numbers = codes.new_zeros(len(codes), len(values), len(space.free), dtype=torch.float64)
    numbers[..., narrow] = values
    codes = codes.unsqueeze(1).expand(-1, len(values), -1)
    if others:
        missed = rows.of(codes, numbers) @ null[:-1] + null[-1]
        numbers[..., others] = -missed @ torch.linalg.pinv(rows.numbers[others] @ null[:-1])
    return codes.flatten(0, 1), space.clamp(numbers.flatten(0, 1))


def _combinations(space: RowSpace) -> Tensor:
    """Every combination of present categories, or none where they are more than `MOST_ROWS`."""
    device = space.center.device
    if prod(space.sizes) > MOST_ROWS:
        return torch.empty(0, len(space.sizes), dtype=torch.long, device=device)
    codes = torch.zeros(1, 0, dtype=torch.long, device=device)
    for size in space.sizes:
        options = torch.arange(size, device=device).repeat(len(codes)).unsqueeze(1)
        codes = torch.cat([codes.repeat_interleave(size, 0), options], 1)
    return codes
