"""The last few rows together: those that share masks, so that no test finds them one by one.

What is left of the gradient is explained by all of them at once (`group_fit`). Their categories are known up to who
has which: the first layer's row space admits few combinations. Their labels follow from the last bias, whose gradient
is the sum of ``p - y``. Only their numbers are open, and those are fitted from many starts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, permutations
from math import inf, prod

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.enumerate.enumeration import satisfying
from lightleak.attacks.gradient_inversion.exact.enumerate.row_equations import RowEquations
from lightleak.attacks.gradient_inversion.exact.repair.group_fit import GroupProblem, Groups, fit
from lightleak.attacks.gradient_inversion.exact.spaces.residual import Residual
from lightleak.attacks.gradient_inversion.optimize.labels import each_row
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain

MOST_ROWS = 6
"""Rows fitted together: of more, a random start hardly ever has all masks right."""

MOST_CODES = 8
"""Combinations of categories among which the rows' are looked for."""

MOST_HYPOTHESES = 24
"""Assignments of categories and labels that are tried, each from all starts."""

STARTS, FIRST_STEPS, BEST, LAST_STEPS = 256, 10, 48, 40
"""Starts per hypothesis and their steps; how many continue, and for how long. Three rows of Adult that share all masks
of the second layer were met by 3 to 60% of the starts."""

SPLITS = 12
"""Starts of rows that were read as equal, 0.01 to 1 deviations apart."""

CLEARLY_APART = 0.1
"""Deviations in some number by which rows that were read as equal must come out different, or else be equal."""

MOST_NUMBERS = 800
"""Numbers of all rows of a batch that are fitted at once from so many starts."""

SPREADS = (0.1, 1.0)
"""Deviations of starts around the rows' weighted mean, which the first layer shows: drawn between these, evenly in the
logarithm."""

FROM_PRIOR = 2
"""One in so many starts is around a point of the prior: the mean of rows with opposite labels lies outside of them."""

FITS_BELOW = 100.0
"""Squared misfit per element of the gradient, in units of that rounding, below which rows explain what is left: true
ones reach 2, two rows read as one leave 1e8."""

LABELS_WITHIN = 0.3
"""A sum of labels must come out this near to a whole number."""

NARROW = 256
"""Whole numbers with fewer values than this are tried one by one where the fit leaves them open; ages and hours have
fewer."""

MOST_POINTS = 20_000
"""Points of the lattice of one row's narrow numbers."""

POINTS_FITTED = 128
"""Points of the lattice at which all is fitted again: those with the other rows' narrow numbers nearest to whole."""

INSIDE = 1e-2
"""Deviations by which a point may leave the bounds, because it is predicted linearly."""

UNDETERMINED = 1e-3
"""Standard error, in deviations, above which a combination of numbers is left open by the gradient."""

RISE = 1.2
"""Whole numbers may make the misfit this many times as large: true ones raise it by 2%, as the client's rows are
rounded to float32 and those of a fit are not."""


def explain_together(
    residual: Residual, space: RowDomain, whole: RowDomain, rank: int, draws: torch.Generator
) -> tuple[tuple[Tensor, Tensor], Tensor] | None:
    """Rows that together explain what is left of a gradient.

    Args:
        residual: explained rows and what is left.
        space: rows that may be behind it.
        whole: rows that may be in the batch.
        rank: of what is left of the first layer's gradient.
        draws: a CPU generator.

    Returns:
        One reading of all rows left, whole numbers rounded (cells as `TableEncoder.project` returns them, labels);
        ``None`` where too many rows are left, too many assignments are possible, or none explains the gradient.
    """
    if not 1 < residual.rows_left <= MOST_ROWS:
        return None
    found = _explain(residual, space, rank, draws)
    if rank < residual.rows_left and (found is None or not found.explains):
        # Of rows that share all masks only a mean shows, which looks like a constant in every column.
        open_ = replace(space, constants=_sure_constants(space, whole), ties=whole.ties)
        found = _explain(residual, open_, rank, draws) or found
    return None if found is None else (found.cells, found.labels)


def split_equal(
    residual: Residual, cells: tuple[Tensor, Tensor], whole: RowDomain, draws: torch.Generator
) -> tuple[tuple[Tensor, Tensor], Tensor] | None:
    """All rows of a batch, those that were read as equal moved apart where that explains the gradient better.

    Two rows of equal categories and near numbers may be read as twice their mean: to first order nothing changes as
    they move apart from there, so no correction of numbers leaves it.

    Args:
        residual: explained rows, as many as the batch has.
        cells: of those rows, as `TableEncoder.project` returns them.
        whole: rows that may be in the batch.
        draws: a CPU generator.

    Returns:
        One reading of all rows, as `explain_together`; ``None`` where none explains the gradient, rows come out
        nearly equal, or there are too many.
    """
    times, (source, labels) = residual.counts.sum(-1), each_row(residual.counts)
    space = whole
    codes, numbers = space.coordinates((cells[0][source], cells[1][source]))
    if numbers.numel() > MOST_NUMBERS:
        return None
    steps = torch.randn(SPLITS, *numbers.shape, generator=draws, dtype=torch.float64).to(numbers)
    spread = torch.logspace(-2, 0, SPLITS, dtype=torch.float64).view(-1, 1, 1).to(numbers)
    moved = space.clamp(numbers + spread * steps * (times[source] > 1).unsqueeze(-1))
    problem = GroupProblem.of(residual, space, residual.observed)
    starts = Groups(codes.expand(SPLITS, -1, -1), moved, labels.expand(SPLITS, -1))
    found, values = fit(problem, starts, FIRST_STEPS)
    best, value = fit(problem, found[values.argmin().unsqueeze(0)], LAST_STEPS)
    if not float(value) < _enough(residual):
        return None
    reading = _whole(problem, best)
    came, alike = reading.numbers[0], source.unsqueeze(0) == source.unsqueeze(1)
    gap = torch.cdist(came, came, p=torch.inf)
    if bool((alike & (gap > 0) & (gap < CLEARLY_APART)).any()):
        return None  # equal rows, bent apart by rounding: nobody may claim that they occur once
    return space.cells(reading.codes[0], reading.numbers[0]), reading.labels[0]


def _enough(residual: Residual) -> float:
    """Misfit below which a reading explains a gradient."""
    return FITS_BELOW * sum(layer.numel() for layer in residual.observed)


@dataclass(frozen=True)
class _Reading:
    """All rows left.

    Attributes:
        cells: as `TableEncoder.project` returns them.
        labels: of the rows.
        explains: they still explain the gradient with whole numbers rounded.
    """

    cells: tuple[Tensor, Tensor]
    labels: Tensor
    explains: bool


def _explain(residual: Residual, space: RowDomain, rank: int, draws: torch.Generator) -> _Reading | None:
    equations = RowEquations.of(residual.left[0], space, rank, seen=residual.network.first_input)
    if len(equations.on_categories()):
        codes: Tensor | None = satisfying(equations).codes
    else:
        codes = every_combination(space, MOST_CODES)
    if codes is None or not 0 < len(codes) <= MOST_CODES:
        return None
    centers = equations.solve(codes)
    problem = GroupProblem.of(residual, space, residual.left)
    starts = [
        _starts(space, codes[list(of_rows)], centers[list(of_rows)], labels, draws)
        for of_rows, labels in _hypotheses(problem, codes, centers, residual.rows_left)
    ]
    if not starts:
        return None
    fitted = [fit(problem, groups, FIRST_STEPS) for groups in starts]
    values = torch.cat([value for _, value in fitted])
    first, *further = (groups for groups, _ in fitted)
    best = first.joined(*further)[values.argsort(stable=True)[:BEST]]
    best, values = fit(problem, best, LAST_STEPS)
    if not float(values.min()) < _enough(residual):
        return None
    whole = _whole(problem, best[values.argmin().unsqueeze(0)])
    cells = space.cells(whole.codes[0], whole.numbers[0])
    return _Reading(cells, whole.labels[0], float(problem.value(whole)) < _enough(residual))


def _hypotheses(
    problem: GroupProblem, codes: Tensor, centers: Tensor, rows: int
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Which combination of categories and which label every row has: those that the gradient does not rule out."""
    space = problem.space
    probabilities = problem.network.forward(space.rows.of(codes, centers)).probabilities
    missing = problem.n_rows * problem.target[-1][:, -1]
    found: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for of_rows in combinations_with_replacement(range(len(codes)), rows):
        each = list(of_rows)
        if any(len(codes[each, k].unique()) < size for k, size in enumerate(space.sizes)):
            continue  # a category whose column is there must occur
        counts = probabilities[each].sum(0) - missing
        whole = counts.round()
        if bool(((counts - whole).abs() > LABELS_WITHIN).any()) or bool((whole < 0).any()) or int(whole.sum()) != rows:
            continue
        labels = [label for label, times in enumerate(whole.int().tolist()) for _ in range(times)]
        # Rows of equal categories may change places.
        assigned = {tuple(sorted(zip(each, order, strict=True))) for order in permutations(labels)}
        found += [(of_rows, tuple(label for _, label in pairs)) for pairs in sorted(assigned)]
        if len(found) > MOST_HYPOTHESES:
            return []
    return found


def _sure_constants(space: RowDomain, whole: RowDomain) -> dict[int, float]:
    """Columns that are the same in the whole batch, and those whose mean is at its lower bound."""
    lower = space.encoder.lower.tolist()
    at_bound = {j: value for j, value in space.constants.items() if value == lower[j]}
    return {j: value for j, value in (at_bound | dict(whole.constants)).items() if j not in whole.ties}


def every_combination(space: RowDomain, most: int) -> Tensor | None:
    """All combinations of present categories ``[C, K]``, unless they are more than ``most``."""
    if prod(space.sizes) > most:
        return None
    ranges = [torch.arange(size, device=space.lower.device) for size in space.sizes]
    return torch.cartesian_prod(*ranges).view(-1, len(ranges)) if ranges else space.lower.new_empty(1, 0).long()


def _starts(space: RowDomain, codes: Tensor, centers: Tensor, labels: Sequence[int], draws: torch.Generator) -> Groups:
    rows, free = centers.shape
    low, high = (torch.tensor(spread).log10() for spread in SPREADS)
    spread = 10 ** (low + (high - low) * torch.rand(STARTS, 1, 1, generator=draws, dtype=torch.float64))
    steps = torch.randn(STARTS, rows, free, generator=draws, dtype=torch.float64)
    anywhere = torch.randn(STARTS, 1, free, generator=draws, dtype=torch.float64).to(centers)
    around = centers.repeat(STARTS, 1, 1)
    around[::FROM_PRIOR] = anywhere[::FROM_PRIOR]
    around += (spread * steps).to(centers)
    of_rows = torch.tensor(labels, device=codes.device).expand(STARTS, -1)
    return Groups(codes.expand(STARTS, -1, -1), space.clamp(around), of_rows)


def _whole(problem: GroupProblem, best: Groups) -> Groups:
    """The reading with whole numbers that fits best among those found."""
    space = problem.space
    columns = sorted(space.integer.nonzero().flatten().tolist(), key=lambda f: float(space.unit[f]))
    narrow = [f for f in columns if _values(space, f) < NARROW]
    least = float(problem.value(best))
    direct, spoilt = _rounded_in_turn(problem, best, columns, RISE * least)
    if not spoilt:
        return direct
    point = _on_lattice(problem, best, narrow)
    if point is not None and float(problem.value(point)) <= RISE * least:
        return _rounded_in_turn(problem, point, columns, RISE * least)[0]
    return _rounded_in_turn(problem, best, columns, inf)[0]


def _rounded_in_turn(
    problem: GroupProblem, groups: Groups, columns: Sequence[int], allowed: float
) -> tuple[Groups, list[int]]:
    """Columns rounded one after the other, the rest fitted around them; and those whose rounding would spoil all."""
    held, spoilt = torch.zeros_like(groups.numbers[0], dtype=torch.bool), []
    for f in columns:
        held[:, f] = True
        tried = replace(groups, numbers=problem.space.rounded(groups.numbers, f))
        tried, value = fit(problem, tried, FIRST_STEPS, held)
        if float(value) <= allowed:
            groups = tried
        else:
            spoilt.append(f)
    return groups, spoilt


def _on_lattice(problem: GroupProblem, best: Groups, narrow: Sequence[int]) -> Groups | None:
    """Where the gradient leaves a combination of numbers open: the point of it at which narrow ones are all whole.

    The open combinations are walked along by the narrow numbers of the row that they move most; the others follow
    linearly.
    """
    space, numbers, at = problem.space, best.numbers[0], list(narrow)
    values, vectors = torch.linalg.eigh(problem.expand(best).normal[0])
    open_ = vectors[:, values <= UNDETERMINED**-2]
    if not open_.shape[1] or not narrow or prod(_values(space, f) for f in narrow) > MOST_POINTS:
        return None
    ranges = [torch.arange(_values(space, f)).to(numbers) / space.unit[f] + space.lower[f] for f in narrow]
    lattice = torch.cartesian_prod(*ranges).view(-1, len(narrow))
    by_row = open_.view(*numbers.shape, -1)[:, at]  # [k, narrow, z]
    row = int(by_row.square().sum((1, 2)).argmax())
    moves = (lattice - numbers[row, at]) @ torch.linalg.pinv(by_row[row]).T @ open_.T
    tried = numbers + moves.view(-1, *numbers.shape)
    tried[:, row, at] = lattice
    table = tried[:, :, at] * space.unit[at] + space.center[at]
    off = (table - table.round()).abs().amax((1, 2))
    inside = (space.clamp(tried) - tried).abs().amax((1, 2)) < INSIDE
    near = torch.where(inside, off, torch.inf).argsort(stable=True)[: min(POINTS_FITTED, int(inside.sum()))]
    if not len(near):
        return None
    groups = Groups(best.codes.expand(len(near), -1, -1), tried[near], best.labels.expand(len(near), -1))
    held = torch.zeros_like(numbers, dtype=torch.bool)
    for f in narrow:
        held[:, f] = True
        groups = replace(groups, numbers=space.rounded(groups.numbers, f))
    groups, misfit = fit(problem, groups, FIRST_STEPS, held)
    return groups[misfit.argmin().unsqueeze(0)]


def _values(space: RowDomain, column: int) -> int:
    return int(((space.upper - space.lower) * space.unit)[column].round()) + 1
