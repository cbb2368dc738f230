"""Tolerances of a search."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.exact.row_tests.tolerances import (
    MANY_TESTS,
    ROW_TOLERANCE,
    WIDEST,
    WIDEST_OF_MANY,
    narrower,
    passing,
    passing_but_for_scale,
    wider,
    widest,
)
from lightleak.attacks.gradient_inversion.exact.row_tests.verification import verify
from lightleak.attacks.gradient_inversion.exact.spaces.layer_spaces import Spaces, spaces_of, unit_scale


def spaces(batch: Any, factor: float = 1.0) -> Spaces:
    gradient = factor * batch.observed[1]
    return spaces_of(gradient, unit_scale(gradient), most=len(batch.x))


def test_a_tolerance_grows_to_its_widest_and_shrinks_to_its_narrowest(make_batch: Any) -> None:
    of = spaces(make_batch(6))
    tolerance, steps = ROW_TOLERANCE, []
    while not steps or tolerance > steps[-1]:
        steps.append(tolerance)
        tolerance = wider(tolerance, of)
    assert tolerance == widest(of)
    whole = torch.ones(3, 4, dtype=torch.float64)
    for _ in steps * 4:
        tolerance = narrower(tolerance, of, whole, whole)
    assert tolerance == ROW_TOLERANCE


def test_what_is_left_of_a_gradient_is_blurred_by_the_rounding_of_all_of_it(make_batch: Any) -> None:
    of, whole = spaces(make_batch(6)), torch.ones(3, 4, dtype=torch.float64)
    parts = [1.0, 1e-2, 1e-3, 1e-5, 0.0]
    tolerances = [narrower(0.0, of, part * whole, whole) for part in parts]
    assert tolerances == sorted(tolerances)
    assert (tolerances[0], tolerances[-1]) == (ROW_TOLERANCE, widest(of))
    assert tolerances[2] == pytest.approx(1e-3)


@pytest.mark.parametrize("n", [40 - MANY_TESTS, 41 - MANY_TESTS])
def test_many_equations_allow_more(make_batch: Any, n: int) -> None:
    of = spaces(make_batch(n, (40, 40)))
    assert of.rank == n
    assert widest(of) == (WIDEST_OF_MANY if n == 40 - MANY_TESTS else WIDEST)


def test_true_rows_pass_and_equal_ones_only_where_they_may(make_batch: Any) -> None:
    batch = make_batch(rows=(3, 50, 3, 90, 120), labels=(0, 1, 0, 0, 1))
    x, counts = batch.distinct()
    verdict = verify(batch.chain, 1, spaces(batch), x, 5)
    assert bool(passing(verdict, ROW_TOLERANCE, alone=False).all())
    assert torch.equal(passing(verdict, ROW_TOLERANCE, alone=True), counts.sum(1) == 1)
    for name in ("row_distance", "unit_distance", "coefficient_error"):
        spoilt = replace(verdict, **{name: getattr(verdict, name) + 1})
        assert not passing(spoilt, ROW_TOLERANCE, alone=False).any()


def test_rows_of_a_scaled_gradient_pass_but_for_the_coefficient(make_batch: Any) -> None:
    batch = make_batch(6)
    verdict = verify(batch.chain, 1, spaces(batch, 0.2), batch.x, 6)
    assert not passing(verdict, ROW_TOLERANCE, alone=True).any()
    assert bool(passing_but_for_scale(verdict, ROW_TOLERANCE).all())
    torch.testing.assert_close(verdict.single, torch.full_like(verdict.single, 5.0), rtol=1e-2, atol=0)
    other = verify(batch.chain, 1, spaces(batch), make_batch(6, seed=9).x, 6)
    assert not passing_but_for_scale(other, ROW_TOLERANCE).any()
