"""The frontier as a table on the terminal."""

from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from lightleak.report.frontier.comparison import compare
from lightleak.report.frontier.result import parse_result
from lightleak.report.frontier.table import Row, table_rows
from lightleak.report.wording import interval, percent, points


def print_frontier(results: dict[str, Any], console: Console) -> None:
    """A line per point, with 95% intervals in brackets, for a terminal of 80 columns."""
    frontiers = compare(parse_result(row, "", f"row {i}") for i, row in enumerate(results["rows"]))
    if not frontiers:
        console.print("nothing is finished yet")
        return
    told = "cells: share that an attack recovers; leak: cells minus guessing, in points; *: Pareto-best"
    console.print(told, soft_wrap=True, highlight=False)
    for frontier in frontiers:
        grid = Grid(box=None, padding=(0, 1, 0, 0), header_style="bold")
        for name in ("", "defence", "epsilon", "accuracy", "cells", "leak"):
            grid.add_column(name, justify="left" if name in ("", "defence") else "right", no_wrap=True)
        for row in table_rows(frontier):
            grid.add_row(*_cells(row))
        console.print(grid, highlight=False)


def _cells(row: Row) -> list[str]:
    accuracy, cells, leakage = row.point.accuracy, row.point.cells, row.point.leakage
    return [
        "*" if row.is_best else "",
        f"{row.title} {row.point.strength.value:g}" if row.point.strength.value is not None else row.title,
        row.epsilon,
        f"{percent(accuracy.mean)} ({interval(accuracy)})" if accuracy else "–",
        f"{percent(cells.mean)} ({interval(cells)})" if cells else "–",
        points(leakage.mean) if leakage else "–",
    ]
