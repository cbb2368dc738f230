import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.report.charts import (
    COLOURS,
    SHAPES,
    EstimateRow,
    Pair,
    Series,
    bar_figure,
    line_figure,
    pair_chart,
    series_style,
    spaced_axis,
)
from lightleak.report.intervals import Estimate
from lightleak.report.plot.axis import Axis
from lightleak.report.plot.svg import MARKS, legend_key

PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_categories=["Cs", "Cc"]), max_size=40)
ESTIMATES = st.builds(
    lambda mean, half: Estimate(mean, 5, mean - half, mean + half), st.floats(-0.5, 1.5), st.floats(0, 0.5)
) | st.builds(Estimate, st.floats(0, 1))
HOSTILE = '<script>alert("1")</script>'


def percentages(drawing: str) -> list[float]:
    """Places in the drawing; a label may end in a percent sign, too."""
    nodes = ET.fromstring(drawing).iter()
    values = [value for node in nodes for name, value in node.attrib.items() if name != "aria-label"]
    return [float(value[:-1]) for value in values if value.endswith("%")]


@given(PRINTABLE, st.lists(st.tuples(PRINTABLE, ESTIMATES), min_size=1, max_size=4), st.none() | ESTIMATES)
def test_bars_are_well_formed_and_stay_in_the_plot(name, bars, baseline) -> None:
    rows = [EstimateRow(label, value, series_style(i)) for i, (label, value) in enumerate(bars)]
    drawing = bar_figure(name, rows, baseline).drawing
    assert all(0 <= value <= 100 for value in percentages(drawing))


@given(
    PRINTABLE, st.lists(st.tuples(PRINTABLE, st.none() | st.floats(0, 1), st.floats(0, 1)), max_size=4), st.booleans()
)
def test_pairs_are_well_formed_and_stay_in_the_plot(name, rows, stacked) -> None:
    pairs = [Pair(label, start, end) for label, start, end in rows]
    drawing = pair_chart(name, pairs, "a", "b", stacked)
    assert all(0 <= value <= 100 for value in percentages(drawing))


@given(st.lists(st.tuples(st.floats(0, 1), ESTIMATES), max_size=6))
def test_lines_are_well_formed_and_stay_in_the_plot(points) -> None:
    lines = [Series(HOSTILE, tuple(points), series_style(0))]
    drawing = line_figure(HOSTILE, lines, Axis(0, 1, ((0.5, HOSTILE),), title=HOSTILE)).drawing
    root = ET.fromstring(drawing)
    assert len([node for node in root.iter("svg") if node.get("class") == "point s0"]) == len(points)
    assert len([node for node in root.iter() if node.get("class") == "link"]) == (len(points) > 1)
    assert all(0 <= value <= 100 for value in percentages(drawing))
    assert "<script" not in drawing


def test_a_bar_is_as_long_as_its_value() -> None:
    bars = [EstimateRow("a", Estimate(0.25), series_style(0))]
    drawing = ET.fromstring(bar_figure("n", bars, Estimate(0.5)).drawing)
    (bar,) = [node for node in drawing.iter("rect") if node.get("class", "").startswith("bar")]
    assert (bar.get("x"), bar.get("width")) == ("0%", "25%")
    (guess,) = [node for node in drawing.iter("line") if node.get("class") == "guess"]
    assert guess.get("x1") == guess.get("x2") == "50%"


def test_higher_values_stand_higher() -> None:
    points = ((0.1, Estimate(0.2)), (0.9, Estimate(0.8)))
    drawn = line_figure("n", [Series("a", points, series_style(0))], Axis(0, 1, title="x")).drawing
    (link,) = [node for node in ET.fromstring(drawn).iter("line") if node.get("class") == "link"]
    assert float(link.attrib["y2"]) < float(link.attrib["y1"])
    assert (link.get("x1"), link.get("x2")) == ("10%", "90%")


def test_long_labels_are_shortened_beside_the_plot_and_whole_on_hover() -> None:
    label = "a_very_long_column_name_indeed"
    beside = ET.fromstring(pair_chart("n", [Pair(label, None, 0.5)], "a", "b"))
    shown = next(node for node in beside.iter("text") if node.get("class") == "label")
    assert shown.text == "a_very_long_column_…"
    assert shown.find("title").text == label
    above = ET.fromstring(pair_chart("n", [Pair(label, None, 0.5)], "a", "b", stacked=True))
    assert next(node for node in above.iter("text") if "label" in node.get("class")).text == label


def test_series_differ_without_colour_and_by_both_for_long() -> None:
    assert len({series_style(i).shape for i in range(len(SHAPES))}) == len(SHAPES)
    looks = [series_style(i) for i in range(COLOURS * len(SHAPES))]
    assert len(set(looks)) == len(looks)
    assert {style.shape for style in looks} <= set(MARKS)


def test_legend_shows_the_mark_of_the_series() -> None:
    style = series_style(2)
    assert MARKS[style.shape] in legend_key(style)
    assert style.css in legend_key(style)


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=10, unique=True))
def test_spaced_ticks_keep_order_and_proportion(values) -> None:
    x = spaced_axis([(value, str(value)) for value in values], "x")
    places = [x.at(value) for value in values]
    assert sorted(range(len(values)), key=lambda i: places[i]) == sorted(range(len(values)), key=lambda i: values[i])
    assert all(0 <= place <= 1 for place in places)
    if len(values) > 2:
        a, b, c = sorted(values)[0], sorted(values)[1], sorted(values)[-1]
        place = dict(zip(values, places, strict=True))
        assert (place[b] - place[a]) / (place[c] - place[a]) == pytest.approx((b - a) / (c - a))
