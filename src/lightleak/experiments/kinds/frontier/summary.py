"""The frontier as a table on the terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

from lightleak.experiments.terminal import Column, Lines
from lightleak.report.budget import budget
from lightleak.report.format import DASH, percent, points
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.frontier_points import Frontier, Point, compare_raw, guarantee

COLUMNS = (
    Column("", is_number=False),
    Column("defense", is_number=False),
    *(Column(name) for name in ("epsilon", "accuracy", "cells", "leak")),
)


def frontier_tables(results: Mapping[str, Any]) -> Iterator[Lines]:
    """A line per point, with half the width of 95% intervals."""
    frontiers = compare_raw(results["rows"])
    if not frontiers:
        return
    spent = budget(one for frontier in frontiers for point in frontier.points for one in point.rows)
    said = [
        "epsilon: of the training / of one update whose batch is known; cells: share that an attack recovers; leak: "
        f"cells minus guessing, in points; *: Pareto-best. {spent.sentence}"
    ]
    for frontier in frontiers:
        yield Lines(said, COLUMNS, [_cells(frontier, point) for point in frontier.points])
        said = []


def _cells(frontier: Frontier, point: Point) -> list[str]:
    standing, epsilon = frontier.standing(point), point.granted("epsilon")
    return [
        "*" if standing is not None and standing.is_best else "",
        point.name,
        DASH if epsilon is None else f"{guarantee(epsilon)} / {guarantee(point.granted('release_epsilon'))}",
        _with_half_width(point.accuracy),
        _with_half_width(point.cells),
        points(point.leakage),
    ]


def _with_half_width(value: Estimate | None) -> str:
    """A share and half the width of its interval in points.

    >>> _with_half_width(Estimate(0.729, 5, 0.72, 0.738)), _with_half_width(Estimate(0.5)), _with_half_width(None)
    ('72.9% ± 0.9', '50.0%', '–')
    """
    if value is None:
        return "–"
    half = "" if value.low is None or value.high is None else f" ± {50 * (value.high - value.low):.1f}"
    return percent(value.mean) + half
