import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.report.charts import series_style
from lightleak.report.estimate import Estimate
from lightleak.report.vertical.charts import Axis, IntervalRow, Trace, density_chart, interval_chart, scatter_chart

HOSTILE = '<script>alert("&")</script>'
VALUES = st.floats(-0.2, 1.2)
ESTIMATES = st.tuples(VALUES, VALUES, VALUES).map(sorted).flatmap(
    lambda ends: st.sampled_from([Estimate(ends[1]), Estimate(ends[1], 5, ends[0], ends[2])])
)  # fmt: skip


def classed(drawing: str, name: str) -> list[ET.Element]:
    return [node for node in ET.fromstring(drawing).iter() if name in node.get("class", "").split()]


def percentages(drawing: str) -> list[float]:
    return [float(value) for value in re.findall(r'\b(?:x|x1|x2|cx|width)="([-\d.]+)%"', drawing)]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.sampled_from([None, 2]))
def test_an_axis_holds_its_values_between_round_ticks(values, digits) -> None:
    axis = Axis.around(values, digits)
    assert axis.low <= min(values) + 1e-9 and max(values) - 1e-9 <= axis.high
    assert 0 <= axis.low < axis.high <= 1 + 1e-9
    assert 2 <= len(axis.ticks) <= 6
    assert [at for at, _ in axis.ticks] == pytest.approx([i / (len(axis.ticks) - 1) for i in range(len(axis.ticks))])
    assert len({label for _, label in axis.ticks}) == len(axis.ticks)
    for at, label in axis.ticks:
        value = float(label.rstrip("%")) / (1 if digits else 100)
        assert axis.at(value) == pytest.approx(at, abs=1e-6)


@given(
    st.lists(st.tuples(ESTIMATES, st.lists(VALUES, max_size=4), st.sampled_from(["", HOSTILE])), max_size=5),
    st.none() | st.tuples(VALUES, VALUES, VALUES).map(sorted).map(lambda v: (v[1], v[0], v[2])),
)
def test_interval_charts_are_well_formed_and_stay_in_the_plot(rows, true) -> None:
    drawn = [
        IntervalRow(HOSTILE, value, tuple((one, HOSTILE) for one in seeds), series_style(0), HOSTILE, heading)
        for value, seeds, heading in rows
    ]
    drawing = interval_chart(HOSTILE, drawn, true)
    assert "<script" not in drawing
    assert all(0 <= value <= 100 for value in percentages(drawing))
    heights = [float(value) for value in re.findall(r'\b(?:y|y1|y2|cy)="([-\d.]+)"', drawing)]
    assert all(0 <= value <= float(ET.fromstring(drawing).get("height")) for value in heights)


def test_marks_stand_where_the_axis_says() -> None:
    row = IntervalRow("a", Estimate(0.65, 3, 0.6, 0.7), ((0.5, "seed 0"), (0.7, "seed 1")), series_style(0), "1.0")
    drawing = interval_chart("n", [row], (0.66, 0.65, 0.67))
    # From 50% to 70%: a tenth of the plot is 2 points.
    assert [label.text for label in ET.fromstring(drawing).iter("text") if "%" in (label.text or "")][:5] == [
        "50%", "55%", "60%", "65%", "70%",
    ]  # fmt: skip
    (truth,) = classed(drawing, "truth")
    assert truth.get("x1") == truth.get("x2") == "80.00%"
    (band,) = classed(drawing, "band")
    assert (band.get("x"), band.get("width")) == ("75.00%", "10.00%")
    (spread,) = classed(drawing, "spread")
    assert (spread.get("x1"), spread.get("x2")) == ("50.00%", "100.00%")
    dots = [node for node in ET.fromstring(drawing).iter("circle")]
    assert [dot.get("cx") for dot in dots] == ["0.00%", "100.00%"]
    assert dots[0].get("cy") != dots[1].get("cy")
    assert [dot.find("title").text for dot in dots] == ["seed 0", "seed 1"]


@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9)), min_size=1, max_size=20), st.floats(-5, 5))
def test_densities_start_and_end_on_their_edges(values, start) -> None:
    edges = [start + 0.5 * i for i in range(len(values) + 1)]
    drawing = density_chart(HOSTILE, edges, [a for a, _ in values], [b for _, b in values])
    fill, having, lacking = (classed(drawing, name)[0].get("d") for name in ("fill", "having", "lacking"))
    assert fill.startswith(having) and fill.endswith("Z")
    for path in (having, lacking):
        corners = [tuple(map(float, pair.split())) for pair in path[1:].split("L")]
        assert corners[0][0] == 0 and corners[-1][0] == 100
        assert len(corners) == 2 * len(values)
        assert all(0 <= y <= 100 for _, y in corners)
        assert [x for x, _ in corners] == sorted(x for x, _ in corners)
    assert "<script" not in drawing


def test_the_higher_density_reaches_the_top_on_one_scale_for_both() -> None:
    drawing = density_chart("n", [0, 1, 2], [4.0, 1.0], [2.0, 0.0])
    having, lacking = (classed(drawing, name)[0].get("d") for name in ("having", "lacking"))
    assert having == "M0.00 0.00L50.00 0.00L50.00 75.00L100.00 75.00"
    assert lacking == "M0.00 50.00L50.00 50.00L50.00 100.00L100.00 100.00"


@given(
    st.lists(st.lists(st.tuples(ESTIMATES, ESTIMATES), min_size=1, max_size=4), min_size=1, max_size=4),
    st.none() | VALUES,
)
def test_scatters_are_well_formed_and_stay_in_the_plot(traces, guess) -> None:
    drawn = [
        Trace(HOSTILE, tuple((HOSTILE, x, y) for x, y in points), series_style(i)) for i, points in enumerate(traces)
    ]
    drawing = scatter_chart(HOSTILE, drawn, guess)
    root = ET.fromstring(drawing)
    assert "<script" not in drawing
    assert all(0 <= value <= 100 for value in percentages(drawing))
    assert len([node for node in root.iter("line") if node.get("class") == "link"]) == sum(len(p) - 1 for p in traces)
    assert len([node for node in root.iter("svg") if node.get("class") == "point"]) == sum(map(len, traces))


def test_a_larger_error_stands_higher_and_a_better_model_further_right() -> None:
    points = (("0.1", Estimate(0.9), Estimate(0.02)), ("0.5", Estimate(0.6), Estimate(0.2)))
    root = ET.fromstring(scatter_chart("n", [Trace("d", points, series_style(0))], None))
    first, second = (node for node in root.iter("svg") if node.get("class") == "point")
    # 0.60 to 0.90 across; 0 to 20 points over 240 pixels from 10 down to 250.
    assert (first.get("x"), first.get("y")) == ("100.00%", "226.0")
    assert (second.get("x"), second.get("y")) == ("0.00%", "10.0")
    assert first.find("title").text == "d 0.1: 2.0 points off, AUC 0.900"
    assert [node.text for node in root.iter("text") if node.get("class") == "tick halo"] == ["0.1", "0.5"]


def test_labels_never_cover_another_mark() -> None:
    close = tuple((str(i), Estimate(0.9 + 0.0001 * i), Estimate(0.02)) for i in range(6))
    drawing = scatter_chart("n", [Trace("d", (*close, ("far", Estimate(0.5), Estimate(0.02))), series_style(0))], None)
    shown = [node.text for node in ET.fromstring(drawing).iter("text") if node.get("class") == "tick halo"]
    assert "far" in shown and len(shown) <= 3
