"""Axes of any range."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightleak.report.tuning.axes import MOST_TICKS, number_axis

VALUES = st.lists(st.floats(-1e9, 1e9, allow_subnormal=False), min_size=1, max_size=6)


def number(label: str) -> float:
    return float(label.replace("−", "-").removesuffix("%"))


@settings(max_examples=60)
@given(VALUES, st.booleans(), st.booleans())
def test_values_lie_inside_in_their_order_and_ticks_where_they_say(values, whole: bool, percent: bool) -> None:
    axis = number_axis(values, whole=whole, percent=percent)
    ordered = sorted(values)
    places = [axis.at(value) for value in ordered]
    assert places == sorted(places) and all(0 <= place <= 1 for place in places)
    assert axis.low < ordered[0] and axis.high > ordered[-1]
    assert len(axis.ticks) <= MOST_TICKS + 1
    for at, label in axis.ticks:
        assert 0 <= at <= 1
        said = number(label) / (100 if percent else 1)
        # four digits of the label, against the length of the axis
        room = 1e-3 * max(abs(said), 1e-3 * (axis.high - axis.low)) + 1e-6 * (axis.high - axis.low)
        assert axis.low + at * (axis.high - axis.low) == pytest.approx(said, abs=room)


@given(st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=5))
def test_equal_ratios_are_equally_far_apart_on_a_logarithmic_axis(values) -> None:
    axis = number_axis(values, log=True)
    assert axis.log and axis.low < min(values) and axis.high > max(values)
    middle = (axis.low * axis.high) ** 0.5
    assert axis.at(middle) == pytest.approx(0.5)
    assert 1 <= len(axis.ticks) <= MOST_TICKS
    for at, label in axis.ticks:
        assert axis.low * (axis.high / axis.low) ** at == pytest.approx(number(label), rel=1e-3)


@pytest.mark.parametrize("values", [[0.0, 0.1], [-1.0, 5.0]])
def test_what_has_no_logarithm_is_drawn_on_a_linear_axis(values) -> None:
    assert not number_axis(values, log=True).log


@given(st.integers(0, 2000))
def test_trials_are_counted_in_whole_numbers(last: int) -> None:
    labels = [label for _, label in number_axis([0, last], whole=True).ticks]
    assert all(label.isdigit() for label in labels) and len(set(labels)) == len(labels) >= 1


def test_the_ticks_of_every_narrow_range_of_fractions_differ() -> None:
    for width in (0.3, 0.03, 0.003, 0.0003):
        labels = [label for _, label in number_axis([0.8, 0.8 + width], percent=True).ticks]
        assert len(set(labels)) == len(labels) > 2, labels
