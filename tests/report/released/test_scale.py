"""Scales with round ticks."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.report.released.scale import Scale

FINITE = st.floats(-1e6, 1e6, allow_nan=False).filter(lambda value: value == 0 or abs(value) > 1e-6)


@given(st.lists(FINITE, min_size=1, max_size=20))
def test_scales_hold_their_values_and_rise(values: list[float]) -> None:
    for scale in (Scale.linear(values), Scale.logarithmic(values)):
        heights = [scale.at(value) for value in sorted(values)]
        assert heights == sorted(heights)
        assert heights[0] >= -1e-9 and heights[-1] <= 1 + 1e-9
        at = [scale.at(value) for value, _ in scale.ticks]
        assert at == sorted(set(at)) and at[0] == pytest.approx(0) and at[-1] <= 1 + 1e-9
        assert 2 <= len(scale.ticks) <= 6


def test_a_logarithmic_scale_gives_each_factor_of_ten_the_same_room() -> None:
    scale = Scale.logarithmic([0.001, 10.0])
    assert [scale.at(10.0**power) for power in range(-3, 2)] == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    around = Scale.logarithmic([-100.0, 100.0])
    assert around.at(0.0) == pytest.approx(0.5)
    assert around.at(9.0) - around.at(0.0) == pytest.approx(math.log10(10) / (2 * math.log10(101)))
