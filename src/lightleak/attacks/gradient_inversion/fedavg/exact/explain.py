"""From a first layer's update to the rows behind it: what is found gives equations for what is not."""

from dataclasses import replace

import torch

from lightleak.attacks.gradient_inversion.exact.enumerate.enumeration import EnumerationLimits, satisfying
from lightleak.attacks.gradient_inversion.exact.enumerate.row_equations import RowEquations
from lightleak.attacks.gradient_inversion.fedavg.exact.agreement import Agreed, agreed, unlike
from lightleak.attacks.gradient_inversion.fedavg.exact.candidates import TESTED_SPARE, Candidates, assumptions, passing
from lightleak.attacks.gradient_inversion.fedavg.exact.observed import WeightUpdate

FURTHER_TOLERANCE = 5e-3
"""How near rows must be to equations that come from duals: they hold to some 1e-3."""

TESTED = 50_000
"""Most rows of one enumeration that are tested: beyond, the equations say too little."""

DRAWS = 200
"""Draws of numbers that are tried for rows whose numbers nothing determines."""

DRAWN_SPARE = (TESTED_SPARE, 3 * TESTED_SPARE, None)
"""Silent units beyond the unknowns with which draws are tested: many tell rows of equal categories apart, few bear an
inexact draw."""

DRAWN_FOR = 100
"""Most rows for which numbers are drawn."""


def gather(
    observed: WeightUpdate, equations: RowEquations, limits: EnumerationLimits, generator: torch.Generator
) -> tuple[Candidates, Agreed]:
    """Candidates that passed the test, and the row agreed on for each dual, after as many rounds as give new duals.

    Args:
        observed: the update.
        equations: its.
        limits: of each enumeration.
        generator: draws numbers that nothing determines.
    """
    found = _none(equations)
    rows = agreed(equations, found)
    progress = True
    while progress and len(rows) < equations.rank:
        progress = False
        for at_bound in assumptions(equations.space):
            passed = _further(observed, equations, rows, at_bound, limits, generator)
            found = found.joined(passed)
            if not bool(unlike(passed, rows.vectors).any()):
                continue
            # A new dual may be a mixture of those known, which gives no row.
            before, rows = len(rows), agreed(equations, found)
            progress = len(rows) > before
            if progress:
                break
    return found, agreed(equations, found)


def _further(
    observed: WeightUpdate,
    equations: RowEquations,
    rows: Agreed,
    at_bound: tuple[int, ...],
    limits: EnumerationLimits,
    generator: torch.Generator,
) -> Candidates:
    """Candidates in addition to the rows agreed on."""
    if len(rows):
        further = equations.with_equations(rows.vectors)
        limits = replace(limits, tolerance=max(limits.tolerance, FURTHER_TOLERANCE))
    else:
        further = equations
    listed = satisfying(further, at_bound, limits)
    if not 0 < len(listed.codes) <= TESTED:
        return _none(equations)
    sure = rows.complete & rows.unique
    duals = equations.orthogonal_to(equations.coordinates(rows.codes[sure], rows.numbers[sure]))
    solved = [f for f in range(len(equations.space.free)) if f not in at_bound]
    determined = further.determines(solved)
    spare = None if determined else TESTED_SPARE
    passed = passing(observed, duals, listed.codes, listed.numbers, at_bound, spare)
    if determined or len(listed.codes) > DRAWN_FOR or bool(unlike(passed, rows.vectors).any()):
        return passed
    codes = listed.codes.repeat_interleave(DRAWS, 0)
    _, drawn = equations.space.draw(len(codes), generator, from_prior=True)
    numbers = further.solve_near(codes, drawn, at_bound)
    for spare in DRAWN_SPARE:
        passed = passed.joined(passing(observed, duals, codes, numbers, at_bound, spare))
    return passed


def _none(equations: RowEquations) -> Candidates:
    like, space = equations.values, equations.space
    return Candidates(
        torch.empty(0, len(space.sizes), dtype=torch.long, device=like.device),
        like.new_empty(0, len(space.free)),
        torch.empty(0, len(space.free), dtype=torch.bool, device=like.device),
        like.new_empty(0, like.shape[1]),
        like.new_empty(0),
    )
