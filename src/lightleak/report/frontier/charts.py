"""The plot of a defense frontier: cells recovered (upwards) against test accuracy (rightwards)."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lightleak.report.charts import ends_of, series_style
from lightleak.report.estimate import Estimate
from lightleak.report.frontier.comparison import Frontier, Point
from lightleak.report.frontier.result import NO_DEFENSE
from lightleak.report.frontier.wording import curve_title, short_name
from lightleak.report.plot import chart
from lightleak.report.plot.axis import Axis, axis
from lightleak.report.plot.chart import Line, Mark, Points, Rule, Style, draw, stairs
from lightleak.report.wording import percent

PADDING = 0.06
"""Room around a single value."""

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
    x = shown_axis([point.accuracy for point in points], title="accuracy on the test rows")
    y = shown_axis([point.cells for point in points], [] if guess is None else [guess.mean])
    ringed = {id(point) for point in best}
    # From the least accurate of the best points up to the leakage of the next, then across to it.
    layers: list[Line | Points] = [Line(stairs(sorted(map(_place, best)), across_first=False), "front")]
    used: dict[str, Style] = {}
    for label, curve in sorted(frontier.curves.items(), key=lambda pair: pair[0] == NO_DEFENSE):  # the reference on top
        known = [point for point in curve if point.is_measured]
        marks = [_mark(point, styles[label], id(point) in ringed) for point in known]
        layers += [Line([_place(point) for point in known], "link", styles[label].css), Points(marks)]
        used |= {curve_title(label): styles[label]} if known else {}
    rules = [] if guess is None else [Rule(guess.mean, "guess faint", "guess", along="y")]
    legend = {curve_title(label): styles[label] for label in frontier.curves if curve_title(label) in used}
    return Plot(draw(chart.Plot(name, x, y, layers, rules, height=420)), legend)


def shown_axis(values: Sequence[Estimate | None], others: Sequence[float] = (), title: str = "") -> Axis:
    """All means and as much of the intervals as leaves the means apart: few seeds give intervals of any width.

    >>> shown = shown_axis([Estimate(0.5, 2, -0.4, 1.4), Estimate(0.6, 2, 0.59, 0.61)])
    >>> round(shown.low, 3), round(shown.high, 3)
    (0.438, 0.662)
    """
    known = [value for value in values if value is not None]
    means = [*(value.mean for value in known), *others]
    least, greatest = min(means), max(means)
    room = REACH * (greatest - least) or PADDING
    ends = [end for value in known for end in ends_of(value) if end is not None]
    low, high = min([least, *ends]), max([greatest, *ends])
    return axis([max(low, least - room, 0.0), min(high, greatest + room, 1.0)], percent=True, title=title)


def _place(point: Point) -> tuple[float, float]:
    assert point.accuracy is not None and point.cells is not None  # of a measured point
    return point.accuracy.mean, point.cells.mean


def _mark(point: Point, style: Style, is_best: bool) -> Mark:
    assert point.accuracy is not None and point.cells is not None  # of a measured point
    x, y = _place(point)
    hover = (
        f"{short_name(point.strength)}: accuracy {percent(x)}, "
        f"{percent(y)} of cells recovered{'; Pareto-best' if is_best else ''}"
    )
    strength = point.strength
    label = curve_title(strength.label) if strength.value is None else f"{strength.value:g}"
    # The best are labeled first, then the undefended point, then the others.
    rank = 0 if is_best else 1 if strength.is_none else 2
    ring = "ring" if is_best else ""
    return Mark(x, y, style, hover, ends_of(point.accuracy), ends_of(point.cells), label, rank, ring=ring)
