"""The charts of a model inversion report: dots with intervals between reference lines, and training curves."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from lightleak.report.charts import BASELINE_STYLE, series_style
from lightleak.report.estimate import Estimate
from lightleak.report.released.scale import Scale
from lightleak.report.svg import chart, element, line, mark, text
from lightleak.report.vertical.charts import Axis
from lightleak.report.wording import interval, percent

ROW, MARK = 44, 35
"""Pixels of one row, and where its mark stands in it; its label is above."""

LETTER = 6.5
"""Pixels of an average letter of a label."""

JITTER = 9.0
"""Pixels over which the evaluations of one row are spread, so that equal ones stay apart."""

REFERENCE_LINE = 17
"""Pixels of height for the name of one reference line."""

EDGE = 0.16
"""A label nearer to an end of the plot is set against that end."""

WHOLE = Axis(0.0, 1.0, tuple((value, f"{value:.0%}") for value in (0.0, 0.25, 0.5, 0.75, 1.0)))

CURVE_HEIGHT = 120
STRETCHES = 200
"""Stretches of a curve that are drawn as one point each: about what a screen can show."""


@dataclass(frozen=True)
class Dot:
    """One row: a mean, its interval, and single values with what hovering says."""

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


def dot_chart(name: str, dots: Sequence[Dot], references: Sequence[Reference], axis: Axis = WHOLE) -> Markup:
    """Rows of shares along one axis, attacks as blue circles and baselines as grey diamonds; each mean is printed."""
    top = REFERENCE_LINE * len(references) + 6
    bottom = top + ROW * len(dots) + 8
    shapes = [line(at, top, at, bottom, "grid") for at, _ in axis.ticks]
    shapes += [text(label, at, bottom + 18) for at, label in axis.ticks]
    for index, one in enumerate(references):
        at, y = axis.at(one.value), REFERENCE_LINE * (index + 1) - 5
        anchor = "start" if at < EDGE else "end" if at > 1 - EDGE else "middle"
        shapes += [line(at, y + 4, at, bottom, one.css), text(one.label, at, y, "tick strong halo", anchor)]
    for index, dot in enumerate(dots):
        shapes += _dot(dot, top + ROW * index + MARK, axis)
    return chart(name, bottom + 26, *shapes)


def _dot(dot: Dot, y: float, axis: Axis) -> list[Markup]:
    style = BASELINE_STYLE if dot.is_baseline else series_style(0)
    # Lines end behind a label, so that it stays readable.
    shapes = [element("rect", x=0, y=y - 26, width=round(LETTER * len(dot.label), 1), height=15, class_="blank")]
    shapes.append(text(dot.label, 0, y - 14, "label", "start"))
    shapes.append(text(percent(dot.value.mean), 1, y + 4, "value", "start", dx=12))
    if dot.value.low is not None and dot.value.high is not None:
        low, high = axis.at(dot.value.low), axis.at(dot.value.high)
        shapes.append(element("g", line(low, y, high, y, "spread"), class_=style.css))
    for index, (value, hover) in enumerate(dot.singles):
        shift = JITTER * (index / (len(dot.singles) - 1) - 0.5) if len(dot.singles) > 1 else 0.0
        at = f"{100 * axis.at(value):.2f}%"
        circle = element("circle", element("title", hover), cx=at, cy=round(y + shift, 1), r=3)
        shapes.append(element("g", circle, class_=f"seed {style.css}"))
    hover = f"{dot.label}: {percent(dot.value.mean)}"
    hover += f" (95% interval {interval(dot.value)})" if dot.value.has_interval else ""
    return [*shapes, mark(style.shape, axis.at(dot.value.mean), y, style.css, hover)]


def curve_chart(name: str, steps: Sequence[float], values: Sequence[float], scale: Scale) -> Markup:
    """One training curve: the mean of each stretch as a line, lowest to highest of it as a band."""
    first, last = min(steps), max(steps)
    points = []
    for some in _stretches(list(zip(steps, values, strict=True))):
        at = (sum(step for step, _ in some) / len(some) - first) / (last - first or 1)
        heights = [scale.at(value) for _, value in some]
        points.append((100 * at, *(100 * (1 - y) for y in (sum(heights) / len(heights), min(heights), max(heights)))))
    band = _path([(x, top) for x, _, _, top in points] + [(x, bottom) for x, _, bottom, _ in reversed(points)]) + "Z"
    shapes = [element("path", d=band, class_="curve-band")] if len(values) > len(points) else []
    shapes.append(
        element("path", d=_path([(x, y) for x, y, *_ in points]), class_="curve", vector_effect="non-scaling-stroke")
    )
    top = 6
    grid = []
    for value, label in scale.ticks:
        y = top + CURVE_HEIGHT * (1 - scale.at(value))
        grid += [line(0, y, 1, y, "grid"), text(label, 0, y + 4, anchor="end", dx=-8)]
    # Stretched to the width of the page; the line keeps its own width.
    plot = element(
        "svg", *shapes, viewBox="0 0 100 100", preserveAspectRatio="none", x=0, y=top, width="100%", height=CURVE_HEIGHT
    )
    places = ((0.0, "start"), (1.0, "end"))
    ticks = [
        text(f"{first + at * (last - first):,.0f}", at, top + CURVE_HEIGHT + 18, anchor=anchor) for at, anchor in places
    ]
    return chart(name, top + CURVE_HEIGHT + 24, *grid, plot, *ticks)


def _stretches(points: list[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    bounds = [round(index * len(points) / STRETCHES) for index in range(STRETCHES + 1)]
    return [points[start:end] for start, end in pairwise(bounds) if end > start]


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in points)
