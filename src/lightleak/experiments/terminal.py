"""The table on the terminal after a run of any kind: fits 80 columns, with what its lines share above it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text


@dataclass(frozen=True)
class Column:
    """A column of a table on the terminal.

    Attributes:
        name: its heading.
        is_number: numbers are aligned on the right.
        least: least width.
        most: greatest width, beyond which a text continues on the next line; None never breaks a text.
    """

    name: str
    is_number: bool = True
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True)
class Lines:
    """Lines of one table.

    Attributes:
        said: paragraphs above the table.
        columns: its columns.
        cells: the text of every cell, line by line.
    """

    said: Sequence[str]
    columns: Sequence[Column]
    cells: Sequence[Sequence[str]]


def print_results(tables: Iterable[Lines], results: Mapping[str, Any], console: Console) -> None:
    """Print the tables of a run and the attacks that it left out.

    Args:
        tables: from `lightleak.experiments.kind.Kind.tables`; none where nothing is finished.
        results: content of ``results.json``.
        console: where to print.
    """
    tables = list(tables)
    if not tables:
        console.print("nothing is finished yet")
    for table in tables:
        for words in table.said:
            say(words, console)
        console.print(_grid(table), highlight=False)
    for name, reason in results.get("left_out", {}).items():
        say(f"left out: {name}: {reason}", console)


def say(words: str, console: Console) -> None:
    """Print a text whose brackets and numbers are not markup, and whose lines the terminal breaks."""
    console.print(words, soft_wrap=True, highlight=False, markup=False)


def percent(value: float | None, unit: str = "") -> str:
    """A share in percent; a dash where it is unknown.

    >>> percent(0.1234), percent(0.5, "%"), percent(None)
    ('12.3', '50.0%', '-')
    """
    return "-" if value is None else f"{100 * value:.1f}{unit}"


def mean_of(group: Mapping[str, Any], name: str) -> float | None:
    """The mean of a score in a group of the summary; None where it is unknown."""
    return (group.get(name) or {}).get("mean")


def _grid(table: Lines) -> Grid:
    grid = Grid(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for column in table.columns:
        grid.add_column(
            column.name,
            justify="right" if column.is_number else "left",
            min_width=column.least,
            max_width=column.most,
            no_wrap=column.most is None,
            overflow="ellipsis" if column.most is None else "fold",
        )
    for cells in table.cells:
        grid.add_row(*map(Text, cells))
    return grid
