"""The frontier as a table on the terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

from lightleak.experiments.terminal import Column, Lines
from lightleak.report.budget import budget
from lightleak.report.estimate import Estimate
from lightleak.report.frontier.comparison import compare
from lightleak.report.frontier.result import parse_result
from lightleak.report.frontier.table import Row, table_rows
from lightleak.report.frontier.wording import short_name
from lightleak.report.wording import percent, points

COLUMNS = (
    Column("", is_number=False),
    Column("defense", is_number=False),
    *(Column(name) for name in ("epsilon", "accuracy", "cells", "leak")),
)


def frontier_tables(results: Mapping[str, Any]) -> Iterator[Lines]:
    """A line per point, with half the width of 95% intervals."""
    frontiers = compare(parse_result(row, "", f"row {i}") for i, row in enumerate(results["rows"]))
    if not frontiers:
        return
    spent = budget(one for frontier in frontiers for point in frontier.points for one in point.results)
    said = [
        "epsilon: of the training / of one update whose batch is known; cells: share that an attack recovers; leak: "
        f"cells minus guessing, in points; *: Pareto-best. {spent.sentence}"
    ]
    for frontier in frontiers:
        yield Lines(said, COLUMNS, [_cells(row) for row in table_rows(frontier)])
        said = []


def _cells(row: Row) -> list[str]:
    leakage = row.point.leakage
    return [
        "*" if row.is_best else "",
        short_name(row.point.strength),
        row.epsilon if row.point.epsilon is None else f"{row.epsilon} / {row.release_epsilon}",
        _with_half_width(row.point.accuracy),
        _with_half_width(row.point.cells),
        points(leakage.mean) if leakage else "–",
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
