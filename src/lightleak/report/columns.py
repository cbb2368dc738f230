"""Which columns leak most."""

from dataclasses import dataclass

from markupsafe import Markup

from lightleak.report.charts import Pair, pair_chart
from lightleak.report.comparison import Group
from lightleak.report.wording import points

MOST_NAMED = 3
MOST_DRAWN = 60
"""Rows of the chart; a table of thousands of columns keeps those that leak most."""


@dataclass(frozen=True)
class ColumnLeakage:
    """Leakage per column of one attack.

    Attributes:
        group: attack and setting.
        pairs: columns, most leakage first; start is the baseline's accuracy (None without one), end the attack's.
        drawing: the chart of the first `MOST_DRAWN` of them.
        guessed: whether the baseline's accuracy by column is known.
        most: names of the columns that leak most over guessing; empty where none leaks more than guessing.
    """

    group: Group
    pairs: tuple[Pair, ...]
    drawing: Markup
    guessed: bool
    most: tuple[str, ...]


def column_leakage(group: Group) -> ColumnLeakage | None:
    """Accuracy of each column beside guessing; None where the rows carry no accuracy by column."""
    reached = group.column_accuracy
    if not reached:
        return None
    guessed = group.baseline.column_accuracy if group.baseline else {}

    def gain(name: str) -> float:
        return reached[name] - guessed.get(name, 0.0)

    names = sorted(reached, key=gain, reverse=True)
    pairs = tuple(
        Pair(name, guessed.get(name), reached[name], points(gain(name)) if name in guessed else "") for name in names
    )
    name = f"Share of right cells in each of {len(pairs)} columns, guessed and recovered; most leakage first"
    drawing = pair_chart(name, pairs[:MOST_DRAWN], "guessing", "recovered")
    most = tuple(name for name in names[:MOST_NAMED] if name in guessed and gain(name) > 0)
    return ColumnLeakage(group, pairs, drawing, bool(guessed), most)
