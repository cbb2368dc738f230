"""Pairs of rows that are most alike, a real one and a made-up one, side by side."""

from collections.abc import Sequence
from typing import Any

from lightleak.report.blocks import Cell, Line, Lines, Table
from lightleak.report.format import DASH, distance
from lightleak.report.kinds.released_entries import Nearest, is_missing
from lightleak.report.page import fill


def columns_of(pairs: Sequence[Nearest]) -> tuple[list[str], list[str]]:
    """Columns in which some pair does not agree, and those in which every pair does."""
    names = dict.fromkeys(name for pair in pairs for row in (pair.private, pair.reconstructed) for name in row)
    same = [name for name in names if all(pair.agrees(name) for pair in pairs)]
    return [name for name in names if name not in same], same


def pairs_table(label: str, heading: str, pairs: Sequence[Nearest], columns: Sequence[str]) -> Table:
    """Draw each pair in two lines; numbers show their difference, categories whether they agree."""
    groups = []
    for pair in pairs:
        real = (Cell(value_words(pair.private.get(name)) or DASH, css="long") for name in columns)
        made = (Cell(_made(pair, name), css="long") for name in columns)
        lines = (
            Line((Cell(fill("inversion", "pair", pair.class_name)), *real, Cell("")), "true"),
            Line((Cell("made up"), *made, Cell(distance(pair.distance)))),
        )
        groups.append(Lines(lines))
    return Table(label, (heading, *columns, "distance"), tuple(groups), box="rows")


def value_words(value: Any) -> str | None:
    """A value as text; None where it is missing or no finite number.

    >>> value_words(20.5), value_words(-3), value_words("A"), value_words(float("nan"))
    ('20.5', '−3', 'A', None)
    """
    if is_missing(value):
        return None
    return f"{value:.6g}".replace("-", "−") if isinstance(value, int | float) else str(value)


def _made(pair: Nearest, column: str) -> str:
    real, made, words = (
        pair.private.get(column),
        pair.reconstructed.get(column),
        value_words(pair.reconstructed.get(column)),
    )
    if words is None:
        return DASH
    agrees = pair.agrees(column)
    tone = ("hit", 2, "✓", "equal") if agrees else ("miss", 2, "✗", "another category")
    if agrees is None:
        tone = ("unknown", 0, "?", "not comparable")
    change = ""
    if agrees is False and isinstance(real, int | float) and isinstance(made, int | float):
        tone, change = ("unknown", 1, "", ""), f"{made - real:+.3g}".replace("-", "−")
    return fill("inversion", "value", *tone, words, change)
