"""The table on the terminal after a vertical audit."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from lightleak.core.results import VerticalRow, read_row
from lightleak.report.compare import by_key, differing, fixed
from lightleak.report.format import interval, points
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.vertical_groups import FIXED, PASSIVE, VerticalGroup, chosen, compare
from lightleak.report.kinds.vertical_words import setting_words

LEARNED_COLUMNS = {"own": 4, "MAE": 4, "learned": 7, "95% interval": 14, "rows": 6}
NUMBER_COLUMNS = {"true": 5, "found": 5, "MAE": 4, "95% interval": 12, "n": 2, "AUC": 4}
ROOM = 36
"""Characters for property and attack together: with the numbers and a blank between columns 78 of 80."""

LONGEST_ATTACK = 16
"""A longer name goes on in the next line, as a property does that needs more than the rest of `ROOM`."""


def print_vertical_summary(results: Mapping[str, Any], console: Console) -> None:
    """One line per property, adversary and attack, means over seeds; it fits a terminal of 80 columns.

    ``true`` and ``found`` are shares in percent, ``MAE`` is the mean absolute error in points with the 95% interval of
    that mean over ``n`` seeds. What all lines share is said above them; other settings have a heading each. Below the
    lines of a setting stands what was learned from the exchange, by the attack chosen on other seeds.

    Args:
        results: content of ``results.json``.
        console: where to print.
    """
    rows = results["rows"]
    read = (read_row(row, f"results.json, row {i}") for i, row in enumerate(rows))
    groups = compare(row for row in read if isinstance(row, VerticalRow))
    if not groups:
        console.print("nothing is finished yet")
        return
    told = differing((group.first for group in groups), FIXED)
    shared = setting_words(groups[0], [name for name in FIXED if name not in told])
    _say(console, "; ".join([", ".join(shared), "true and found: share in %, MAE: mean error in points"]).lstrip("; "))
    for here in by_key(groups, lambda group: fixed(group.first, FIXED)).values():
        if told:
            _say(console, "")
            _say(console, ", ".join(setting_words(here[0], told)))
        console.print(_grid(NUMBER_COLUMNS, [_cells(group) for group in _ordered(here)]), highlight=False)
        _print_learned(here, console)


def _say(console: Console, words: str) -> None:
    console.print(words, soft_wrap=True, highlight=False, markup=False)


def _ordered(groups: Iterable[VerticalGroup]) -> list[VerticalGroup]:
    return sorted(groups, key=lambda group: group.place[1:])


def _print_learned(groups: Sequence[VerticalGroup], console: Console) -> None:
    """What each adversary learned of each property, beside its own columns alone; nothing where there is no null."""
    best = list(chosen(groups).values())
    if not any(group.learned() for group in best):
        return
    _say(
        console,
        "learned from the exchange: points closer than own columns alone, by the attack chosen on other seeds; the "
        "intervals hold for all lines at once; rows: random sample that is worth as much",
    )
    console.print(
        _grid(LEARNED_COLUMNS, [_learned_cells(group, len(best)) for group in _ordered(best)]), highlight=False
    )


def _learned_cells(group: VerticalGroup, places: int) -> list[str]:
    learned, worth = group.learned(places), group.worth()
    return [
        *group.place[1:],
        group.attack,
        _percent(group.own_error),
        _percent(group.error),
        "-" if learned is None else points(learned.mean).replace("−", "-"),
        "-" if learned is None else interval(learned, -1.0).replace("–", "-").replace("−", "-"),
        "-" if worth is None else "any" if math.isinf(worth.rows) else f"{worth.rows:.0f}",
    ]


def _grid(columns: Mapping[str, int], lines: Sequence[Sequence[str]]) -> Grid:
    grid = Grid(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    attack = min(max(len("attack"), *(len(cells[2]) for cells in lines)), LONGEST_ATTACK)
    for name, width in (("property", ROOM - attack), ("by", 2), ("attack", attack)):
        grid.add_column(name, max_width=width, overflow="fold")
    for name, width in columns.items():
        grid.add_column(name, min_width=width, justify="right", no_wrap=True)
    for cells in lines:
        grid.add_row(*map(Text, cells))  # brackets in a user's names are no markup
    return grid


def _cells(group: VerticalGroup) -> list[str]:
    variant = "" if group.first.variant == PASSIVE else group.first.variant
    auc = group.mean("auc")
    return [
        *group.place[1:],
        " ".join(part for part in (group.attack, variant, group.variant) if part),
        _percent(group.mean("true_fraction")),
        _percent(group.mean("estimated")),
        _percent(group.error),
        interval(group.error).replace("–", "-"),
        str(len(group.rows)),
        "-" if auc is None else f"{auc.mean:.3f}".removeprefix("0"),
    ]


def _percent(value: Estimate | None) -> str:
    return "-" if value is None else f"{100 * value.mean:.1f}"
