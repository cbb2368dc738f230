import inspect
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.proportion import confint_proportions_2indep

from lightleak.api import audit_model
from lightleak.experiments.config import InitialConfig
from lightleak.report.intervals import (
    ENOUGH_PAIRS,
    Estimate,
    bounded,
    difference,
    estimate,
    paired_difference,
    proportion,
    unpaired_difference,
)

SHARES = st.lists(st.floats(0, 1), min_size=2, max_size=12)


@given(SHARES, st.integers(1, 20))
def test_the_interval_holds_the_mean_and_stays_inside_the_bounds(values: list[float], comparisons: int) -> None:
    plain, wide = bounded(values), bounded(values, comparisons=comparisons)
    assert plain is not None and wide is not None
    assert 0 <= wide.low <= plain.low <= plain.mean + 1e-12 and plain.mean - 1e-12 <= plain.high <= wide.high <= 1


def test_where_values_differ_it_is_the_reports_own_interval() -> None:
    values = [0.4, 0.5, 0.55, 0.6]
    assert bounded(values).low == pytest.approx(estimate(values).low)
    assert bounded(values).high == pytest.approx(estimate(values).high)


def test_bonferroni_is_students_interval_at_the_smaller_error() -> None:
    values = np.array([0.4, 0.5, 0.55, 0.6])
    found = stats.t.interval(1 - 0.05 / 5, 3, values.mean(), stats.sem(values))
    wide = bounded(values.tolist(), comparisons=5)
    assert (wide.low, wide.high) == pytest.approx(found)


@pytest.mark.parametrize("n", [2, 6, 30])
def test_equal_values_leave_open_what_so_few_draws_cannot_rule_out(n: int) -> None:
    found = bounded([1.0] * n)
    rare = 1 - found.low  # the share of other draws that goes unseen in n draws with a chance of 5%
    assert (1 - rare) ** n == pytest.approx(0.05)
    assert found.high == 1


def test_the_bound_of_equal_values_is_as_narrow_as_it_may_be() -> None:
    """Pairs that rise by 1 with the chance q and else fall by 1: all fall with the chance (1 - q) ** n."""
    found = bounded([-1.0] * 4, -1.0, 1.0)
    rare = (found.high + 1) / 2
    assert (1 - rare) ** 4 == pytest.approx(0.05)


@pytest.mark.parametrize("n", range(2, 10))
def test_a_change_from_all_to_none_is_measurable_from_enough_pairs_on(n: int) -> None:
    found = paired_difference(dict.fromkeys(range(n), 1.0), dict.fromkeys(range(n), 0.0))
    assert (found.high < 0) is (n >= ENOUGH_PAIRS)


def test_the_default_of_an_audit_is_enough() -> None:
    assert InitialConfig().batches >= ENOUGH_PAIRS
    assert inspect.signature(audit_model).parameters["batches"].default == InitialConfig().batches


def test_one_value_has_no_interval_and_none_is_none() -> None:
    assert bounded([0.3]) == Estimate(0.3)
    assert bounded([]) is None
    assert bounded([0.3, 0.3], -math.inf, math.inf) == Estimate(0.3, 2)


@given(st.dictionaries(st.integers(0, 8), st.floats(0, 1)), st.dictionaries(st.integers(0, 8), st.floats(0, 1)))
def test_pairs_are_the_updates_that_both_have(before: dict[int, float], after: dict[int, float]) -> None:
    shared = sorted(set(before) & set(after))
    found = paired_difference(before, after)
    if not shared:
        assert found is None
    else:
        assert found.mean == pytest.approx(np.mean([after[key] - before[key] for key in shared]), abs=1e-12)
    turned = paired_difference(dict(reversed(before.items())), after)
    assert (turned is None) == (found is None)


def test_without_pairs_the_interval_is_welchs() -> None:
    before, after = [0.8, 0.9, 0.7, 0.95], [0.2, 0.5, 0.1]
    expected = stats.ttest_ind(after, before, equal_var=False).confidence_interval(0.95)
    found = unpaired_difference(dict(enumerate(before)), dict(enumerate(after)))
    assert found.n == 0
    assert (found.low, found.high) == pytest.approx((max(expected.low, -1), expected.high))


def test_two_equal_values_do_not_make_a_change_measurable() -> None:
    """Welch would take the mean of the two as exact."""
    for before, after in (([1.0, 1.0], [0.125, 0.0, 0.0]), ([0.4, 0.45, 0.5, 0.55, 0.6], [1.0, 1.0])):
        found = unpaired_difference(dict(enumerate(before)), dict(enumerate(after)))
        assert found.low < 0 < found.high and found.low >= -1 and found.high <= 1
    many = unpaired_difference(dict.fromkeys(range(40), 1.0), dict.fromkeys(range(40), 0.0))
    assert many.mean == -1 and many.is_below and many.low == -1


def test_what_is_said_with_a_direction_has_the_interval_of_that_direction() -> None:
    assert Estimate(-0.25, 8, -0.5, 0.125).unsigned == Estimate(0.25, 8, -0.125, 0.5)
    assert Estimate(-0.25).unsigned == Estimate(0.25) and Estimate(0.25, 8, 0.0, 0.5).unsigned.low == 0.0


@given(st.integers(1, 400), st.data())
def test_a_proportion_is_wilsons(n: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, n))
    expected = stats.binomtest(successes, n).proportion_ci(method="wilson")
    found = proportion(successes / n, n)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-5)  # z = 1.96


def test_a_difference_of_two_proportions_is_newcombes() -> None:
    expected = confint_proportions_2indep(56, 70, 48, 80, compare="diff", method="newcomb")  # statsmodels
    found = difference(proportion(56 / 70, 70), proportion(48 / 80, 80))
    assert (found.low, found.high) == pytest.approx(expected, abs=1e-5)  # z = 1.96
    assert found.n == 0


def test_a_difference_without_intervals_has_none() -> None:
    assert difference(Estimate(0.8, 5, 0.7, 0.9), Estimate(0.5)) == Estimate(pytest.approx(0.3), 0)
    assert difference(None, Estimate(0.5)) is None and difference(Estimate(0.5), None) is None


@given(*[st.floats(0, 1)] * 2, *[st.floats(0, 0.5)] * 4)
def test_a_difference_turns_around_and_is_no_surer_than_its_parts(a, b, below, above, low, high) -> None:
    first, second = Estimate(a, 5, a - below, a + above), Estimate(b, 5, b - low, b + high)
    found, back = difference(first, second), difference(second, first)
    assert found is not None and back is not None
    assert (found.mean, found.low, found.high) == pytest.approx((-back.mean, -back.high, -back.low))
    assert found.mean - found.low >= max(below, high) - 1e-9
    assert found.high - found.mean >= max(above, low) - 1e-9


def test_the_interval_of_a_difference_covers_what_it_should() -> None:
    """Over simulated pairs of five evaluations each."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        first, second = rng.normal(0.8, 0.03, 5), rng.normal(0.6, 0.02, 5)
        found = difference(estimate(first), estimate(second))
        covered += found.low <= 0.2 <= found.high
    assert 0.93 <= covered / 400 <= 1.0
