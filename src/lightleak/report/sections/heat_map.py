"""A table of shares whose cells are the deeper colored, the higher the share."""

from collections.abc import Mapping, Sequence

from lightleak.report.blocks import Cell, Line, Table
from lightleak.report.format import DASH
from lightleak.report.page import cells_table, line_of

HEAT_BOUNDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Where the shade changes: the color says which, the printed number says how much."""

HeatLine = tuple[str, Mapping[str, float], float | None]
"""Heading of a line, its shares by column, and their mean."""


def heat_map(label: str, heading: str, columns: Mapping[str, str], lines: Sequence[HeatLine], foot: HeatLine) -> Table:
    """Draw shares by line and column.

    Args:
        label: what it lists, for screen readers.
        heading: of the first column.
        columns: headings by name, in their order.
        lines: the shares.
        foot: a last line about all of them.
    """

    def drawn(line: HeatLine, css: str = "") -> Line:
        title, shares, mean = line
        return line_of(title, *(_cell(shares.get(name)) for name in columns), _cell(mean), css=css)

    groups = [("", [drawn(line) for line in lines]), ("", [drawn(foot, "foot")])]
    return cells_table(label, (heading, *columns.values(), "mean"), groups, box="heat-map")


def shade(score: float | None) -> int:
    """Step of color of a share, from 0 to `len(HEAT_BOUNDS)`.

    >>> shade(0.42), shade(0.9), shade(1.0), shade(None)
    (0, 5, 6, 0)
    """
    return sum(score >= bound for bound in HEAT_BOUNDS) if score is not None else 0


def _cell(score: float | None) -> Cell:
    return Cell(DASH if score is None else f"{100 * score:.1f}", css=f"heat heat{shade(score)}")
