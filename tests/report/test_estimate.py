import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.core.summary import summarize
from lightleak.report.intervals import Estimate, estimate


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30))
def test_it_is_the_interval_of_results_json(values: list[float]) -> None:
    found, summary = estimate(values), summarize(values)
    assert found == Estimate(summary.mean, summary.n, summary.low, summary.high)
    assert found.has_interval


def test_a_single_value_has_no_interval() -> None:
    assert estimate([0.4]) == Estimate(0.4)
    assert not Estimate(0.4).has_interval


@pytest.mark.parametrize("values", [[], [math.nan], [math.inf], [None]])
def test_nothing_finite_gives_nothing(values: list[float | None]) -> None:
    assert estimate(values) is None


def test_undefined_batches_do_not_count() -> None:
    assert estimate([0.5, math.nan, None, 0.7]) == estimate([0.5, 0.7])
