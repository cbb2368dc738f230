"""The table on the terminal after a vertical audit."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from lightleak.report.estimate import Estimate
from lightleak.report.vertical.comparison import Group, compare
from lightleak.report.vertical.result import parse_result
from lightleak.report.vertical.wording import PASSIVE, setting_words, varying
from lightleak.report.wording import interval

PARTS = ("dataset", "target", "epoch", "defense")
NUMBER_COLUMNS = {"true": 5, "found": 5, "MAE": 4, "95% interval": 12, "n": 2, "AUC": 4}
ROOM = 36
"""Characters for property and attack together: with the numbers and a blank between columns 78 of 80."""

LONGEST_ATTACK = 16
"""A longer name goes on in the next line, as a property does that needs more than the rest of `ROOM`."""


def print_vertical_summary(results: Mapping[str, Any], console: Console) -> None:
    """One line per property, adversary and attack, means over seeds; it fits a terminal of 80 columns.

    ``true`` and ``found`` are shares in percent, ``MAE`` is the mean absolute error in points with the 95% interval of
    that mean over ``n`` seeds. What all lines share is said above them; other settings have a heading each.

    Args:
        results: content of ``results.json``.
        console: where to print.
    """
    rows = results["rows"]
    groups = compare(parse_result(row, "", f"results.json, row {i}") for i, row in enumerate(rows))
    if not groups:
        console.print("nothing is finished yet")
        return
    differing = varying(group.setting for group in groups)
    shared = setting_words(groups[0].setting, [name for name in PARTS if name not in differing])
    _say(console, "; ".join([", ".join(shared), "true and found: share in %, MAE: mean error in points"]).lstrip("; "))
    for setting in dict.fromkeys(group.setting for group in groups):
        if differing:
            _say(console, "")
            _say(console, ", ".join(setting_words(setting, [name for name in PARTS if name in differing])))
        console.print(_grid([group for group in groups if group.setting == setting]), highlight=False)


def _say(console: Console, words: str) -> None:
    console.print(words, soft_wrap=True, highlight=False, markup=False)


def _grid(groups: Sequence[Group]) -> Grid:
    grid = Grid(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    lines = [_cells(group) for group in sorted(groups, key=lambda group: (group.property_name, group.adversary))]
    attack = min(max(len("attack"), *(len(cells[2]) for cells in lines)), LONGEST_ATTACK)
    for name, width in (("property", ROOM - attack), ("by", 2), ("attack", attack)):
        grid.add_column(name, max_width=width, overflow="fold")
    for name, width in NUMBER_COLUMNS.items():
        grid.add_column(name, min_width=width, justify="right", no_wrap=True)
    for cells in lines:
        grid.add_row(*map(Text, cells))  # brackets in a user's names are no markup
    return grid


def _cells(group: Group) -> list[str]:
    variant = "" if group.variant == PASSIVE else group.variant
    return [
        group.property_name,
        group.adversary,
        " ".join(part for part in (group.attack, variant, group.detail) if part),
        _percent(group.true),
        _percent(group.estimated),
        _percent(group.error),
        interval(group.error).replace("–", "-"),
        str(len(group.results)),
        "-" if group.auc is None else f"{group.auc.mean:.3f}".removeprefix("0"),
    ]


def _percent(value: Estimate | None) -> str:
    return "-" if value is None else f"{100 * value.mean:.1f}"
