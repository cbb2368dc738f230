import re
import xml.etree.ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from lightleak.core.results import FrontierRow
from lightleak.report.kinds.frontier import UNDEFENDED, curve_styles, frontier_plot
from lightleak.report.kinds.frontier_groups import compare
from lightleak.report.plot.svg import draw
from lightleak.report.read import load_run

HOSTILE = '<script>alert("&")</script>'
VALUES = st.floats(0, 1)


def plot_of(rows) -> str:
    (frontier,) = compare(rows)
    return draw(frontier_plot(HOSTILE, frontier, curve_styles([frontier])))


def made(label, value, accuracies, cells) -> list[FrontierRow]:
    none = {"attack": "none", "defense": "none", "run": "r"}
    of = none if label == "none" else none | {"defense": label, "defense_strength": value, "defense_option": "scale"}
    scored = [(of | {"attack": "a"}, index, share) for index, share in enumerate(cells)]
    scored += [(none | {"attack": "random"}, index, 0.5) for index in range(len(cells))]
    return [
        *(FrontierRow(**of, seed=index, accuracy=one) for index, one in enumerate(accuracies)),
        *(FrontierRow(**one, seed=0, batch_index=i, metrics={"cell_accuracy": share}) for one, i, share in scored),
    ]


def classed(drawing: str, name: str) -> list[ET.Element]:
    return [node for node in ET.fromstring(drawing).iter() if name in node.get("class", "").split()]


@given(
    st.lists(
        st.tuples(st.sampled_from(["none", "noise", HOSTILE]), st.integers(1, 4), VALUES, VALUES, VALUES, VALUES),
        min_size=1,
        max_size=8,
    )
)
@settings(max_examples=40)
def test_plots_are_well_formed_and_stay_inside(points) -> None:
    rows = [one for label, value, a, b, c, d in points for one in made(label, value, (a, b), (c, d))]
    drawing = plot_of(rows)
    assert "<script" not in drawing
    places = re.findall(r'\b(?:x|x1|x2|cx)="([-\d.]+)%"', drawing)
    assert places and all(0 <= float(value) <= 100 for value in places)
    base = float(classed(drawing, "axis-line")[0].get("y1"))
    assert all(base - 421 <= float(node.get("y")) <= base + 1 for node in classed(drawing, "point"))


def test_more_leakage_stands_higher_and_more_accuracy_further_right() -> None:
    plot = plot_of(made("none", 0, (0.9,), (0.8,)) + made("noise", 1, (0.6,), (0.7,)))
    found = {node.find("title").text.split(":")[0]: node for node in classed(plot, "point")}
    none, noise = found["no defense"], found["Noise 1"]
    assert float(none.get("x")[:-1]) > float(noise.get("x")[:-1])
    assert float(none.get("y")) < float(noise.get("y"))
    assert none.find("title").text == "no defense: accuracy 90.0%, 80.0% of cells recovered; Pareto-best"


def test_exactly_the_best_are_ringed_and_joined_by_steps() -> None:
    rows = [
        *made("none", 0, (0.9,), (0.8,)),
        *made("noise", 1, (0.8,), (0.7,)),
        *made("noise", 2, (0.7,), (0.6,)),
        *made("sign", 3, (0.7,), (0.75,)),
    ]
    drawing = plot_of(rows)
    ringed = [
        node.find("title").text.split(":")[0] for node in classed(drawing, "point") if node.find("circle") is not None
    ]
    assert sorted(ringed) == ["Noise 1", "Noise 2", "no defense"]
    (steps,) = classed(drawing, "front")
    corners = [tuple(map(float, pair.split())) for pair in steps.get("d")[1:].split("L")]
    # From the least accurate best point up to the leakage of the next, then across to it.
    assert len(corners) == 5
    assert all(a[0] == b[0] and a[1] > b[1] for a, b in zip(corners[::2], corners[1::2], strict=False))
    assert all(a[1] == b[1] and a[0] < b[0] for a, b in zip(corners[1::2], corners[2::2], strict=True))


def test_a_curve_joins_its_strengths_and_no_defense_looks_its_own_way(make_frontier) -> None:
    rows = load_run(make_frontier(trainings=2, clients=2)).of(FrontierRow)
    styles = curve_styles(compare(rows))
    assert list(styles)[-1] == "none" and styles["none"] == UNDEFENDED
    assert len({(style.css, style.shape) for style in styles.values()}) == len(styles) == 9
    plot = plot_of(rows)
    # 19 points on 9 curves
    assert len(classed(plot, "point")) == 19
    links = [node.get("d", "ML").count("L") for node in classed(plot, "link")]
    assert sum(links) == 10
    assert [node.text for node in ET.fromstring(plot).iter("text") if node.text == "guess"] == ["guess"]


def test_intervals_are_drawn_where_they_are_known() -> None:
    alone = plot_of(made("none", 0, (0.9,), (0.8,)))
    assert classed(alone, "whisker") == []
    two = plot_of(made("none", 0, (0.9, 0.91), (0.8, 0.79)))
    assert len(classed(two, "whisker")) == 2


def test_a_wide_interval_does_not_push_the_points_together() -> None:
    steady = made("none", 0, (0.9, 0.901), (0.8, 0.8)) + made("noise", 1, (0.8, 0.801), (0.7, 0.7))
    wild = made("sign", 2, (0.75, 0.95), (0.1, 1.0))
    places = []
    for rows in (steady, steady + wild):
        found = {node.find("title").text.split(":")[0]: node for node in classed(plot_of(rows), "point")}
        places.append([float(found[name].get("x")[:-1]) for name in ("Noise 1", "no defense")])
    (left, right), (near, far) = places
    assert 0.4 * (right - left) < far - near < right - left
