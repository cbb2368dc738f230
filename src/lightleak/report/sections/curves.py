"""Training curves: losses by iteration, one small chart each."""

from collections.abc import Sequence
from itertools import pairwise

from markupsafe import Markup

from lightleak.report.blocks import Figure
from lightleak.report.plot.axis import Axis, axis
from lightleak.report.plot.chart import Line, Plot, draw

STRETCHES = 200
"""Segments of a curve that are drawn as one point each: about what a screen can show."""


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


def curve_chart(name: str, points: Sequence[tuple[float, float]], y: Axis) -> Markup:
    """One curve: the mean of each stretch as a line, between its lowest and its highest value as a band.

    Means are taken at the heights of the axis, so that they lie within the band on a logarithmic one too.
    """
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
    x = axis([step for step, _ in points], ends="exact", whole=True)
    return draw(Plot(name, x, heights_axis, layers, height=120, grid="y"))
