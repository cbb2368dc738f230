"""Charts as SVG: every value at its place, no text unescaped, nothing outside."""

import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.report.plot.axis import axis, categories
from lightleak.report.plot.chart import Line, Mark, Plot, Points, Row, Rule, Style, stairs
from lightleak.report.plot.svg import MARKS, draw, legend_key

HOSTILE = '<script>alert("&")</script>'
STYLE = Style("s0", "circle")
UNIT = axis([0, 1], ends="round")
ANY = st.floats(allow_nan=True, allow_infinity=True) | st.floats(-0.5, 1.5)
ENDS = st.tuples(st.none() | ANY, st.none() | ANY)


def classed(drawing: str, name: str) -> list[ET.Element]:
    return [node for node in ET.fromstring(drawing).iter() if name in node.get("class", "").split()]


def texts(drawing: str) -> list[str]:
    return [node.text or "" for node in ET.fromstring(drawing).iter("text")]


def marks(y) -> st.SearchStrategy[list[Mark]]:
    label = st.sampled_from(["", "a", HOSTILE])
    return st.lists(st.builds(Mark, ANY, y, st.just(STYLE), label, ENDS, ENDS, label), max_size=5)


def check(drawing: str) -> None:
    root = ET.fromstring(drawing)
    assert root.get("role") == "img" and root.get("aria-label")
    assert "<script" not in drawing and not re.search(r"\b(nan|inf)\b", drawing)
    places = re.findall(r'\b(?:x|x1|x2|width)="([-\d.e]+)%"', drawing)
    assert all(0 <= float(value) <= 100 for value in places)
    heights = re.findall(r'\b(?:y|y1|y2)="([-\d.e]+)"', drawing)
    assert all(-20 <= float(value) <= float(root.get("height")) + 20 for value in heights)


@given(marks(ANY | st.none()), st.lists(st.tuples(ANY, ANY), max_size=5), st.booleans(), ANY)
def test_plots_of_any_values_are_well_formed_and_stay_inside(found, corners, is_area, rule) -> None:
    layers = [Line(corners, "link", "s0", is_area, 4), Points(found, dx=-4)]
    rules = [Rule(rule, "guess", HOSTILE), Rule(rule, "guess", HOSTILE, "y", (rule, 0.5))]
    x = axis([mark.x for mark in found], title=HOSTILE)
    y = axis([mark.y for mark in found if mark.y is not None])
    drawing = draw(Plot(HOSTILE, x, y, layers, rules, foot=HOSTILE))
    check(drawing)
    drawn = sum(math.isfinite(mark.x) and (mark.y is None or math.isfinite(mark.y)) for mark in found)
    assert len(classed(drawing, "point")) == drawn
    assert drawing == draw(Plot(HOSTILE, x, y, layers, rules, foot=HOSTILE))


@given(st.lists(st.tuples(ANY, ENDS), max_size=5), st.booleans())
def test_rows_of_any_values_are_well_formed_and_stay_inside(values, beside) -> None:
    rows = [Row(HOSTILE * 2, HOSTILE, HOSTILE) for _ in values]
    found = [Mark(value, row, STYLE, HOSTILE, ends, label=HOSTILE) for row, (value, ends) in enumerate(values)]
    drawing = draw(Plot(HOSTILE, UNIT, rows, [Points(found, as_bars=True), Points(found)], labels_beside=beside))
    check(drawing)
    finite = sum(math.isfinite(value) for value, _ in values)
    assert len(classed(drawing, "bar")) == len(classed(drawing, "point")) == finite


def test_marks_stand_at_their_values_with_their_intervals() -> None:
    mark = Mark(0.25, 0.5, STYLE, "said", (0.1, 0.4), (0.25, 0.75), ring="ring")
    drawing = draw(Plot("n", UNIT, UNIT, [Points([mark])], height=100))
    (point,) = classed(drawing, "point")
    base = float(classed(drawing, "axis-line")[0].get("y1"))
    assert point.get("x") == "25%" and float(point.get("y")) == base - 50
    assert point.find("title").text == "said" and point.find("circle").get("class") == "ring"
    along, upwards = classed(drawing, "whisker")
    assert (along.get("x1"), along.get("x2")) == ("10%", "40%")
    assert (float(upwards.get("y1")), float(upwards.get("y2"))) == (base - 75, base - 25)


def test_a_mark_without_a_value_stands_in_the_foot() -> None:
    both = [Mark(0.2, None, STYLE), Mark(0.4, 0.0, STYLE)]
    drawing = draw(Plot("n", UNIT, UNIT, [Points(both)], foot="no value"))
    missing, known = (float(node.get("y")) for node in classed(drawing, "point"))
    assert missing > known == float(classed(drawing, "axis-line")[0].get("y1"))
    assert "no value" in texts(drawing)
    assert "no value" not in texts(draw(Plot("n", UNIT, UNIT, [Points(both[1:])], foot="no value")))
    alone = draw(Plot("n", UNIT, None, [Points(both[:1])], foot="no value"))
    assert len(classed(alone, "point")) == 1 and float(ET.fromstring(alone).get("height")) < 100


def test_rules_of_both_directions_have_labels_and_bands() -> None:
    rules = [
        Rule(0.5, "truth", "true", ends=(0.4, 0.7)),
        Rule(0.2, "guess", "guess"),
        Rule(0.9, "guess faint", "own", "y"),
    ]
    drawing = draw(Plot("n", UNIT, UNIT, [], rules))
    assert [(node.get("x1"), node.get("x2")) for node in classed(drawing, "truth")] == [("50%", "50%")]
    (band,) = classed(drawing, "band")
    assert (band.get("x"), band.get("width")) == ("40%", "30%")
    (own,) = classed(drawing, "faint")
    assert own.get("y1") == own.get("y2") and (own.get("x1"), own.get("x2")) == ("0%", "100%")
    above = [node.get("y") for node in classed(drawing, "strong")]
    assert len(set(above)) == 2  # labels of vertical rules have a line of text each


def test_lines_go_through_their_points_and_leave_out_what_is_not_finite() -> None:
    line = Line([(0, 0), (0.5, 1), (math.nan, 0.5), (1, 0.5)], "link", "s1")
    drawing = draw(Plot("n", UNIT, UNIT, [line, Line([(0, 0)], "link")], height=100))
    (path,) = classed(drawing, "link")
    corners = [tuple(map(float, pair.split())) for pair in path.get("d")[1:].split("L")]
    assert [x for x, _ in corners] == [0, 50, 100]
    assert [y - corners[1][1] for _, y in corners] == [100, 0, 50]


def test_labels_that_lack_room_are_shortened_or_left_out() -> None:
    names = ["a name that is long", "another long name", "c"]
    drawing = draw(Plot("n", categories(names), UNIT, [], room=30))
    assert "a name th…" in texts(drawing) and "c" in texts(drawing)
    assert [node.text for node in ET.fromstring(drawing).iter("title")] == names[:2]
    wide, small = (draw(Plot("n", axis([0, 5e5], ends="round"), UNIT, [], grid="x", room=room)) for room in (0, 30))
    assert texts(small) == texts(wide)[::2]


def test_beside_labels_of_rows_a_phone_shows_every_second_tick() -> None:
    drawing = draw(Plot("n", UNIT, [Row("a")], [], labels_beside=True))
    ticks = [node for node in classed(drawing, "tick")]
    assert ["roomy" in node.get("class").split() for node in ticks] == [index % 2 == 1 for index in range(len(ticks))]
    assert len(classed(drawing, "grid")) == len(ticks) == len(UNIT.ticks)


def test_the_label_of_a_mark_is_left_out_where_it_would_cover_another() -> None:
    crowd = [Mark(0.5, 0.5, STYLE, label=f"label {i}", rank=-i) for i in range(30)]
    labels = [label for label in texts(draw(Plot("n", UNIT, UNIT, [Points(crowd)]))) if label.startswith("label")]
    assert "label 29" in labels and len(labels) < 10


def test_stairs_of_no_and_of_one_point() -> None:
    assert stairs([]) == [] and stairs([(1.0, 2.0)]) == [(1.0, 2.0)]


@pytest.mark.parametrize("look", ["having", "lacking", "ring", Style("s3", "wedge")])
def test_a_legend_shows_marks_lines_and_rings(look) -> None:
    drawing = ET.fromstring(legend_key(look))
    assert drawing.get("aria-hidden") == "true" and "key" in drawing.get("class")
    css = look.css if isinstance(look, Style) else look
    assert any(css in node.get("class", "").split() for node in drawing.iter())
    if isinstance(look, Style):
        assert MARKS[look.shape] in legend_key(look)
