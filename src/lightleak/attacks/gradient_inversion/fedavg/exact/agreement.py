"""Which of the candidates are rows of the batch: rows and their duals must fit each other, all of them at once.

The dual z_i that a row's silent units give is orthogonal to every other row of the batch, so each one found is a
further equation for all rows but its own. These equations decide between candidates with the same silent units, and
they determine numbers that the span alone leaves open.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.enumerate.row_equations import RowEquations
from lightleak.attacks.gradient_inversion.fedavg.exact.candidates import Candidates
from lightleak.attacks.gradient_inversion.fedavg.exact.silent_units import nothing
from lightleak.attacks.gradient_inversion.tables.by_row import ByRow

PARALLEL = 0.999
"""Cosine above which two duals are one: noise turns them by 1e-3 at most, those of two rows of a batch differ more."""

INDEPENDENT = 1e-2
"""Sine of the angle to the duals already taken below which a dual is a mixture of them."""

CLEARLY = 5.0
"""A candidate is the only one of its group where the next fits the equations so many times worse ..."""

UNCLEAR_BELOW = 2e-3
"""... and worse than this: what noise may leave of the equations of duals."""

DUAL_ERROR = 2e-4
"""What noise leaves of the equations of duals at least: distances are measured after numbers were fitted to it."""

KNOWN_WITHIN = 0.02
"""Error of a number, in deviations, up to which it is taken as known while other rows are looked for: for whole numbers
of a few dozen values (age) small enough to see whether they come out whole. What is proven is judged by `proof`."""

WHOLE_WITHIN = 0.3
"""How near whole numbers must come out, where their error is below `CHECKED_BELOW`."""

CHECKED_BELOW = 0.5
"""See `WHOLE_WITHIN`."""

FITS_WITHIN = 0.02
"""Largest distance from the equations, duals of the others among them, of a row whose numbers can be relied on."""


@dataclass(frozen=True)
class Agreed(ByRow):
    """One row per dual.

    Attributes:
        codes: LongTensor ``[n, K]``.
        numbers: ``[n, F]``.
        vectors: duals of length 1 as equations for the other rows ``[n, coordinates]``.
        complete: the numbers are determined and the row fits all equations, bool ``[n]``.
        precise: so well that they can be relied on, bool ``[n]``.
        unique: no other candidate would do, bool ``[n]``.
    """

    codes: Tensor
    numbers: Tensor
    vectors: Tensor
    complete: Tensor
    precise: Tensor
    unique: Tensor


def groups(candidates: Candidates) -> Tensor:
    """Number of the dual that each candidate shares with others, LongTensor ``[n]``; 0 is the best fitting one's."""
    group = torch.full((len(candidates),), -1, dtype=torch.long, device=candidates.codes.device)
    n_groups = 0
    for best in candidates.misfit.argsort(stable=True).tolist():
        if int(group[best]) < 0:
            # One line of the cosines at a time: there can be tens of thousands of candidates.
            cosine = (candidates.vectors @ candidates.vectors[best]).abs()
            group[(cosine > PARALLEL) & (group < 0)] = n_groups
            n_groups += 1
    return group


def unlike(candidates: Candidates, vectors: Tensor) -> Tensor:
    """Which candidates have a dual that is none of ``vectors`` ``[m, coordinates]``, bool ``[n]``."""
    if not len(vectors):
        return torch.ones(len(candidates), dtype=torch.bool, device=vectors.device)
    return ((candidates.vectors @ vectors.T).abs() <= PARALLEL).all(1)


def pure(equations: RowEquations, vectors: Tensor) -> Tensor:
    """Indices of independent duals, those of the sparsest shares first: mixtures of rows are active where any row is.

    Args:
        equations: of the update.
        vectors: duals of length 1 ``[n, coordinates]``.
    """
    zeros = nothing(equations, vectors).sum(1)
    return independent(vectors, zeros.argsort(descending=True, stable=True), INDEPENDENT)[: equations.rank]


def independent(vectors: Tensor, order: Tensor, least: float) -> Tensor:
    """Indices of linearly independent vectors, taken in an order.

    Args:
        vectors: ``[n, d]``.
        order: indices, those to take first in front.
        least: part of its length that a vector must have outside the span of those taken.
    """
    taken: list[int] = []
    span = vectors.new_empty(0, vectors.shape[1])
    for i in order.tolist():
        rest = vectors[i] - span.T @ (span @ vectors[i])
        if float(rest.norm()) > least * float(vectors[i].norm()):
            taken.append(i)
            span = torch.cat([span, (rest / rest.norm()).unsqueeze(0)])
    return torch.tensor(taken, dtype=torch.long, device=vectors.device)


def agreed(equations: RowEquations, candidates: Candidates) -> Agreed:
    """The best candidate of each group; groups whose dual is a mixture of others' are left out.

    Args:
        equations: of the update.
        candidates: those that passed the test.
    """
    group = groups(candidates)
    every = [(group == g).nonzero().flatten() for g in range(int(group.max()) + 1 if len(group) else 0)]
    first = [int(index[candidates.misfit[index].argmin()]) for index in every]
    kept = pure(equations, candidates.vectors[first]).tolist()
    members, vectors = [every[g] for g in kept], candidates.vectors[first][kept]
    best, numbers, flags = [], [], []
    for g, index in enumerate(members):
        others = torch.arange(len(kept), device=group.device) != g
        at, value, *marks = _best(equations.with_equations(vectors[others]), candidates[index])
        best.append(int(index[at]))
        numbers.append(value)
        flags.append(marks)
    flag = torch.tensor(flags, dtype=torch.bool, device=group.device).reshape(-1, 3)
    stacked = torch.stack(numbers) if numbers else candidates.numbers
    return Agreed(candidates.codes[best], stacked, vectors, *flag.unbind(1))


def _best(equations: RowEquations, members: Candidates) -> tuple[int, Tensor, bool, bool, bool]:
    """The member of a group that fits best, its numbers, and whether it is complete, precise and unique."""
    every = range(len(equations.space.free))
    freely = equations.determines(list(every))
    numbers, sharpness = members.numbers.clone(), torch.zeros_like(members.misfit)
    # A table without free numbers has flags of width 0, which `unique` refuses.
    patterns = torch.nn.functional.pad(members.at_bound, (0, 1)).unique(dim=0)[:, :-1]
    for held in patterns:
        some = (members.at_bound == held).all(1)
        assumed = () if freely else tuple(f for f in every if bool(held[f]))
        numbers[some] = equations.solve(members.codes[some], assumed)
        sharpness[some] = equations.sharpness([f for f in every if f not in assumed])
    distance = equations.distance(members.codes, numbers)
    best = int(distance.argmin())
    other = (members.codes != members.codes[best]).any(1)
    rival = float(distance[other].min()) if bool(other.any()) else float("inf")
    unique = rival > max(CLEARLY * float(distance[best]), UNCLEAR_BELOW)
    error = max(float(distance[best]), DUAL_ERROR)
    complete = error <= FITS_WITHIN and float(sharpness[best]) > equations.determined
    within = error / max(float(sharpness[best]), equations.determined)
    precise = complete and within <= KNOWN_WITHIN and _whole(equations, numbers[best], within)
    return best, numbers[best], complete, precise, unique


def _whole(equations: RowEquations, numbers: Tensor, within: float) -> bool:
    """Whether whole numbers of a row come out whole, as far as errors of ``within`` deviations let that be seen."""
    space = equations.space
    values = numbers * space.unit + space.center
    checked = space.integer & (space.unit * within < CHECKED_BELOW)
    return bool(((values - values.round()).abs()[checked] < WHOLE_WITHIN).all())
