"""Charts as data: marks, lines, reference values and rows; `lightleak.report.plot.svg` draws them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from lightleak.report.plot.axis import Axis

Ends = tuple[float | None, float | None]
"""Lower and upper end of an interval; None where there is no interval."""


@dataclass(frozen=True)
class Style:
    """How a series looks: a class of the style sheet and a shape of `svg.MARKS`."""

    css: str
    shape: str


@dataclass(frozen=True)
class Mark:
    """One value.

    Attributes:
        x: where it stands along the x-axis.
        y: where it stands along the y-axis, or the number of its row; None stands in the foot of the plot.
        style: its color and shape.
        hover: text shown on hover.
        x_ends: interval along x.
        y_ends: interval along y.
        label: text next to the mark, left out where it would cover another mark or label; always shown next to a bar.
        rank: labels of lower rank are placed first.
        is_strong: whether the label is bold.
        ring: class of a ring around the mark; empty for none.
        shift: pixels downwards, which keep equal values of a row apart.
    """

    x: float
    y: float | None
    style: Style
    hover: str = ""
    x_ends: Ends = (None, None)
    y_ends: Ends = (None, None)
    label: str = ""
    rank: int = 0
    is_strong: bool = False
    ring: str = ""
    shift: float = 0.0


@dataclass(frozen=True)
class Points:
    """Marks with their intervals.

    Attributes:
        marks: the values.
        css: class of the marks.
        interval: class of their intervals.
        dx: moves all of them by pixels, to keep series at the same x apart.
        as_bars: whether each is a horizontal bar from the start of its row to its value, with its interval and label.
    """

    marks: Sequence[Mark]
    css: str = "point"
    interval: str = "whisker"
    dx: float = 0.0
    as_bars: bool = False


@dataclass(frozen=True)
class Line:
    """Straight lines through points; ``color`` is the class of a series, ``is_area`` fills what they enclose."""

    points: Sequence[tuple[float, float]]
    css: str
    color: str = ""
    is_area: bool = False
    dx: float = 0.0


@dataclass(frozen=True)
class Rule:
    """A reference value: a line across the plot with a label, in a band where an interval is known.

    ``along`` is the axis that the value belongs to.
    """

    value: float
    css: str
    label: str = ""
    along: str = "x"
    ends: Ends = (None, None)


@dataclass(frozen=True)
class Row:
    """A row of a chart without a y-axis; ``note`` stands at its right and ``heading`` is a line of text above it."""

    label: str
    note: str = ""
    heading: str = ""


@dataclass(frozen=True)
class Plot:
    """A chart.

    Attributes:
        name: what a screen reader says.
        x: horizontal axis.
        y: vertical axis, or rows from top to bottom; None where no mark has a value.
        layers: what is drawn, from back to front.
        rules: reference values, behind the layers.
        height: pixels of a plot with a y-axis; rows have their own height.
        grid: axes with lines across the plot at their ticks.
        labels_beside: whether the labels of rows stand at the left of the plot, shortened, and not above each row.
        foot: label of the strip for marks without a value.
        room: characters that fit below a small plot; 0 where the labels of the x-axis always fit.
    """

    name: str
    x: Axis
    y: Axis | Sequence[Row] | None
    layers: Sequence[Points | Line]
    rules: Sequence[Rule] = ()
    height: float = 260.0
    grid: str = "xy"
    labels_beside: bool = False
    foot: str = ""
    room: int = 0


def stairs(corners: Sequence[tuple[float, float]], across_first: bool = True) -> list[tuple[float, float]]:
    """Points joined by horizontal and vertical lines.

    >>> stairs([(0, 0), (1, 2)]), stairs([(0, 0), (1, 2)], across_first=False)
    ([(0, 0), (1, 0), (1, 2)], [(0, 0), (0, 2), (1, 2)])
    """
    found = list(corners[:1])
    for before, after in pairwise(corners):
        found += [(after[0], before[1]) if across_first else (before[0], after[1]), after]
    return found
