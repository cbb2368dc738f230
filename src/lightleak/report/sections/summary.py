"""What the summaries of all kinds share: cells with intervals, and how much they show."""

from collections.abc import Callable

from lightleak.report.format import interval, lowest, percent, points, sign_of, with_interval
from lightleak.report.intervals import Estimate
from lightleak.report.page import Cell

MOST_LINES = 5
"""Lines of the table; with more, only the worst of each group is shown, so that the summary stays one sheet."""

MOST_RUNS = 2
"""Runs that are compared with the first one here, for the same reason."""


def interval_cell(
    value: Estimate | None, said: Callable[[Estimate | None], str] = percent, change: Estimate | None = None
) -> Cell:
    """A share, or a difference in points, with its interval, and what a defense changes in it.

    >>> interval_cell(Estimate(0.5, 8, 0.4, 0.6), change=Estimate(-0.2, 8, -0.3, -0.1)).small
    ('40.0 to 60.0', '▼ −20.0 (−30.0 to −10.0)')
    """
    ends = interval(value, lowest(said)) if value and value.has_interval else ""
    changed = f"{sign_of(change)} {with_interval(change, points)}" if change else ""
    return Cell(said(value), tuple(filter(None, (ends, changed))))
