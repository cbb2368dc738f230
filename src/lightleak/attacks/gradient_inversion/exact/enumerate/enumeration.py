"""Every row of a table that lies in the row space of a first layer's update: found whole, without a search.

The equations of `RowEquations`, numbers projected out, are sums of one entry per categorical column. Rows that satisfy
them are found by meeting in the middle: all sums over one half of the columns, sorted, against all over the other.

The idea of testing discrete values against a gradient's span is DAGER's (Petrov et al., NeurIPS 2024).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.enumerate.row_equations import RowEquations
from lightleak.attacks.gradient_inversion.network.cells import Affine
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.core.bounds import bounded, check_bounds

PAIRS_AT_ONCE = 1 << 18
"""Pairs of half sums compared at once; bounds memory at some 100 MB for 40 equations."""

MAIN_AXES = 4
"""Axes by which pairs are sifted before they are compared in full: a pair that is near by chance along one of them is
hardly ever near along four."""

CERTAIN = 6.0
"""Deviations of the noise that a true row may miss its equations by, beyond what their number explains."""


@dataclass(frozen=True)
class EnumerationLimits:
    """Where an enumeration gives up, and how near is near enough.

    Attributes:
        half_sums: most combinations of categories on one side of the meeting.
        pairs: most pairs of half sums to compare.
        hits: most rows that may satisfy the equations.
        tolerance: largest distance of a row's categories from the equations.

    Raises:
        UsageError: a value out of range.
    """

    half_sums: int = bounded(200_000, ge=1)
    pairs: int = bounded(40_000_000, ge=1)
    hits: int = bounded(40_000, ge=1)
    tolerance: float = bounded(1e-3, gt=0)

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True)
class Enumeration:
    """What an enumeration found.

    Attributes:
        codes: coordinates of the rows, LongTensor ``[n, K]``.
        numbers: likewise ``[n, F]``, solved within their bounds.
        distance: how far each is from satisfying all equations ``[n]``.
        constraints: equations on the categories, numbers projected out.
        reason: why nothing was enumerated; empty where the rows are complete (also where there are none).
    """

    codes: Tensor
    numbers: Tensor
    distance: Tensor
    constraints: int
    reason: str = ""


def enumerate_rows(
    residual: Tensor,
    space: RowDomain,
    rank: int,
    noise: float = 0.0,
    limits: EnumerationLimits | None = None,
    seen: Affine | None = None,
) -> Enumeration:
    """All rows of a space that lie in the row space of a first layer's gradient.

    Args:
        residual: gradient of the first layer's weights and bias ``[h, d + 1]``, float64, or what known rows leave of
            it.
        space: the rows that may be in the batch.
        rank: number of distinct rows behind the residual; a lower rank is taken where singular values vanish.
        noise: deviation of the errors in the residual's elements. Above 0, rows are also tested against it, and whole
            numbers rounded where it leaves no doubt.
        limits: where to give up.
        seen: see `RowEquations.of`.

    Returns:
        The rows, in no order of meaning: the true ones and any other that satisfies the same equations; or none, and
        the reason.
    """
    equations = RowEquations.of(residual, space, rank, noise, seen)
    if not len(equations.on_categories()):
        return _nothing(equations, 0, "no constraints: the rows' span leaves no equation on the categories")
    return satisfying(equations, limits=limits)


def satisfying(
    equations: RowEquations, at_bound: Sequence[int] = (), limits: EnumerationLimits | None = None
) -> Enumeration:
    """All rows that satisfy equations; every combination of categories where there is no equation on them.

    Args:
        equations: see `RowEquations.of`.
        at_bound: only rows whose free numbers of these indices are at their lower bound: each leaves one equation
            more for the categories.
        limits: where to give up.
    """
    limits = limits or EnumerationLimits()
    sizes = equations.space.sizes
    onto = equations.on_categories(at_bound)
    sides = _halves(sizes)
    combinations = max(prod(sizes[k] for k in side) for side in sides)
    if combinations > limits.half_sums:
        reason = f"too many combinations: {combinations} half sums, at most {limits.half_sums} are allowed"
        return _nothing(equations, len(onto), reason)
    left, right = (_half_sums(onto, sizes, side) for side in sides)
    found = _meet(left, -(right + onto[:, -1]), limits)
    if isinstance(found, str):
        return _nothing(equations, len(onto), found)
    codes = _joined(found, sizes, sides)
    numbers = equations.solve(codes, at_bound)
    distance = equations.distance(codes, numbers)
    if equations.noise > 0:
        near = equations.deviation(codes, numbers) * (sqrt(len(equations.values)) + CERTAIN)
        keep = distance <= near
        codes, numbers, distance = codes[keep], numbers[keep], distance[keep]
    return Enumeration(codes, numbers, distance, len(onto))


def _halves(sizes: Sequence[int]) -> tuple[list[int], list[int]]:
    """Two groups of columns with nearly equally many combinations, in the order of the columns."""
    groups: tuple[list[int], list[int]] = ([], [])
    for k in sorted(range(len(sizes)), key=lambda k: -sizes[k]):
        smaller = prod(sizes[j] for j in groups[0]) <= prod(sizes[j] for j in groups[1])
        groups[0 if smaller else 1].append(k)
    return sorted(groups[0]), sorted(groups[1])


def _half_sums(onto: Tensor, sizes: Sequence[int], side: Sequence[int]) -> Tensor:
    """Sums of one column of the equations per categorical column of a side ``[combinations, p]``, the last fastest."""
    total = onto.new_zeros(1, len(onto))
    for k in side:
        start = sum(sizes[:k])
        entries = onto[:, start : start + sizes[k]].T
        total = (total[:, None] + entries).flatten(0, 1)
    return total


def _meet(left: Tensor, right: Tensor, limits: EnumerationLimits) -> Tensor | str:
    """Pairs of rows of two tables that are nearly equal, LongTensor ``[hits, 2]``; or why they were not looked for.

    Seen along a few axes in which the right table spreads most, two rows are no farther apart than they are: one axis
    is sorted by, all of them sift what is near along it, and few pairs are left to compare in full.
    """
    axes = _main_axes(right)
    seen_left, seen_right = left @ axes, right @ axes
    order = seen_right[:, 0].argsort(stable=True)
    key = seen_right[order, 0].contiguous()
    first = torch.searchsorted(key, (seen_left[:, 0] - limits.tolerance).contiguous())
    last = torch.searchsorted(key, (seen_left[:, 0] + limits.tolerance).contiguous(), right=True)
    ends = (last - first).cumsum(0)
    n_pairs = int(ends[-1])
    if n_pairs > limits.pairs:
        return f"too many pairs: {n_pairs} half sums to compare, at most {limits.pairs} are allowed"
    hits, n_hits = [torch.empty(0, 2, dtype=torch.long, device=left.device)], 0
    for start in range(0, n_pairs, PAIRS_AT_ONCE):
        pair = torch.arange(start, min(start + PAIRS_AT_ONCE, n_pairs), device=left.device)
        i = torch.searchsorted(ends, pair, right=True)
        j = order[last[i] - (ends[i] - pair)]
        for one, other in ((seen_left, seen_right), (left, right)):
            near = (one[i] - other[j]).square().sum(1) <= limits.tolerance**2
            i, j = i[near], j[near]
        hits.append(torch.stack([i, j], 1))
        n_hits += len(hits[-1])
        if n_hits > limits.hits:
            return f"too many hits: over {limits.hits} rows satisfy the equations"
    return torch.cat(hits)


def _main_axes(table: Tensor) -> Tensor:
    """Orthonormal axes ``[p, few]`` along which a table spreads most, the first one most."""
    if not table.shape[1]:
        return table.new_zeros(0, 1)
    centerd = table - table.mean(0)
    _, vectors = torch.linalg.eigh(centerd.T @ centerd)
    return vectors[:, -MAIN_AXES:].flip(1)


def _joined(found: Tensor, sizes: Sequence[int], sides: tuple[list[int], list[int]]) -> Tensor:
    """Codes ``[hits, K]`` of pairs of half sums."""
    codes = torch.empty(len(found), len(sizes), dtype=torch.long, device=found.device)
    for side, index in zip(sides, found.unbind(1), strict=True):
        for k in reversed(side):
            codes[:, k] = index % sizes[k]
            index = index // sizes[k]
    return codes


def _nothing(equations: RowEquations, constraints: int, reason: str) -> Enumeration:
    like, space = equations.values, equations.space
    codes = torch.empty(0, len(space.sizes), dtype=torch.long, device=like.device)
    return Enumeration(codes, like.new_empty(0, len(space.free)), like.new_empty(0), constraints, reason)
