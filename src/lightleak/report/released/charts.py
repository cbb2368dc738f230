"""The charts of a model inversion report: estimates between reference lines, and training curves."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from lightleak.report.charts import BASELINE_STYLE, SHARES, EstimateRow, estimate_chart, series_style
from lightleak.report.estimate import Estimate
from lightleak.report.plot.axis import Axis, axis
from lightleak.report.plot.chart import Line, Plot, Rule, draw
from lightleak.report.wording import percent

STRETCHES = 200
"""Segments of a curve that are drawn as one point each: about what a screen can show."""


@dataclass(frozen=True)
class Dot:
    """One row: a mean, its interval, and single values with their text on hover."""

    label: str
    value: Estimate
    singles: tuple[tuple[float, str], ...] = ()
    is_baseline: bool = False


@dataclass(frozen=True)
class Reference:
    """A line through all rows; ``css`` is ``truth`` (solid) or ``guess`` (dashed)."""

    label: str
    value: float
    css: str


def dot_chart(name: str, dots: Sequence[Dot], references: Sequence[Reference], x: Axis = SHARES) -> Markup:
    """Rows of shares along one axis, attacks as blue circles and baselines as grey diamonds; each mean is printed."""
    rows = [
        EstimateRow(
            one.label,
            one.value,
            one.singles,
            BASELINE_STYLE if one.is_baseline else series_style(0),
            percent(one.value.mean),
        )
        for one in dots
    ]
    return estimate_chart(name, rows, [Rule(one.value, one.css, one.label) for one in references], x)


def curve_chart(name: str, steps: Sequence[float], values: Sequence[float], y: Axis) -> Markup:
    """One training curve: the mean of each stretch as a line, between its lowest and its highest value as a band.

    Means are taken at the heights of the axis, so that they lie within the band on a logarithmic one too.
    """
    points = list(zip(steps, values, strict=True))
    bounds = [round(index * len(points) / STRETCHES) for index in range(STRETCHES + 1)]
    line, low, high = [], [], []
    for some in (points[start:end] for start, end in pairwise(bounds) if end > start):
        at = sum(step for step, _ in some) / len(some)
        heights = sorted(y.at(value) for _, value in some)
        line.append((at, sum(heights) / len(heights)))
        low.append((at, heights[0]))
        high.append((at, heights[-1]))
    layers = [Line([*high, *reversed(low)], "curve-band", is_area=True)] if len(line) < len(points) else []
    layers.append(Line(line, "curve"))
    heights_axis = Axis(0.0, 1.0, tuple((y.at(value), label) for value, label in y.ticks))
    return draw(Plot(name, axis(steps, ends="exact", whole=True), heights_axis, layers, height=120, grid="y"))
