"""The table on the terminal after a vertical audit."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lightleak.core.grouping import by_key
from lightleak.core.results import VerticalRow, read_row
from lightleak.experiments.terminal import Column, Lines, percent
from lightleak.report.compare import differing, fixed
from lightleak.report.format import interval, points
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.vertical_groups import FIXED, PASSIVE, VerticalGroup, chosen, compare

LEARNED_COLUMNS = {"own": 4, "MAE": 4, "learned": 7, "95% interval": 14, "rows": 6}
NUMBER_COLUMNS = {"true": 5, "found": 5, "MAE": 4, "95% interval": 12, "n": 2, "AUC": 4}
ROOM = 36
"""Characters for property and attack together: with the numbers and a blank between columns 78 of 80."""

LONGEST_ATTACK = 16
"""A longer name continues on the next line, as does a property longer than the rest of `ROOM`."""


def vertical_tables(results: Mapping[str, Any]) -> Iterator[Lines]:
    """One line per property, adversary and attack, means over seeds; settings that differ have a table each.

    ``true`` and ``found`` are shares in percent, ``MAE`` is the mean absolute error in points with the 95% interval of
    that mean over ``n`` seeds. Below the lines of a setting stands what was learned from the exchange, by the attack
    chosen on other seeds.

    Args:
        results: content of ``results.json``.
    """
    read = (read_row(row, f"results.json, row {i}") for i, row in enumerate(results["rows"]))
    groups = compare(row for row in read if isinstance(row, VerticalRow))
    if not groups:
        return
    various = differing((group.first for group in groups), FIXED)
    shared = groups[0].setting_words([name for name in FIXED if name not in various])
    said = ["; ".join([", ".join(shared), "true and found: share in %, MAE: mean error in points"]).lstrip("; ")]
    for here in by_key(groups, lambda group: fixed(group.first, FIXED)).values():
        if various:
            said += ["", ", ".join(here[0].setting_words(various))]
        yield _lines(said, NUMBER_COLUMNS, [_cells(group) for group in _ordered(here)])
        yield from _learned(here)
        said = []


def _ordered(groups: Iterable[VerticalGroup]) -> list[VerticalGroup]:
    return sorted(groups, key=lambda group: group.place[1:])


def _learned(groups: Sequence[VerticalGroup]) -> Iterator[Lines]:
    """What each adversary learned of each property, compared with its own columns alone, where that is known."""
    best = list(chosen(groups).values())
    if not any(group.learned() for group in best):
        return
    said = (
        "learned from the exchange: points closer than own columns alone, by the attack chosen on other seeds; the "
        "intervals are simultaneous over all lines; rows: size of a random sample of the same value"
    )
    best, places = _ordered(best), len(best)
    above = [group for group in best if (learned := group.learned(places)) and learned.is_above]
    if halves := [" by ".join(group.place[1:]) for group in above if not group.leaks(places)]:
        said += f"; not measurably closer than the answer one half, so nothing was learned: {', '.join(halves)}"
    yield _lines([said], LEARNED_COLUMNS, [_learned_cells(group, places) for group in best])


def _learned_cells(group: VerticalGroup, places: int) -> list[str]:
    learned, worth = group.learned(places), group.worth
    return [
        *group.place[1:],
        group.attack,
        _percent(group.own_error),
        _percent(group.error),
        "-" if learned is None else points(learned.mean).replace("−", "-"),
        "-" if learned is None else interval(learned, -1.0).replace("–", "-").replace("−", "-"),
        "-" if worth is None else "any" if math.isinf(worth.mean) else f"{worth.mean:.0f}",
    ]


def _lines(said: Sequence[str], numbers: Mapping[str, int], cells: Sequence[Sequence[str]]) -> Lines:
    attack = min(max(len("attack"), *(len(line[2]) for line in cells)), LONGEST_ATTACK)
    names = {"property": ROOM - attack, "by": 2, "attack": attack}
    texts = [Column(name, is_number=False, most=width) for name, width in names.items()]
    return Lines(said, [*texts, *(Column(name, least=width) for name, width in numbers.items())], cells)


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
    return percent(None if value is None else value.mean)
