"""The charts of a vertical report: estimated shares, two densities, and error against AUC."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lightleak.report.charts import EstimateRow as IntervalRow
from lightleak.report.charts import ends_of, estimate_chart
from lightleak.report.estimate import Estimate
from lightleak.report.plot.axis import axis
from lightleak.report.plot.chart import Line, Mark, Plot, Points, Rule, Style, draw, stairs
from lightleak.report.vertical.wording import off_by
from lightleak.report.wording import percent

__all__ = ["IntervalRow", "Trace", "density_chart", "interval_chart", "scatter_chart"]


@dataclass(frozen=True)
class Trace:
    """One defense at several strengths: points as (label, AUC, error), joined in their order."""

    label: str
    points: tuple[tuple[str, Estimate, Estimate], ...]
    style: Style


def interval_chart(name: str, rows: Sequence[IntervalRow], true: tuple[float, float, float] | None) -> Markup:
    """Rows of estimated shares with intervals, along an axis that covers only the range they lie in.

    ``true`` is the mean true share and the smallest and the largest of a seed: a solid line in a band.
    """
    ends = [end for row in rows for end in (row.value.mean, row.value.low, row.value.high)]
    ends += [value for row in rows for value, _ in row.singles] + list(true or ())
    x = axis([min(max(end, 0.0), 1.0) for end in ends if end is not None], ends="round", percent=True)
    rules = []
    if true is not None:
        rules.append(Rule(true[0], "truth", f"true {percent(true[0])}", ends=true[1:]))
    return estimate_chart(name, rows, rules, x)


def density_chart(name: str, edges: Sequence[float], having: Sequence[float], lacking: Sequence[float]) -> Markup:
    """Two step densities over the same edges: with the property as a filled outline, without it dashed."""
    outlines = [_outline(edges, values) for values in (having, lacking)]
    x = axis([edges[0], edges[-1]], ends="exact")
    y = axis([0.0, max(*having, *lacking) or 1.0], ends="exact")
    layers = [
        Line([(edges[0], 0.0), *outlines[0], (edges[-1], 0.0)], "fill", is_area=True),
        Line(outlines[0], "having"),
        Line(outlines[1], "lacking"),
    ]
    return draw(Plot(name, x, y, layers, height=110, grid="", room=30))


def scatter_chart(name: str, traces: Sequence[Trace], own: float | None) -> Markup:
    """The attacker's error in points (upwards) against the AUC (rightwards), with intervals.

    ``own``, the error of an adversary that uses only its own columns, is a dashed line.
    """
    points = [(auc, error) for trace in traces for _, auc, error in trace.points]
    highest = max([end for _, error in points for end in (error.mean, error.high) if end is not None] + [own or 0.0])
    aucs = [end for auc, _ in points for end in (auc.mean, auc.low, auc.high) if end is not None]
    x = axis([min(max(end, 0.0), 1.0) for end in aucs], ends="round", title="AUC of the model")
    y = axis([0.0, 100 * min(highest, 1.0)], ends="round")
    layers: list[Line | Points] = []
    for trace in traces:
        marks = [_scatter_mark(trace, *point) for point in trace.points]
        layers += [Line([(mark.x, mark.y or 0.0) for mark in marks], "link", trace.style.css), Points(marks)]
    rules = [] if own is None else [Rule(100 * own, "guess faint", "own", along="y")]
    return draw(Plot(name, x, y, layers, rules, height=240, grid="y"))


def _scatter_mark(trace: Trace, label: str, auc: Estimate, error: Estimate) -> Mark:
    hover = f"{trace.label} {label}".strip() + f": {off_by(error.mean)} points off, AUC {auc.mean:.3f}"
    low, high = (None if end is None else 100 * end for end in ends_of(error))
    return Mark(auc.mean, 100 * error.mean, trace.style, hover, ends_of(auc), (low, high), label)


def _outline(edges: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    """The step curve of a histogram."""
    return stairs([*zip(edges, values, strict=False), (edges[-1], values[-1])])[:-1]
