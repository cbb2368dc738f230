"""Training curves."""

import re

from lightleak.report.charts import STRETCHES, curve_chart, curve_figure
from lightleak.report.plot.axis import axis


def points(drawn: str, class_: str) -> list[tuple[float, float]]:
    path = re.search(rf'd="M([^"]*)" class="{class_}"', drawn)
    assert path
    return [tuple(map(float, pair.split())) for pair in path[1].rstrip("Z").split("L")]  # type: ignore[misc]


def heights(found, of=None) -> list[tuple[float, float]]:
    """Pixels below the highest point of a curve, or of another one."""
    top = min(y for _, y in of or found)
    return [(x, round(y - top, 1)) for x, y in found]


def test_a_short_curve_is_drawn_point_by_point() -> None:
    drawn = curve_chart("loss", [(0, 4.0), (50, 2.0), (100, 0.0)], axis([0.0, 4.0], ends="round"))
    assert heights(points(drawn, "curve")) == [(0, 0), (50, 60), (100, 120)]
    assert "curve-band" not in drawn


def test_a_long_curve_is_drawn_by_stretches_with_their_range() -> None:
    values = [float(index % 2) for index in range(10 * STRETCHES)]
    drawn = curve_chart("loss", list(enumerate(values)), axis([0.0, 1.0], ends="round"))
    line, band = points(drawn, "curve"), points(drawn, "curve-band")
    assert len(line) == STRETCHES and len(band) == 2 * STRETCHES
    assert {y for _, y in heights(line, band)} == {60.0}
    assert {y for _, y in heights(band)} == {0.0, 120.0}
    assert [x for x, _ in line] == sorted(x for x, _ in line)


def test_a_logarithmic_axis_is_named_and_iterations_are_counted_where_none_are_given() -> None:
    found = curve_figure("Loss", "note", "attack", [], [1.0, 2.0, 3.0, 4.0], logarithmic=False)
    assert found is not None and found.caption == "note" and ">3<" in found.drawing
    found = curve_figure("Loss", "note", "attack", [0, 10, 20], [3.0, 0.1, 0.01], logarithmic=True)
    assert found is not None and found.caption == "note; logarithmic scale"
    found = curve_figure("Loss", "note", "attack", [0, 10, 20], [-5.0, 0.5, 0.1], logarithmic=True)
    assert found is not None and "linear around 0" in found.caption and "Loss of attack by iteration" in found.drawing


def test_fewer_than_two_values_are_no_curve() -> None:
    assert curve_figure("Loss", "", "attack", [], [], False) is None
    assert curve_figure("Loss", "", "attack", [0, 1, None], [1.0, None, 2.0], False) is None
