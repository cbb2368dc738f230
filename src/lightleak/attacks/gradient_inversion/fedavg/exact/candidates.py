"""Rows that may be behind an update: enumerated, and tested by their silent units."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.enumerate.row_equations import RowEquations
from lightleak.attacks.gradient_inversion.fedavg.exact.observed import WeightUpdate
from lightleak.attacks.gradient_inversion.fedavg.exact.silent_units import LEAST_SPARE, nothing, silence, silence_test
from lightleak.attacks.gradient_inversion.tables.by_row import ByRow
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain

TESTED_SPARE = LEAST_SPARE + 3
"""Where numbers are not yet known, only so many of the surest silent units are used beyond the unknowns: unknown
numbers move a row's pre-activations a little, and one unit taken for silent in error fails the row."""

FREED = 2
"""Most skewed numbers that are let off their bound, where there are many: a row rarely has more of them."""


@dataclass(frozen=True)
class Candidates(ByRow):
    """Rows that satisfy the equations and passed the test of the silent units.

    Attributes:
        codes: LongTensor ``[n, K]``.
        numbers: ``[n, F]``, as far as the equations determine them.
        at_bound: which numbers are at their bound by assumption, bool ``[n, F]``.
        vectors: duals of length 1 as equations for the other rows ``[n, coordinates]``.
        misfit: ``[n]``.
    """

    codes: Tensor
    numbers: Tensor
    at_bound: Tensor
    vectors: Tensor
    misfit: Tensor


def assumptions(space: RowDomain) -> Iterator[tuple[int, ...]]:
    """Sets of numbers at their bound, by index among the free ones: all skewed numbers first, none last."""
    skewed = [f for f, is_skewed in enumerate(space.skewed.tolist()) if is_skewed]
    for freed in range(min(len(skewed), FREED) + 1):
        yield from combinations(skewed, len(skewed) - freed)
    if len(skewed) > FREED:
        yield ()


def passing(
    observed: WeightUpdate,
    equations: RowEquations,
    codes: Tensor,
    numbers: Tensor,
    at_bound: Sequence[int],
    spare: int | None,
) -> Candidates:
    """Those of given rows that pass the test of the silent units.

    Args:
        observed: the update.
        equations: the update's; their span holds the duals that are looked for.
        codes: of the rows ``[n, K]``.
        numbers: likewise ``[n, F]``.
        at_bound: numbers that are at their bound by assumption.
        spare: use only so many of the surest silent units beyond the unknowns, where ``numbers`` are not known.
    """
    below = silence(observed, equations.space.rows.of(codes, numbers))
    silent = below > 0
    if spare is not None:
        most = min(equations.rank - 1 + spare, below.shape[1])
        silent &= below >= below.topk(most, dim=1).values[:, -1:]
    test = silence_test(equations, equations.coordinates(codes, numbers), silent)
    passed = test.passed()
    codes, numbers = codes[passed], numbers[passed]
    held = torch.zeros(len(codes), len(equations.space.free), dtype=torch.bool, device=codes.device)
    held[:, list(at_bound)] = True
    zero = nothing(equations, test.duals[passed] @ equations.span)
    sharper = silence_test(equations, equations.coordinates(codes, numbers), zero)
    vectors = torch.nn.functional.normalize(sharper.duals @ equations.span, dim=1)
    return Candidates(codes, numbers, held, vectors, test.misfit[passed])
