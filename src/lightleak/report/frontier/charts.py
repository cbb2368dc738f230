"""The plot of a defence frontier: cells recovered (upwards) against test accuracy (rightwards)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from lightleak.report.charts import Style, series_style
from lightleak.report.estimate import Estimate
from lightleak.report.frontier.comparison import Frontier, Point
from lightleak.report.frontier.labels import place_labels
from lightleak.report.frontier.result import NO_DEFENSE
from lightleak.report.frontier.wording import curve_title, short_name
from lightleak.report.svg import chart, element, line, mark, text
from lightleak.report.vertical.charts import Axis
from lightleak.report.wording import percent

HEIGHT = 420
TOP = 14
BEST_RADIUS = 10
STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
MOST_TICKS = 6
PADDING = 0.06
"""Share of the range of the values that is left free at each end of an axis."""

REACH = 0.5
"""How far the axes follow intervals beyond the outermost means, as a share of the means' range."""

UNDEFENDED_STYLE = Style("validation", "diamond")


@dataclass(frozen=True)
class Plot:
    """The drawing and its legend.

    Attributes:
        drawing: the plot.
        styles: look of each curve by its title.
    """

    drawing: Markup
    styles: dict[str, Style]


def curve_styles(frontiers: Sequence[Frontier]) -> dict[str, Style]:
    """One look for each label of a curve, the same in every plot of a report."""
    labels = dict.fromkeys(point.strength.label for one in frontiers for point in one.points)
    defended = [label for label in labels if label != NO_DEFENSE]
    return {label: series_style(index) for index, label in enumerate(defended)} | {NO_DEFENSE: UNDEFENDED_STYLE}


def frontier_plot(name: str, frontier: Frontier, best: Sequence[Point], styles: dict[str, Style]) -> Plot | None:
    """The plot of one frontier; None where no point is measured.

    Args:
        name: what a screen reader says.
        frontier: the points.
        best: those that no other dominates; they are ringed and joined by steps.
        styles: look by label of the curve.
    """
    points = frontier.measured
    if not points:
        return None
    guess = frontier.guess
    xs = close_axis(shown_range([point.accuracy for point in points]))
    ys = close_axis(shown_range([point.cells for point in points], [] if guess is None else [guess.mean]))

    def height(value: float) -> float:
        return TOP + HEIGHT * (1 - ys.at(value))

    shapes = _grid(xs, ys)
    if guess is not None:
        shapes += [line(0, height(guess.mean), 1, height(guess.mean), "guess faint")]
        shapes.append(text("guess", 1, height(guess.mean) + 4, "tick", "start", dx=6))
    # The best are labelled first, then the undefended point, then the others.
    ringed = {id(point) for point in best}
    order = sorted(points, key=lambda point: (id(point) not in ringed, not point.strength.is_none))
    at = {id(point): _position(point, xs, height) for point in points}
    shapes += _steps([at[id(point)] for point in sorted(best, key=lambda point: at[id(point)][0])])
    drawn: dict[str, list[Markup]] = {}
    for label, curve in frontier.curves.items():
        known = [point for point in curve if point.is_measured]
        links = [line(*at[id(a)], *at[id(b)], "link") for a, b in pairwise(known)]
        drawn[label] = [*links, *(whisker for point in known for whisker in _whiskers(point, xs, height))]
        drawn[label] += [_mark(point, at[id(point)], styles[label], id(point) in ringed) for point in known]
    shapes += [
        element("g", *parts, class_=styles[label].css)
        for label, parts in sorted(drawn.items(), key=lambda pair: pair[0] == NO_DEFENSE)  # the reference lies on top
    ]
    shapes += _labels(order, at)
    used = {curve_title(label): styles[label] for label, parts in drawn.items() if parts}
    return Plot(chart(name, TOP + HEIGHT + 58, *shapes), used)


def shown_range(values: Sequence[Estimate | None], others: Sequence[float] = ()) -> tuple[float, float]:
    """All means and as much of the intervals as leaves the means apart: few seeds give intervals of any width.

    >>> shown_range([Estimate(0.5, 2, -0.4, 1.4), Estimate(0.6, 2, 0.59, 0.61)])
    (0.45, 0.65)
    """
    known = [value for value in values if value is not None]
    means = [*(value.mean for value in known), *others]
    least, greatest = min(means), max(means)
    room = REACH * (greatest - least) or PADDING
    ends = [end for value in known for end in (value.low, value.high) if end is not None]
    low, high = min([least, *ends]), max([greatest, *ends])
    return round(max(low, least - room, 0.0), 10), round(min(high, greatest + room, 1.0), 10)


def close_axis(values: Sequence[float]) -> Axis:
    """An axis that ends close to the values, so that neighbouring points come apart, with round ticks between.

    >>> [label for _, label in close_axis([0.798, 0.846]).ticks]
    ['80%', '81%', '82%', '83%', '84%']
    >>> [label for _, label in close_axis([0.71, 0.714]).ticks]
    ['71.0%', '71.1%', '71.2%', '71.3%', '71.4%']
    """
    least, greatest = min(values), max(values)
    room = PADDING * (greatest - least) or PADDING / 6
    low, high = least - room, greatest + room
    step = next((step for step in STEPS if (high - low) / step <= MOST_TICKS), STEPS[-1])
    numbers = range(math.ceil(low / step), math.floor(high / step) + 1)
    decimals = 1 if step < STEPS[3] else 0
    # A tick at an end is there to rounding only.
    places = [min(max((number * step - low) / (high - low), 0.0), 1.0) for number in numbers]
    labels = [f"{number * step:.{decimals}%}" for number in numbers]
    return Axis(low, high, tuple(zip(places, labels, strict=True)))


def _grid(xs: Axis, ys: Axis) -> list[Markup]:
    shapes = [line(0, TOP + HEIGHT, 1, TOP + HEIGHT, "axis-line")]
    for at, label in ys.ticks:
        y = TOP + HEIGHT * (1 - at)
        shapes += [line(0, y, 1, y, "grid"), text(label, 0, y + 4, anchor="end", dx=-8)]
    for at, label in xs.ticks:
        shapes += [line(at, TOP, at, TOP + HEIGHT, "grid"), text(label, at, TOP + HEIGHT + 20)]
    shapes.append(text("accuracy on the test rows", 0.5, TOP + HEIGHT + 44, "axis"))
    return shapes


def _position(point: Point, xs: Axis, height: Callable[[float], float]) -> tuple[float, float]:
    assert point.accuracy is not None and point.cells is not None  # of a point that is measured
    return xs.at(point.accuracy.mean), height(point.cells.mean)


def _steps(best: Sequence[tuple[float, float]]) -> list[Markup]:
    """The edge of what is reached: at the accuracy of one best point, up to the leakage of the next."""
    shapes = []
    for (x1, y1), (x2, y2) in pairwise(best):
        shapes += [line(x1, y1, x1, y2, "front"), line(x1, y2, x2, y2, "front")]
    return shapes


def _whiskers(point: Point, xs: Axis, height: Callable[[float], float]) -> list[Markup]:
    x, y = _position(point, xs, height)
    shapes = []
    if (accuracy := point.accuracy) and accuracy.low is not None and accuracy.high is not None:
        shapes.append(line(xs.at(accuracy.low), y, xs.at(accuracy.high), y, "whisker"))
    if (cells := point.cells) and cells.low is not None and cells.high is not None:
        shapes.append(line(x, height(cells.low), x, height(cells.high), "whisker"))
    return shapes


def _mark(point: Point, at: tuple[float, float], style: Style, is_best: bool) -> Markup:
    assert point.accuracy is not None and point.cells is not None  # of a point that is measured
    hover = (
        f"{short_name(point.strength)}: accuracy {percent(point.accuracy.mean)}, "
        f"{percent(point.cells.mean)} of cells recovered{'; Pareto-best' if is_best else ''}"
    )
    ring = [element("circle", r=BEST_RADIUS, class_="ring")] if is_best else []
    return mark(style.shape, *at, "point", hover, ring)


def _labels(points: Sequence[Point], at: dict[int, tuple[float, float]]) -> list[Markup]:
    marks = [(*at[id(point)], _label(point)) for point in points]
    shapes = []
    for (x, y, label), place in zip(marks, place_labels(marks, TOP + HEIGHT), strict=True):
        if place is not None:
            class_ = "tick halo" + (" roomy" if place.wide_only else "")
            shapes.append(text(label, x, y + place.dy, class_, place.anchor, place.dx))
    return shapes


def _label(point: Point) -> str:
    strength = point.strength
    return curve_title(strength.label) if strength.value is None else f"{strength.value:g}"
