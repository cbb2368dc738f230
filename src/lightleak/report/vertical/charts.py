"""The charts of a vertical report: intervals along a share, two densities, and error against AUC."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from lightleak.report.charts import Style
from lightleak.report.estimate import Estimate
from lightleak.report.svg import across, chart, element, line, mark, text
from lightleak.report.vertical.wording import off_by
from lightleak.report.wording import percent

ROW = 44
HEADING = 30
JITTER = 9.0
"""Pixels over which the seeds of one row are spread, so that equal estimates stay apart."""

DENSITY_HEIGHT = 110
SCATTER_HEIGHT = 240
EDGE = 0.14
"""A label nearer to an end of the plot is set against that end."""

LABEL_ROOM = (0.11, 15.0)
"""Share of the width and pixels of height that a label beside a mark takes."""

STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5)
MOST_TICKS = 6


@dataclass(frozen=True)
class IntervalRow:
    """One attack: the mean of its estimates, an interval, and the estimate of each seed.

    Attributes:
        label: name of the attack.
        value: mean with the interval to draw.
        seeds: single estimates with what hovering says.
        style: look of its adversary.
        note: text at the right.
        heading: line of text above this row; empty for none.
    """

    label: str
    value: Estimate
    seeds: tuple[tuple[float, str], ...]
    style: Style
    note: str = ""
    heading: str = ""


@dataclass(frozen=True)
class Trace:
    """One defence at several strengths: points as (label, AUC, error), joined in their order."""

    label: str
    points: tuple[tuple[str, Estimate, Estimate], ...]
    style: Style


def interval_chart(name: str, rows: Sequence[IntervalRow], true: tuple[float, float, float] | None) -> Markup:
    """Rows of estimated shares with intervals along one axis that is cut to where they lie.

    ``true`` is the mean truth and the least and the greatest of a seed: a solid line in a band.
    """
    ends = [end for row in rows for end in (row.value.mean, row.value.low, row.value.high)]
    ends += [value for row in rows for value, _ in row.seeds] + list(true or ())
    axis = Axis.around([min(max(end, 0.0), 1.0) for end in ends if end is not None])
    top = 40
    bottom = top + sum(ROW + (HEADING if row.heading else 0) for row in rows) + 6
    shapes = [line(at, top, at, bottom, "grid") for at, _ in axis.ticks]
    shapes += [text(label, at, bottom + 18) for at, label in axis.ticks]
    if true is not None:
        mean, low, high = (axis.at(value) for value in true)
        band = element("rect", x=across(low), y=top, width=across(high - low), height=bottom - top, class_="band")
        shapes += [band, line(mean, 34, mean, bottom, "truth"), _end_text(f"true {percent(true[0])}", mean, 29)]
    y = float(top)
    for row in rows:
        if row.heading:
            y += HEADING
            shapes.append(text(row.heading, 0, y - 8, "label strong halo", "start"))
        y += ROW
        shapes += _interval_row(row, y - 9, axis)
    return chart(name, bottom + 26, *shapes)


def density_chart(name: str, edges: Sequence[float], having: Sequence[float], lacking: Sequence[float]) -> Markup:
    """Two step densities over the same edges: with the property as a filled outline, without it dashed."""
    highest = max(max(having), max(lacking)) or 1.0
    width = edges[-1] - edges[0]
    outlines = ((having, "fill", True), (having, "having", False), (lacking, "lacking", False))
    drawn = []
    for values, class_, close in outlines:
        steps = _steps(values, edges, highest, width, close)
        drawn.append(element("path", d=steps, class_=class_, vector_effect="non-scaling-stroke"))
    # Stretched to the width of the page; lines keep their own width.
    plot = element(
        "svg", *drawn, viewBox="0 0 100 100", preserveAspectRatio="none", x=0, y=4, width="100%", height=DENSITY_HEIGHT
    )
    base = DENSITY_HEIGHT + 4
    ticks = [
        text(_short(edges[0] + at * width), at, base + 17, anchor=anchor)
        for at, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
    ]
    return chart(name, base + 24, plot, line(0, base, 1, base, "axis-line"), *ticks)


def scatter_chart(name: str, traces: Sequence[Trace], own: float | None) -> Markup:
    """The attacker's error (upwards) against the AUC (rightwards), with intervals.

    ``own``, what the adversary's own columns alone are off by, is a dashed line.
    """
    points = [(x, y) for trace in traces for _, x, y in trace.points]
    xs = Axis.around([end for x, _ in points for end in (x.mean, x.low, x.high) if end is not None], digits=2)
    highest = max([end for _, y in points for end in (y.mean, y.high) if end is not None] + [own or 0.0])
    ys = Axis.around([0.0, min(highest, 1.0)])

    def height(value: float) -> float:
        return 10 + SCATTER_HEIGHT * (1 - ys.at(value))

    shapes = []
    for at, label in ys.ticks:
        y = 10 + SCATTER_HEIGHT * (1 - at)
        shapes += [line(0, y, 1, y, "grid"), text(label.removesuffix("%"), 0, y + 4, anchor="end", dx=-8)]
    shapes += [text(label, at, SCATTER_HEIGHT + 29) for at, label in xs.ticks]
    shapes.append(text("AUC of the model", 0.5, SCATTER_HEIGHT + 50, "axis"))
    if own is not None:
        shapes += [line(0, height(own), 1, height(own), "guess faint")]
        shapes.append(text("own", 1, height(own) + 4, "tick", "start", dx=6))
    taken = [(xs.at(x.mean), height(y.mean)) for x, y in points]
    for trace in traces:
        shapes.append(_trace(trace, xs, height, taken))
    return chart(name, SCATTER_HEIGHT + 58, *shapes)


@dataclass(frozen=True)
class Axis:
    """A part of [0, 1] with round ticks; ``ticks`` are (position along the plot, label)."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    @classmethod
    def around(cls, values: Sequence[float], digits: int | None = None) -> "Axis":
        """The least range of round ends that holds the values; labels are percents, or numbers with ``digits``.

        >>> axis = Axis.around([0.62, 0.84])
        >>> axis.low, axis.high, [label for _, label in axis.ticks]
        (0.6, 0.85, ['60%', '65%', '70%', '75%', '80%', '85%'])
        """
        least, greatest = max(min(values, default=0.0), 0.0), min(max(values, default=1.0), 1.0)

        def ends(step: float) -> tuple[int, int]:
            first = math.floor(least / step + 1e-9)
            return first, max(math.ceil(greatest / step - 1e-9), first + 1)

        step = next((step for step in STEPS if ends(step)[1] - ends(step)[0] < MOST_TICKS), STEPS[-1])
        first, last = ends(step)
        low, high = first * step, last * step
        marks = []
        for number in range(first, last + 1):
            value = number * step
            label = f"{value:.0%}" if digits is None else f"{value:.{digits}f}"
            marks.append(((value - low) / (high - low), label))
        return cls(round(low, 10), round(high, 10), tuple(marks))

    def at(self, value: float) -> float:
        """Position of a value along the plot, held inside it."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)


def _interval_row(row: IntervalRow, y: float, axis: Axis) -> list[Markup]:
    shapes = [text(row.label, 0, y - 14, "label halo", "start"), text(row.note, 1, y + 4, "value", "start", dx=12)]
    if row.value.low is not None and row.value.high is not None:
        low, high = axis.at(row.value.low), axis.at(row.value.high)
        shapes.append(element("g", line(low, y, high, y, "spread"), class_=row.style.css))
    for index, (value, hover) in enumerate(row.seeds):
        shift = JITTER * (index / (len(row.seeds) - 1) - 0.5) if len(row.seeds) > 1 else 0.0
        dot = element("circle", element("title", hover), cx=across(axis.at(value)), cy=round(y + shift, 1), r=3)
        shapes.append(element("g", dot, class_=f"seed {row.style.css}"))
    hover = f"{row.label}: {percent(row.value.mean)}"
    shapes.append(mark(row.style.shape, axis.at(row.value.mean), y, row.style.css, hover))
    return shapes


def _trace(trace: Trace, xs: Axis, height: Callable[[float], float], taken: list[tuple[float, float]]) -> Markup:
    at = [(xs.at(x.mean), height(y.mean)) for _, x, y in trace.points]
    shapes = [line(x1, y1, x2, y2, "link") for (x1, y1), (x2, y2) in pairwise(at)]
    for (label, x, y), (across_, down) in zip(trace.points, at, strict=True):
        if x.low is not None and x.high is not None:
            shapes.append(line(xs.at(x.low), down, xs.at(x.high), down, "whisker"))
        if y.low is not None and y.high is not None:
            shapes.append(line(across_, height(y.low), across_, height(y.high), "whisker"))
        hover = f"{trace.label} {label}".strip() + f": {off_by(y.mean)} points off, AUC {x.mean:.3f}"
        shapes.append(mark(trace.style.shape, across_, down, "point", hover))
        if label and (side := _free_side(across_, down, taken)):
            anchor, dx = ("start", 7) if side > 0 else ("end", -7)
            shapes.append(text(label, across_, down - 7, "tick halo", anchor, dx))
            taken.append((across_ + side * LABEL_ROOM[0] / 2, down))
    return element("g", *shapes, class_=trace.style.css)


def _free_side(x: float, y: float, taken: Sequence[tuple[float, float]]) -> int:
    """1 where a label fits at the right of a mark, -1 at its left, 0 where it would cover another mark or label."""
    wide, high = LABEL_ROOM
    for side in (1, -1):
        near = [one for one in taken if 0 < side * (one[0] - x) < wide and abs(one[1] - y) < high]
        if not near and 0 <= x + side * wide <= 1 + wide / 2:
            return side
    return 0


def _steps(values: Sequence[float], edges: Sequence[float], highest: float, width: float, close: bool) -> str:
    corners = []
    for value, left, right in zip(values, edges, edges[1:], strict=False):
        y = 100 * (1 - value / highest)
        corners += [(100 * (edge - edges[0]) / width, y) for edge in (left, right)]
    path = "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in corners)
    return path + "L100 100L0 100Z" if close else path


def _end_text(label: str, x: float, y: float, class_: str = "tick strong") -> Markup:
    anchor = "start" if x < EDGE else "end" if x > 1 - EDGE else "middle"
    return text(label, x, y, class_, anchor)


def _short(value: float) -> str:
    return "0" if abs(value) < 1e-12 else f"{value:.3g}"
