"""The three charts of a report: bars with intervals, lines with intervals, and pairs of marks."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lightleak.report.estimate import Estimate
from lightleak.report.svg import chart, element, line, mark, text
from lightleak.report.wording import interval, percent

LINE_HEIGHT = 260
BAR_ROW = 50
PAIR_ROW = 27
STACKED_ROW = 46
LONGEST_LABEL = 20
"""Characters that fit beside a plot on a phone; the whole label shows on hover."""

PERCENT_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
DODGE = 4
"""Pixels between the intervals of neighbouring series at the same x."""

SHAPES = ("circle", "square", "triangle", "diamond", "wedge", "cross")
COLOURS = 6
"""Colours of the style sheet (Okabe and Ito, without yellow and black); with six shapes 6 series differ twice over."""


@dataclass(frozen=True)
class Style:
    """How a series looks: a class of the style sheet and a shape."""

    css: str
    shape: str


BASELINE_STYLE = Style("baseline", "diamond")
VALIDATION_STYLE = Style("validation", "bar")


def series_style(index: int) -> Style:
    """Colour and shape of the ``index``-th attack.

    >>> series_style(0), series_style(7)
    (Style(css='s0', shape='circle'), Style(css='s1', shape='triangle'))
    """
    return Style(f"s{index % COLOURS}", SHAPES[(index + index // COLOURS) % len(SHAPES)])


@dataclass(frozen=True)
class Bar:
    """One bar: its label, its value with interval, and its look."""

    label: str
    value: Estimate
    style: Style


@dataclass(frozen=True)
class Series:
    """One line: points as (position along x in [0, 1], value), from left to right."""

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


def bar_chart(name: str, bars: Sequence[Bar], baseline: Estimate | None) -> Markup:
    """Horizontal bars in [0, 1] with intervals; the baseline is a dashed line through all of them."""
    top, bottom = 22, 28 + BAR_ROW * len(bars)
    shapes = _vertical_grid(top, bottom)
    if baseline is not None:
        if baseline.low is not None and baseline.high is not None:
            shapes.append(_rectangle(baseline.low, baseline.high, top, bottom - top, "band"))
        shapes.append(line(baseline.mean, top, baseline.mean, bottom, "guess"))
        shapes.append(text(f"guessing {percent(baseline.mean)}", baseline.mean, top - 8, "tick strong"))
    for index, bar in enumerate(bars):
        middle = top + BAR_ROW * index + 36
        shapes.append(text(bar.label, 0, middle - 15, "label", "start"))
        shapes.append(_rectangle(0, bar.value.mean, middle - 9, 18, f"bar {bar.style.css}"))
        end = bar.value.mean
        if bar.value.low is not None and bar.value.high is not None:
            end = bar.value.high
            shapes += [
                line(bar.value.low, middle, bar.value.high, middle, "whisker"),
                line(bar.value.low, middle - 5, bar.value.low, middle + 5, "whisker"),
                line(bar.value.high, middle - 5, bar.value.high, middle + 5, "whisker"),
            ]
        shapes.append(text(percent(bar.value.mean), end, middle + 5, "value", "start", dx=8))
    return chart(name, bottom + 26, *shapes)


def line_chart(name: str, series: Sequence[Series], ticks: Sequence[tuple[float, str]], x_title: str) -> Markup:
    """Lines of fractions over positions along x, each point with its interval; ``ticks`` are (position, label)."""
    shapes = []
    for value in PERCENT_TICKS:
        shapes.append(line(0, _height(value), 1, _height(value), "grid"))
        shapes.append(text(f"{value:.0%}", 0, _height(value) + 4, anchor="end", dx=-8))
    for position, label in ticks:
        shapes.append(text(label, position, LINE_HEIGHT + 20))
    shapes.append(text(x_title, 0.5, LINE_HEIGHT + 42, "axis"))
    for index, one in enumerate(series):
        offset = DODGE * (index - (len(series) - 1) / 2)
        drawn = [
            line(x1, _height(a.mean), x2, _height(b.mean), "link")
            for (x1, a), (x2, b) in zip(one.points, one.points[1:], strict=False)
        ]
        drawn += [_point(one, x, value) for x, value in one.points]
        shapes.append(element("g", *drawn, class_=one.style.css, transform=f"translate({offset:g} 0)"))
    return chart(name, LINE_HEIGHT + 50, *shapes)


def pair_chart(name: str, pairs: Sequence[Pair], start_label: str, end_label: str, stacked: bool = False) -> Markup:
    """Rows of two marks in [0, 1] joined by a line; the hollow diamond is the start, the filled circle the end.

    Labels stand at the left and are shortened to what fits a phone, or whole above each row where ``stacked``.
    """
    height = STACKED_ROW if stacked else PAIR_ROW
    bottom = height * len(pairs) + 8
    shapes = _vertical_grid(4, bottom)
    for index, pair in enumerate(pairs):
        y = height * (index + 1) - 8
        shapes.append(text(pair.label, 0, y - 14, "label", "start") if stacked else _label(pair.label, y))
        if pair.start is not None:
            shapes.append(line(pair.start, y, pair.end, y, "span"))
            shapes.append(mark("diamond", pair.start, y, "from", f"{pair.label}: {start_label} {percent(pair.start)}"))
        shapes.append(mark("circle", pair.end, y, "to", f"{pair.label}: {end_label} {percent(pair.end)}"))
        shapes.append(text(pair.note, 1, y + 4, "value", "start", dx=12))
    return chart(name, bottom + 26, *shapes)


def legend_mark(style: Style) -> Markup:
    """The mark of a series for a legend beside the chart."""
    return element(
        "svg", mark(style.shape, 0.5, 8, ""), class_=f"key {style.css}", width=16, height=16, aria_hidden="true"
    )


def spread(values: Sequence[float], margin: float = 0.05) -> list[float]:
    """Positions of numbers along x, to scale, with a margin at both sides; a single number stands in the middle.

    >>> spread([0, 5, 10], margin=0.1)
    [0.1, 0.5, 0.9]
    """
    low, high = min(values), max(values)
    if low == high:
        return [0.5 for _ in values]
    return [margin + (1 - 2 * margin) * (value - low) / (high - low) for value in values]


def _height(fraction: float) -> float:
    return 10 + (LINE_HEIGHT - 10) * (1 - min(max(fraction, 0.0), 1.0))


def _point(series: Series, x: float, value: Estimate) -> Markup:
    y = _height(value.mean)
    whisker = []
    if value.low is not None and value.high is not None:
        ends = [round(_height(end) - y, 1) for end in (value.high, value.low)]
        whisker = [element("line", x1=0, y1=ends[0], x2=0, y2=ends[1], class_="whisker")]
    hover = f"{series.label}: {percent(value.mean)}"
    hover += f" (95% interval {interval(value)})" if value.has_interval else ""
    return mark(series.style.shape, x, y, "point", hover, whisker)


def _vertical_grid(top: float, bottom: float) -> list[Markup]:
    lines = [line(value, top, value, bottom, "grid") for value in PERCENT_TICKS]
    return lines + [text(f"{value:.0%}", value, bottom + 18) for value in PERCENT_TICKS]


def _rectangle(left: float, right: float, y: float, height: float, class_: str) -> Markup:
    left, right = (min(max(end, 0.0), 1.0) for end in (left, right))
    width = f"{100 * (right - left):.2f}%"
    return element("rect", x=f"{100 * left:.2f}%", y=round(y, 1), width=width, height=round(height, 1), class_=class_)


def _label(label: str, y: float) -> Markup:
    short = label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + "…"
    return element("text", short, element("title", label), x=-12, y=round(y + 4, 1), class_="label", text_anchor="end")
