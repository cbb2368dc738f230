"""Axes of any range."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightleak.report.plot.axis import LARGEST, MOST_STEPS, Axis, axis, categories

VALUES = st.lists(st.floats(-1e9, 1e9, allow_subnormal=False), min_size=1, max_size=6)
FRACTIONS = st.lists(st.floats(0, 1), min_size=1, max_size=8)
TINY = 1 / LARGEST
"""Values below it count as zero."""

ENDS = st.sampled_from(["round", "padded", "exact"])


def number(label: str) -> float:
    return float(label.replace("−", "-").replace(",", "").removesuffix("%"))


def check(found: Axis, values: list[float], unit: float = 1.0) -> None:
    """Values lie inside in their order, and each tick stands where its label says."""
    assert found.low <= min(values) + TINY and max(values) - TINY <= found.high and found.low < found.high
    places = [found.at(value) for value in sorted(values)]
    assert places == sorted(places) and all(0 <= place <= 1 for place in places)
    at = [found.at(value) for value, _ in found.ticks]
    assert at == sorted(set(at)) and len(at) <= MOST_STEPS + 2
    for value, label in found.ticks:
        assert number(label) / unit == pytest.approx(value, rel=1e-3, abs=1e-3 * (found.high - found.low))


@settings(max_examples=100)
@given(VALUES, ENDS, st.booleans())
def test_a_linear_axis_holds_its_values_between_ticks_that_say_where_they_stand(values, ends, whole) -> None:
    check(axis(values, ends=ends, whole=whole), values)


@given(FRACTIONS, ENDS)
def test_percentages_stay_between_0_and_100_with_labels_that_differ(values, ends) -> None:
    found = axis(values, ends=ends, percent=True)
    check(found, values, 100.0)
    assert all(0 <= number(label) <= 100 for _, label in found.ticks)
    assert len({label for _, label in found.ticks}) == len(found.ticks)
    if ends == "round":
        assert found.low >= 0 and found.high <= 1 + 1e-9
        assert found.at(found.ticks[0][0]) == 0 and found.at(found.ticks[-1][0]) == 1


@given(st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=5), st.sampled_from(["round", "padded"]))
def test_equal_ratios_are_equally_far_apart_on_a_logarithmic_axis(values, ends) -> None:
    found = axis(values, "log", ends)
    assert found.scale == "log"
    check(found, values)
    assert found.at(math.sqrt(found.low) * math.sqrt(found.high)) == pytest.approx(0.5)
    assert 1 <= len(found.ticks) <= MOST_STEPS + 1
    assert all(value == pytest.approx(number(label), rel=1e-3) for value, label in found.ticks)


def test_a_logarithmic_axis_gives_each_factor_of_ten_the_same_room() -> None:
    found = axis([0.001, 10.0], "log", "round")
    assert [found.at(10.0**power) for power in range(-3, 2)] == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    assert [label for _, label in found.ticks] == ["0.001", "0.01", "0.1", "1", "10"]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9).filter(lambda values: min(values) <= 0))
def test_what_has_no_logarithm_is_drawn_on_a_symmetric_axis_around_zero(values) -> None:
    found = axis(values, "log", "round")
    assert found.scale == "symlog"
    check(found, values)
    assert 0.0 in [value for value, _ in found.ticks]


def test_a_symmetric_axis_has_zero_in_the_middle_and_is_logarithmic_on_both_sides() -> None:
    found = axis([-100.0, 100.0], "log")
    assert found.at(0.0) == pytest.approx(0.5)
    assert found.at(9.0) - found.at(0.0) == pytest.approx(math.log10(10) / (2 * math.log10(101)))


@given(st.integers(0, 2000))
def test_trials_are_counted_in_whole_numbers(last: int) -> None:
    labels = [label for _, label in axis([0, last], whole=True).ticks]
    assert all(label.replace(",", "").isdigit() for label in labels) and len(set(labels)) == len(labels) >= 1


def test_the_ticks_of_every_narrow_range_of_fractions_differ() -> None:
    for width in (0.3, 0.03, 0.003, 0.0003):
        labels = [label for _, label in axis([0.6, 0.6 + width], percent=True).ticks]
        assert len(set(labels)) == len(labels) > 2, labels


@pytest.mark.parametrize(
    ("values", "ends", "expected"),
    [
        ([0, 39], "padded", ["0", "10", "20", "30", "40"]),
        ([0.3, 4.2], "round", ["0", "1", "2", "3", "4", "5"]),
        ([0, 27450], "exact", ["0", "5,000", "10,000", "15,000", "20,000", "25,000"]),
        ([-0.4, 0.4], "round", ["−0.4", "−0.2", "0.0", "0.2", "0.4"]),
    ],
)
def test_ticks_are_round(values, ends, expected) -> None:
    assert [label for _, label in axis(values, ends=ends).ticks] == expected


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize("ends", ["round", "padded", "exact"])
@pytest.mark.parametrize(
    "values",
    [[], [math.nan], [math.inf, -math.inf], [0.0], [3.0], [5.0, 5.0, math.nan], [1e300, -1e300], [0.0, 5e-324]],
)
def test_no_values_one_value_and_values_beyond_all_bounds_have_an_axis(scale, ends, values) -> None:
    found = axis(values, scale, ends)
    assert found.low < found.high and math.isfinite(found.high - found.low) and found.ticks
    assert all(0 <= found.at(value) <= 1 for value in (*values, found.low, found.high) if not math.isnan(value))


def test_categories_have_columns_of_equal_width() -> None:
    found = categories(["a", "b", "c", "d"], "name")
    assert [found.at(value) for value, _ in found.ticks] == [0.125, 0.375, 0.625, 0.875]
