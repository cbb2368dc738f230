"""What the first sections of all kinds share: cells of their tables, and what holds of every figure."""

from lightleak.report.format import interval, joined, of_hundred, points, sign_of
from lightleak.report.intervals import Estimate
from lightleak.report.page import Cell

MOST_LINES = 5
"""Lines of the table; with more, only the worst of each group is shown, so that the summary stays one sheet."""

MOST_RUNS = 2
"""Runs that are compared with the first one here, for the same reason."""

INTERVAL = (
    "“95% interval”: a range made so that, measured again and again, 95 of 100 such ranges contain the true average. "
    "The narrower, the surer the figure. A “point” is one in a hundred."
)
NO_PROOF = "A low figure is no proof of safety. It covers the attacks that were tried; another may get more."
THIS_ALONE = "The figures hold for this table, this model and these settings, not for another training."


def share_cell(value: Estimate | None, change: Estimate | None = None) -> Cell:
    """A share of a hundred with its interval, and what became of it.

    >>> share_cell(Estimate(0.5, 8, 0.4, 0.6), Estimate(-0.2, 8, -0.3, -0.1)).small
    ('40.0 to 60.0', '▼ −20.0 (−30.0 to −10.0)')
    """
    spread = interval(value) if value and value.has_interval else ""
    return Cell(of_hundred(value), tuple(filter(None, (spread, _change(change)))))


def points_cell(value: Estimate | None) -> Cell:
    """A difference in points with its interval."""
    return Cell(points(value), (interval(value, -1.0),) if value and value.has_interval else ())


def _change(value: Estimate | None) -> str:
    if value is None:
        return ""
    return joined(sign_of(value), points(value), f"({interval(value, -1.0)})" if value.has_interval else "", by=" ")
