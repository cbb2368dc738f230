"""The entries of ``inversion.json`` beside the attacks they are about."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from lightleak.report.released.comparison import Scenario
from lightleak.report.released.entries import Entry
from lightleak.report.released.group import Group, is_baseline
from lightleak.report.released.wording import attack_name, group_titles, scenario_titles, search_name


@dataclass(frozen=True)
class Topic:
    """What one attack in one setting left, over seeds.

    Attributes:
        title: attack and setting.
        fit_title: the same without its search, of what belongs to the training alone.
        is_baseline: whether it stands for public data.
        entries: one per seed.
    """

    title: str
    fit_title: str
    is_baseline: bool
    entries: tuple[Entry, ...]


def belongs(entry: Entry, group: Group) -> bool:
    """Whether an entry is about this group; an entry without a search is about every search."""
    setting = group.setting
    same = (entry.dataset, entry.setting, entry.attack, entry.label) == (
        setting.dataset, setting.setting, group.attack, group.label,
    )  # fmt: skip
    in_run = not group.detail or entry.run in {one.run for one in group.results}
    return same and entry.search in (None, group.search) and in_run


def topics(entries: Sequence[Entry], scenarios: Sequence[Scenario], main: Group | None) -> tuple[Topic, ...]:
    """Entries by what they are about: the group ``main`` first, then other attacks, then baselines."""
    groups = [group for scenario in scenarios for group in scenario.groups]
    of_group: dict[Group, list[Entry]] = defaultdict(list)
    homeless: dict[tuple[str | None, str | None, str, str, str | None], list[Entry]] = defaultdict(list)
    for entry in entries:
        known = [group for group in groups if belongs(entry, group)]
        if known:
            of_group[main if main is not None and main in known else known[0]].append(entry)
        else:  # an attack whose rows are not there, such as of an interrupted run
            homeless[entry.dataset, entry.setting, entry.attack, entry.label, entry.search].append(entry)
    wheres = scenario_titles(scenarios)
    found = []
    for scenario in scenarios:
        where, titles, fits = wheres[scenario.setting], group_titles(scenario), group_titles(scenario, False)
        for group in scenario.groups:
            if group in of_group:
                title, fit = (" · ".join(part for part in (one[group], where) if part) for one in (titles, fits))
                found.append((group is not main, Topic(title, fit, group.is_baseline, tuple(of_group[group]))))
    for (_, _, attack, label, search), members in homeless.items():
        fit = attack_name(attack, label)
        title = f"{fit} · {search_name(search)}" if search else fit
        found.append((True, Topic(title, fit, is_baseline(attack, search), tuple(members))))
    return tuple(topic for _, topic in sorted(found, key=lambda pair: (pair[0], pair[1].is_baseline)))
