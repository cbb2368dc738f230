"""Theorem 1's bound on distinguishing accuracy, drawn over the gap of two fractions, with what was measured."""

from collections.abc import Mapping, Sequence

from lightleak.attacks.property_inference.bound import distinguishing_accuracy_bound
from lightleak.report.blocks import Page, Section
from lightleak.report.charts import Series, line_figure, series_style
from lightleak.report.format import counted
from lightleak.report.intervals import Estimate
from lightleak.report.page import fill, render
from lightleak.report.plot.axis import Axis

GAPS = tuple(i / 40 for i in range(1, 21))
RECORDS = (1, 10, 100)
POSTERIOR, PRIOR = 0.6, 0.5
"""An intermediate result that says a little: it moves the probability of the property from 0.5 to at most 0.6."""


def bound_page(measured: Mapping[str, Sequence[tuple[float, Estimate]]]) -> str:
    """Return a page: one line for each number of records, and the measured accuracies by attack.

    Args:
        measured: by name of the attack, (gap between the two fractions, accuracy of telling them apart).
    """
    lines = {
        f"bound, {counted(n, 'record')} seen": [
            (gap, Estimate(distinguishing_accuracy_bound(POSTERIOR, PRIOR, gap, n))) for gap in GAPS
        ]
        for n in RECORDS
    } | {f"measured, {name}": list(points) for name, points in measured.items()}
    series = [Series(name, tuple(lines[name]), series_style(index)) for index, name in enumerate(lines)]
    x = Axis(0.0, max(GAPS), tuple((gap, f"{gap:g}") for gap in (0.1, 0.2, 0.3, 0.4, 0.5)), title="gap")
    drawn = line_figure("Bound on distinguishing accuracy over the gap of two fractions", series, x)
    words = fill("sections", "bound", PRIOR, POSTERIOR)
    section = Section("bound", "Bound and measurements", (words, drawn))
    return render(Page("Theorem 1", "ProVFL", [section], genre="reproduction"))
