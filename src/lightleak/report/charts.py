"""Charts of audits of updates, and the looks that all reports share: bars, lines, pairs of marks, and estimates."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lightleak.report.blocks import Figure, Legend
from lightleak.report.format import in_brackets, percent
from lightleak.report.intervals import Estimate
from lightleak.report.plot.axis import Axis, axis
from lightleak.report.plot.chart import Bars, Line, Mark, Plot, Points, Row, Rule, draw
from lightleak.report.plot.chart import Style as Style

SHARES = axis([0, 1], ends="round", percent=True)
"""From 0% to 100%."""

DODGE = 4
"""Pixels between the intervals of neighboring series at the same x."""

JITTER = 9.0
"""Pixels over which the single values of one row are spread, so that equal ones stay apart."""

SHAPES = ("circle", "square", "triangle", "diamond", "wedge", "cross")
COLOURS = 6
"""Colors of the style sheet (Okabe and Ito, without yellow and black); with six shapes 6 series differ twice over."""

BASELINE_STYLE = Style("baseline", "diamond")
VALIDATION_STYLE = Style("validation", "bar")
START_STYLE, END_STYLE = Style("from", "diamond"), Style("to", "circle")


def series_style(index: int) -> Style:
    """Color and shape of the ``index``-th attack.

    >>> series_style(0), series_style(7)
    (Style(css='s0', shape='circle'), Style(css='s1', shape='triangle'))
    """
    return Style(f"s{index % COLOURS}", SHAPES[(index + index // COLOURS) % len(SHAPES)])


@dataclass(frozen=True)
class Series:
    """One line: points as (x, value), from left to right."""

    label: str
    points: tuple[tuple[float, Estimate], ...]
    style: Style


@dataclass(frozen=True)
class Pair:
    """One row of two values: ``start`` is drawn hollow and ``end`` filled; ``note`` stands at the right."""

    label: str
    start: float | None
    end: float
    note: str = ""


@dataclass(frozen=True)
class EstimateRow:
    """One row of a chart, such as an attack: a value with its interval, and the single estimates behind it.

    Attributes:
        label: what it is.
        value: the value with the interval to draw.
        style: color and shape.
        singles: single estimates with their text on hover.
        note: text at the right.
        heading: line of text above this row; empty for none.
    """

    label: str
    value: Estimate
    style: Style
    singles: tuple[tuple[float, str], ...] = ()
    note: str = ""
    heading: str = ""


def bar_figure(
    name: str, bars: Sequence[EstimateRow], baseline: Estimate | None = None, title: str = "", caption: str = ""
) -> Figure:
    """Draw horizontal bars in [0, 1] with intervals; the baseline is a dashed line through all of them."""
    marks = [
        Mark(bar.value.mean, row, bar.style, x_ends=bar.value.ends, label=percent(bar.value.mean))
        for row, bar in enumerate(bars)
    ]
    rules = []
    if baseline is not None:
        label = f"guessing {percent(baseline.mean)}"
        rules.append(Rule(baseline.mean, "guess", label, ends=baseline.ends))
    drawing = draw(Plot(name, SHARES, [Row(bar.label, heading=bar.heading) for bar in bars], [Bars(marks)], rules))
    return Figure(drawing, title, caption, plot="bars")


def line_figure(name: str, series: Sequence[Series], x: Axis, title: str = "", caption: str = "") -> Figure:
    """Draw lines of fractions over x, each point with its interval."""
    layers: list[Line | Points] = []
    for index, one in enumerate(series):
        dx = DODGE * (index - (len(series) - 1) / 2)
        marks = [
            Mark(at, value.mean, one.style, estimate_words(one.label, value), y_ends=value.ends)
            for at, value in one.points
        ]
        line = Line([(at, value.mean) for at, value in one.points], "link", one.style.css, dx=dx)
        layers += [line, Points(marks, dx=dx)]
    legend = Legend([(one.style, one.label) for one in series])
    return Figure(draw(Plot(name, x, SHARES, layers, grid="y", height=250)), title, caption, legend)


def pair_chart(name: str, pairs: Sequence[Pair], start_label: str, end_label: str, stacked: bool = False) -> Markup:
    """Draw rows of two marks in [0, 1] joined by a line; a hollow diamond is the start, a filled circle the end.

    Labels stand at the left and are shortened to what fits on a phone, or in full above each row where ``stacked``.
    """
    layers: list[Line | Points] = []
    for row, pair in enumerate(pairs):
        marks = [Mark(pair.end, row, END_STYLE, f"{pair.label}: {end_label} {percent(pair.end)}")]
        if pair.start is not None:
            marks.insert(0, Mark(pair.start, row, START_STYLE, f"{pair.label}: {start_label} {percent(pair.start)}"))
            layers.append(Line([(pair.start, row), (pair.end, row)], "span"))
        layers.append(Points(marks, css=""))
    rows = [Row(pair.label, pair.note) for pair in pairs]
    return draw(Plot(name, SHARES, rows, layers, labels_beside=not stacked))


def estimate_figure(
    name: str, rows: Sequence[EstimateRow], rules: Sequence[Rule] = (), x: Axis = SHARES, title: str = ""
) -> Figure:
    """Draw rows of estimates with intervals between reference lines; hovering over a mark gives its numbers."""
    layers = []
    for index, row in enumerate(rows):
        step = JITTER / max(len(row.singles) - 1, 1)
        first = -JITTER / 2 if len(row.singles) > 1 else 0.0
        single = Style(row.style.css, "dot")
        dots = [Mark(at, index, single, said, shift=first + step * i) for i, (at, said) in enumerate(row.singles)]
        mark = Mark(row.value.mean, index, row.style, estimate_words(row.label, row.value), x_ends=row.value.ends)
        layers += [Points(dots, css="seed"), Points([mark], css="", interval="spread")]
    drawing = draw(Plot(name, x, [Row(row.label, row.note, row.heading) for row in rows], layers, rules))
    return Figure(drawing, title, plot="bars")


def estimate_words(label: str, value: Estimate) -> str:
    """The text on hover over an estimate."""
    return f"{label}: {percent(value)}{in_brackets(value, words='95% interval')}"


def share_axis(values: Iterable[float | None], title: str = "") -> Axis:
    """The axis of shares with round ends, which stays within 0% and 100%; unknown values are ignored."""
    known = [min(max(value, 0.0), 1.0) for value in values if value is not None]
    return axis(known, ends="round", percent=not title, title=title)


def spaced_axis(ticks: Sequence[tuple[float, str]], title: str, margin: float = 0.05) -> Axis:
    """Return an axis of given ticks, to scale, with a margin at both ends; a single tick stands in the middle.

    >>> found = spaced_axis([(0, "0"), (5, "5"), (10, "10")], "epoch", margin=0.1)
    >>> [round(found.at(value), 6) for value, _ in found.ticks]
    [0.1, 0.5, 0.9]
    """
    low, high = min(ticks)[0], max(ticks)[0]
    room = margin * (high - low) / (1 - 2 * margin) or 1.0
    return Axis(low - room, high + room, tuple(ticks), title=title)
