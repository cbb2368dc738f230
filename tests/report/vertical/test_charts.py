import re
import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from lightleak.report.charts import series_style
from lightleak.report.estimate import Estimate
from lightleak.report.vertical.charts import IntervalRow, Trace, density_chart, interval_chart, scatter_chart

HOSTILE = '<script>alert("&")</script>'
VALUES = st.floats(-0.2, 1.2)
DENSITIES = st.floats(0, 9).map(lambda value: round(value, 6))
ESTIMATES = st.tuples(VALUES, VALUES, VALUES).map(sorted).flatmap(
    lambda ends: st.sampled_from([Estimate(ends[1]), Estimate(ends[1], 5, ends[0], ends[2])])
)  # fmt: skip


def classed(drawing: str, name: str) -> list[ET.Element]:
    return [node for node in ET.fromstring(drawing).iter() if name in node.get("class", "").split()]


def percentages(drawing: str) -> list[float]:
    return [float(value) for value in re.findall(r'\b(?:x|x1|x2|cx|width)="([-\d.]+)%"', drawing)]


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
    labels = [node.text for node in classed(drawing, "tick") if "true" not in node.text]
    assert labels == ["50%", "55%", "60%", "65%", "70%"]
    (truth,) = classed(drawing, "truth")
    assert truth.get("x1") == truth.get("x2") == "80%"
    (band,) = classed(drawing, "band")
    assert (band.get("x"), band.get("width")) == ("75%", "10%")
    (spread,) = classed(drawing, "spread")
    assert (spread.get("x1"), spread.get("x2")) == ("50%", "100%")
    dots = classed(drawing, "seed")
    assert [dot.get("x") for dot in dots] == ["0%", "100%"]
    assert dots[0].get("y") != dots[1].get("y")
    assert [dot.find("title").text for dot in dots] == ["seed 0", "seed 1"]


@given(st.lists(st.tuples(DENSITIES, DENSITIES), min_size=1, max_size=20), st.floats(-5, 5))
def test_densities_start_and_end_on_their_edges(values, start) -> None:
    edges = [start + 0.5 * i for i in range(len(values) + 1)]
    drawing = density_chart(HOSTILE, edges, [a for a, _ in values], [b for _, b in values])
    base = float(classed(drawing, "axis-line")[0].get("y1"))
    for name in ("having", "lacking"):
        found = corners(drawing, name)
        assert found[0][0] == 0 and found[-1][0] == 100
        assert len(found) == 2 * len(values)
        assert all(base - 110 <= y <= base for _, y in found)
        assert [x for x, _ in found] == sorted(x for x, _ in found)
    assert corners(drawing, "fill") == [(0, base), *corners(drawing, "having"), (100, base)]
    assert "<script" not in drawing


def corners(drawing: str, name: str) -> list[tuple[float, float]]:
    """Points of a line, as percentages along x and pixels from the top."""
    (found,) = classed(drawing, name)
    if found.tag == "line":
        return [(float(found.get(f"x{end}")[:-1]), float(found.get(f"y{end}"))) for end in (1, 2)]
    return [tuple(map(float, pair.split())) for pair in found.get("d")[1:].rstrip("Z").split("L")]


def test_the_higher_density_reaches_the_top_on_one_scale_for_both() -> None:
    drawing = density_chart("n", [0, 1, 2], [4.0, 1.0], [2.0, 0.0])
    base = float(classed(drawing, "axis-line")[0].get("y1"))
    heights = {name: [(x, base - y) for x, y in corners(drawing, name)] for name in ("having", "lacking")}
    assert heights["having"] == [(0, 110), (50, 110), (50, 27.5), (100, 27.5)]
    assert heights["lacking"] == [(0, 55), (50, 55), (50, 0), (100, 0)]


@given(
    st.lists(st.lists(st.tuples(ESTIMATES, ESTIMATES), min_size=1, max_size=4), min_size=1, max_size=4),
    st.none() | VALUES,
)
def test_scatters_are_well_formed_and_stay_in_the_plot(traces, guess) -> None:
    drawn = [
        Trace(HOSTILE, tuple((HOSTILE, x, y) for x, y in points), series_style(i)) for i, points in enumerate(traces)
    ]
    drawing = scatter_chart(HOSTILE, drawn, guess)
    assert "<script" not in drawing
    assert all(0 <= value <= 100 for value in percentages(drawing))
    assert len(classed(drawing, "link")) == sum(len(points) > 1 for points in traces)
    assert len(classed(drawing, "point")) == sum(map(len, traces))


def test_a_larger_error_stands_higher_and_a_better_model_further_right() -> None:
    points = (("0.1", Estimate(0.9), Estimate(0.02)), ("0.5", Estimate(0.6), Estimate(0.2)))
    drawing = scatter_chart("n", [Trace("d", points, series_style(0))], None)
    first, second = classed(drawing, "point")
    # 0.60 to 0.90 across; 0 to 20 points over 240 pixels.
    base = float(classed(drawing, "axis-line")[0].get("y1"))
    assert (first.get("x"), base - float(first.get("y"))) == ("100%", 24)
    assert (second.get("x"), base - float(second.get("y"))) == ("0%", 240)
    assert first.find("title").text == "d 0.1: 2.0 points off, AUC 0.900"
    assert [node.text for node in classed(drawing, "halo")] == ["0.1", "0.5"]


def test_labels_never_cover_another_mark() -> None:
    close = tuple((str(i), Estimate(0.9 + 0.0001 * i), Estimate(0.02)) for i in range(6))
    drawing = scatter_chart("n", [Trace("d", (*close, ("far", Estimate(0.5), Estimate(0.02))), series_style(0))], None)
    shown = [node.text for node in classed(drawing, "halo")]
    assert "far" in shown and len(shown) < 7
