"""Dots between reference lines, and training curves."""

import re

from lightleak.report.estimate import Estimate
from lightleak.report.plot.axis import axis
from lightleak.report.released.charts import STRETCHES, Dot, Reference, curve_chart, dot_chart


def test_dots_and_lines_stand_where_their_values_are() -> None:
    dots = [
        Dot("attack", Estimate(0.8, 5, 0.7, 0.9), ((0.75, "evaluation 0"), (0.85, "evaluation 1"))),
        Dot("<b>public</b>", Estimate(0.6), is_baseline=True),
    ]
    drawn = dot_chart("name", dots, [Reference("real rows 40.0%", 0.4, "truth"), Reference("chance", 0.05, "guess")])
    assert re.findall(r'x="([\d.]+%)"[^>]* class="(s0|baseline)"', drawn) == [("80%", "s0"), ("60%", "baseline")]
    assert 'x1="70%"' in drawn and 'x2="90%"' in drawn
    assert re.findall(r'x="([\d.]+%)"[^>]* class="seed s0"', drawn) == ["75%", "85%"]
    assert re.search(r'x1="40%"[^>]*class="truth"', drawn) and 'class="guess"' in drawn
    assert "<title>attack: 80.0% (95% interval 70.0 to 90.0)</title>" in drawn
    assert "<b>" not in drawn and "&lt;b&gt;public" in drawn
    assert drawn.index('class="truth"') < drawn.index(">attack<")  # the label lies over the line


def points(drawn: str, class_: str) -> list[tuple[float, float]]:
    path = re.search(rf'd="M([^"]*)" class="{class_}"', drawn)
    assert path
    return [tuple(map(float, pair.split())) for pair in path[1].rstrip("Z").split("L")]  # type: ignore[misc]


def heights(found, of=None) -> list[tuple[float, float]]:
    """Pixels below the highest point of a curve, or of another one."""
    top = min(y for _, y in of or found)
    return [(x, round(y - top, 1)) for x, y in found]


def test_a_short_curve_is_drawn_point_by_point() -> None:
    drawn = curve_chart("loss", [0, 50, 100], [4.0, 2.0, 0.0], axis([0.0, 4.0], ends="round"))
    assert heights(points(drawn, "curve")) == [(0, 0), (50, 60), (100, 120)]
    assert "curve-band" not in drawn


def test_a_long_curve_is_drawn_by_stretches_with_their_range() -> None:
    values = [float(index % 2) for index in range(10 * STRETCHES)]
    drawn = curve_chart("loss", list(range(len(values))), values, axis([0.0, 1.0], ends="round"))
    line, band = points(drawn, "curve"), points(drawn, "curve-band")
    assert len(line) == STRETCHES and len(band) == 2 * STRETCHES
    assert {y for _, y in heights(line, band)} == {60.0}
    assert {y for _, y in heights(band)} == {0.0, 120.0}
    assert [x for x, _ in line] == sorted(x for x, _ in line)
