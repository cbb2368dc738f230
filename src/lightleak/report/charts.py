"""Charts that several kinds of report share, and their looks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from lightleak.report.blocks import Block, Figure, Legend
from lightleak.report.format import in_brackets, percent, points
from lightleak.report.intervals import Estimate
from lightleak.report.plot.axis import Axis, axis
from lightleak.report.plot.chart import Line, Mark, Plot, Points, Row, Rule
from lightleak.report.plot.chart import Style as Style
from lightleak.report.plot.svg import draw

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

MOST_DRAWN = 60
"""Lines that `pairs_by_name` draws; of thousands of columns it keeps those with the largest difference."""

MOST_NAMED = 3
"""Names that `most_gained` returns for a sentence."""

STRETCHES = 200
"""Segments of a curve that `curve_chart` draws as one point each: about what a screen can show."""


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
    """One row of two values: ``start`` is drawn hollow and ``end`` filled; their difference stands at the right."""

    label: str
    start: float | None
    end: float


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
    rules = [Rule(baseline.mean, "guess", f"guessing {percent(baseline)}", ends=baseline.ends)] if baseline else []
    rows = [Row(bar.label, heading=bar.heading) for bar in bars]
    drawing = draw(Plot(name, SHARES, rows, [Points(marks, as_bars=True)], rules))
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
    rows = [Row(pair.label, "" if pair.start is None else points(pair.end - pair.start)) for pair in pairs]
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


def pair_legend(start: str, end: str) -> Legend:
    """Name the two marks of each line."""
    return Legend([(START_STYLE, start), (END_STYLE, end), ("", "right: difference in points")])


def gains(reached: Mapping[str, float], reference: Mapping[str, float]) -> dict[str, float | None]:
    """Difference to the reference by name, the largest first; without a reference the highest value first.

    >>> gains({"age": 0.5, "sex": 0.9}, {"age": 0.1, "sex": 0.8})
    {'age': 0.4, 'sex': 0.09999999999999998}
    """
    names = sorted(reached, key=lambda name: reached[name] - reference.get(name, 0.0), reverse=True)
    return {name: reached[name] - reference[name] if name in reference else None for name in names}


def most_gained(reached: Mapping[str, float], reference: Mapping[str, float]) -> list[str]:
    """Return the names that a sentence mentions: those with the largest positive differences to the reference.

    >>> most_gained({"age": 0.9, "gene 1, expr": 0.8, "sex": 0.5}, {"age": 0.1, "gene 1, expr": 0.5, "sex": 0.5})
    ['age', '“gene 1, expr”']
    """
    named = [name for name, gain in list(gains(reached, reference).items())[:MOST_NAMED] if gain and gain > 0]
    return [f"“{name}”" if "," in name else name for name in named]


def pairs_by_name(
    label: str, reached: Mapping[str, float], reference: Mapping[str, float], start: str, end: str
) -> tuple[Block, ...]:
    """Draw every name as a line from the reference to what was reached, the largest difference first."""
    pairs = [Pair(name, reference.get(name), reached[name]) for name in gains(reached, reference)]
    drawing = pair_chart(label, pairs[:MOST_DRAWN], start, end)
    legend = (pair_legend(start, end),) if reference else ()
    return (*legend, Figure(drawing, plot="labelled"))


def curve_figure(
    title: str, note: str, of: str, steps: Sequence[float | None], values: Sequence[float | None], logarithmic: bool
) -> Figure | None:
    """One curve over iterations; None where fewer than two of its values are known.

    Args:
        title: name of the loss.
        note: what it says.
        of: whose loss it is, for screen readers.
        steps: iterations; none where they are to be counted.
        values: the losses.
        logarithmic: whether to draw them on a logarithmic axis.
    """
    pairs = zip(steps or range(len(values)), values, strict=False)
    known = [(float(step), value) for step, value in pairs if step is not None and value is not None]
    if len(known) < 2:
        return None
    y = axis([value for _, value in known], "log" if logarithmic else "linear", "round")
    if logarithmic:
        note += "; logarithmic scale" + (", linear around 0" if y.scale == "symlog" else "")
    drawing = curve_chart(f"{title} of {of} by iteration", known, y)
    return Figure(drawing, title, note, plot="curve-plot")


def curve_chart(name: str, places: Sequence[tuple[float, float]], y: Axis) -> Markup:
    """One curve: the mean of each stretch as a line, between its lowest and its highest value as a band.

    Means are taken at the heights of the axis, so that they lie within the band on a logarithmic one too.
    """
    bounds = [round(index * len(places) / STRETCHES) for index in range(STRETCHES + 1)]
    line, low, high = [], [], []
    for some in (places[start:end] for start, end in pairwise(bounds) if end > start):
        at = sum(step for step, _ in some) / len(some)
        heights = sorted(y.at(value) for _, value in some)
        line.append((at, sum(heights) / len(heights)))
        low.append((at, heights[0]))
        high.append((at, heights[-1]))
    layers = [Line([*high, *reversed(low)], "curve-band", is_area=True)] if len(line) < len(places) else []
    layers.append(Line(line, "curve"))
    heights_axis = Axis(0.0, 1.0, tuple((y.at(value), label) for value, label in y.ticks))
    x = axis([step for step, _ in places], ends="exact", whole=True)
    return draw(Plot(name, x, heights_axis, layers, height=120, grid="y"))
