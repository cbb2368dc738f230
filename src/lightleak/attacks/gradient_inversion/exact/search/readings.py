"""Candidates of a search, compared: equal ones, readings of one row, and what all of them say about the gradient.

A row is written down as its cells, as `TableEncoder.project` returns them: category indices and numbers.
"""

import torch
from torch import Tensor

COPIES = 4
"""Candidates of equal categories that are polished before those of others get their turn."""

NEAR = 0.1
"""Deviations within which two numbers may be readings of one."""

SCALED_WITHIN, LEAST_SCALED = 0.01, 3
"""Coefficients of at least this many rows, or of all rows of a smaller batch, within 1% of their median say that the
client scaled its gradient."""

SURE, LEAST_OFF = 10.0, 2e-6
"""How many times farther from 1 a common factor is than half of the rows are from it, and how far at least: without
scaling, coefficients are 1 to a few ten-millionths."""


def common_factor(coefficients: Tensor, n_rows: int) -> float | None:
    """What all of a gradient of ``n_rows`` must be multiplied by, where a client clipped it: lone rows agree on it.

    >>> common_factor(torch.tensor([3.0, 3.001, 2.999, 1.5]), 5), common_factor(torch.tensor([1.01, 1.01]), 2)
    (3.0, 1.0099999904632568)
    >>> common_factor(torch.tensor([3.0, 1.5, 0.2]), 3), common_factor(torch.tensor([1.001, 1.002, 0.998]), 4)
    (None, None)
    """
    least = min(LEAST_SCALED, n_rows)
    if len(coefficients) < least:
        return None
    # Two rows that are equal have half the coefficient: they stay in the minority.
    median = coefficients.quantile(0.5) if len(coefficients) % 2 else coefficients.sort().values[len(coefficients) // 2]
    if float(median) <= 0:
        return None
    apart, enough = (coefficients / median - 1).abs().sort().values, max(least, (len(coefficients) + 1) // 2)
    spread, off = float(apart[enough - 1]), abs(float(median) - 1)
    return float(median) if spread < SCALED_WITHIN and off > max(LEAST_OFF, SURE * spread) else None


def varied(codes: Tensor, copies: int = COPIES) -> Tensor:
    """Order of candidates, best first: at most so many of equal categories before those of others come.

    >>> varied(torch.tensor([[1], [1], [1], [2]]), copies=2).tolist()
    [0, 1, 3, 2]
    """
    # A table without categorical columns has codes of width 0, which `unique` refuses.
    _, group = torch.nn.functional.pad(codes, (0, 1)).unique(dim=0, return_inverse=True)
    before = (group.unsqueeze(0) == group.unsqueeze(1)).tril(-1).sum(1)
    return (before // copies).argsort(stable=True)


def distinct(cells: tuple[Tensor, Tensor], x: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
    """Cells and encoded rows without repetitions, and which of them every row is.

    Args:
        cells: category indices ``[n, K]`` and values ``[n, m]``, at least one row.
        x: the rows encoded ``[n, d]``.

    Returns:
        Cells and encoded rows of ``r`` distinct rows, and a LongTensor ``[n]`` of indices among them.

    >>> cells = torch.tensor([[1], [0], [1]]), torch.tensor([[5.0], [5.0], [5.0]], dtype=torch.float64)
    >>> (codes, values), x, group = distinct(cells, torch.tensor([[7.0], [8.0], [7.0]]))
    >>> codes[group].flatten().tolist(), x[group].flatten().tolist(), len(x)
    ([1, 0, 1], [7.0, 8.0, 7.0], 2)
    """
    merged = torch.cat([cells[0].double(), cells[1]], -1)
    _, group = merged.unique(dim=0, return_inverse=True)
    first = torch.full((int(group.max()) + 1,), len(group), device=group.device)
    first = first.scatter_reduce(0, group, torch.arange(len(group), device=group.device), "amin")
    return (cells[0][first], cells[1][first]), x[first], group


def unlike(cells: tuple[Tensor, Tensor], order: Tensor, deviation: Tensor) -> Tensor:
    """Of these candidates, best first, those that are no second reading of a better one.

    Candidates of equal categories and nearly equal numbers are taken one at a time: should both be true, the other
    passes again once the first is taken out.

    Args:
        cells: of all candidates, category indices ``[n, K]`` and values ``[n, m]``.
        order: indices of those that are looked at, best first.
        deviation: of the numbers ``[m]``.

    >>> cells = torch.tensor([[1], [1], [0]]), torch.tensor([[5.0], [5.01], [5.0]])
    >>> unlike(cells, torch.tensor([1, 0, 2]), torch.ones(1)).tolist()
    [1, 2]
    """
    codes, values = cells
    kept: list[int] = []
    for i in order.tolist():
        same = (codes[kept] == codes[i]).all(-1)
        close = ((values[kept] - values[i]).abs() <= NEAR * deviation).all(-1)
        if not bool((same & close).any()):
            kept.append(i)
    return torch.tensor(kept, dtype=torch.long, device=order.device)
