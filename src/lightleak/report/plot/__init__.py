"""One way to draw every chart: a `Plot` describes it as data and `draw` makes it self-contained SVG."""

from lightleak.report.plot.axis import Axis, axis, categories
from lightleak.report.plot.chart import (
    MARKS,
    Bars,
    Line,
    Mark,
    Plot,
    Points,
    Row,
    Rule,
    Style,
    draw,
    element,
    legend_key,
    shorten,
    stairs,
)

__all__ = [
    "MARKS",
    "Axis",
    "Bars",
    "Line",
    "Mark",
    "Plot",
    "Points",
    "Row",
    "Rule",
    "Style",
    "axis",
    "categories",
    "draw",
    "element",
    "legend_key",
    "shorten",
    "stairs",
]
