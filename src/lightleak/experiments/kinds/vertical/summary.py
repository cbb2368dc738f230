"""The table on the terminal after a vertical audit."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lightleak.experiments.terminal import Column, Lines, percent
from lightleak.report.estimate import Estimate
from lightleak.report.vertical.comparison import Group, chosen_on_other_seeds, compare
from lightleak.report.vertical.defended import place_of
from lightleak.report.vertical.result import parse_result
from lightleak.report.vertical.wording import PASSIVE, setting_words, varying
from lightleak.report.wording import interval, points

PARTS = ("dataset", "target", "epoch", "defense")
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
    groups = compare(parse_result(row, "", f"results.json, row {i}") for i, row in enumerate(results["rows"]))
    if not groups:
        return
    differing = varying(group.setting for group in groups)
    shared = setting_words(groups[0].setting, [name for name in PARTS if name not in differing])
    said = ["; ".join([", ".join(shared), "true and found: share in %, MAE: mean error in points"]).lstrip("; ")]
    for setting in dict.fromkeys(group.setting for group in groups):
        if differing:
            said += ["", ", ".join(setting_words(setting, [name for name in PARTS if name in differing]))]
        here = [group for group in groups if group.setting == setting]
        yield _lines(said, NUMBER_COLUMNS, [_cells(group) for group in _ordered(here)])
        yield from _learned(here)
        said = []


def _ordered(groups: Iterable[Group]) -> list[Group]:
    return sorted(groups, key=lambda group: (group.property_name, group.adversary))


def _learned(groups: Sequence[Group]) -> Iterator[Lines]:
    """What each adversary learned of each property, compared with its own columns alone, where that is known."""
    places = [[one for one in groups if place_of(one) == place] for place in dict.fromkeys(map(place_of, groups))]
    best = [group for members in places if (group := chosen_on_other_seeds(members)) is not None]
    if not any(group.learned for group in best):
        return
    said = (
        "learned from the exchange: points closer than own columns alone, by the attack chosen on other seeds; the "
        "intervals are simultaneous over all lines; rows: size of a random sample of the same value"
    )
    yield _lines([said], LEARNED_COLUMNS, [_learned_cells(group, len(best)) for group in _ordered(best)])


def _learned_cells(group: Group, places: int) -> list[str]:
    learned, worth = group.learned_among(places), group.worth
    return [
        group.property_name,
        group.adversary,
        group.attack,
        _percent(group.own_error),
        _percent(group.error),
        "-" if learned is None else points(learned.mean).replace("−", "-"),
        "-" if learned is None else interval(learned, -1.0).replace("–", "-").replace("−", "-"),
        "-" if worth is None else "any" if math.isinf(worth.rows) else f"{worth.rows:.0f}",
    ]


def _lines(said: Sequence[str], numbers: Mapping[str, int], cells: Sequence[Sequence[str]]) -> Lines:
    attack = min(max(len("attack"), *(len(line[2]) for line in cells)), LONGEST_ATTACK)
    names = {"property": ROOM - attack, "by": 2, "attack": attack}
    texts = [Column(name, is_number=False, most=width) for name, width in names.items()]
    return Lines(said, [*texts, *(Column(name, least=width) for name, width in numbers.items())], cells)


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
    return percent(None if value is None else value.mean)
