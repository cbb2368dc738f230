"""Attacks set beside what public data alone give, setting by setting."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from lightleak.report.estimate import Estimate
from lightleak.report.released.entries import Entry
from lightleak.report.released.group import Group
from lightleak.report.released.result import ALL, InversionResult, Setting


@dataclass(frozen=True)
class Scenario:
    """All attacks and baselines in one setting.

    Attributes:
        setting: what was held fixed.
        groups: attacks, then baselines, each with the highest attack accuracy first.
        n_classes: private classes that the evaluation model tells apart; None where unknown.
    """

    setting: Setting
    groups: tuple[Group, ...]
    n_classes: int | None

    @property
    def attacks(self) -> tuple[Group, ...]:
        """The groups that the target leads."""
        return tuple(group for group in self.groups if not group.is_baseline)

    @property
    def baselines(self) -> tuple[Group, ...]:
        """The groups that it does not lead."""
        return tuple(group for group in self.groups if group.is_baseline)

    @cached_property
    def reference(self) -> Group | None:
        """The baseline with the highest attack accuracy: the one an attack has to beat."""
        return next((group for group in self.baselines if group.value() is not None), None)

    @cached_property
    def real_rows_accuracy(self) -> float | None:
        """Share of held-out private rows that the evaluation model takes for their class; no bound of an attack."""
        name = "real_rows_accuracy"
        known = [one.metrics[name] for group in self.groups for one in group.results if name in one.metrics]
        return statistics.fmean(known) if known else None

    @property
    def chance(self) -> float | None:
        """What naming a class at random reaches."""
        return 1 / self.n_classes if self.n_classes else None

    def gain(self, group: Group) -> Estimate | None:
        """Attack accuracy over the best baseline's, paired by training where both have it."""
        best = self.reference
        return None if best is None or group is best else group.change(best)


_Key = tuple[Setting, str, str, str | None, str | None]


def compare(results: Iterable[InversionResult], entries: Sequence[Entry] = ()) -> tuple[Scenario, ...]:
    """Scenarios in the order of the rows, runs together. A group holds each seed, evaluation and class once."""
    members: dict[_Key, list[InversionResult]] = defaultdict(list)
    for one in results:
        members[one.setting, one.attack, one.label, one.search, one.bridge].append(one)
    by_setting: dict[Setting, list[Group]] = defaultdict(list)
    for key, same in members.items():
        for detail, rows in _apart(same).items():
            by_setting[key[0]].append(Group(*key, tuple(rows), detail))
    return tuple(
        Scenario(setting, tuple(sorted(groups, key=_reading_order)), _n_classes(setting, groups, entries))
        for setting, groups in by_setting.items()
    )


def _apart(rows: Sequence[InversionResult]) -> dict[str, list[InversionResult]]:
    """By run where one seed's evaluation of a class comes twice."""
    counts = Counter((str(row.seed), str(row.evaluation_index), row.class_name) for row in rows)
    if max(counts.values()) == 1:
        return {"": list(rows)}
    by_run: dict[str, list[InversionResult]] = defaultdict(list)
    for row in rows:
        by_run[f"run {row.run}"].append(row)
    return by_run


def _reading_order(group: Group) -> tuple[bool, float]:
    value = group.value()
    return group.is_baseline, -value.mean if value else 1.0


def _n_classes(setting: Setting, groups: Sequence[Group], entries: Sequence[Entry]) -> int | None:
    told = [
        int(entry.task["classes"])
        for entry in entries
        if (entry.dataset, entry.setting) == (setting.dataset, setting.setting) and "classes" in entry.task
    ]
    seen = {one.class_name for group in groups for one in group.results} - {ALL}
    return told[0] if told else len(seen) or None


def most_telling(scenarios: Sequence[Scenario]) -> tuple[Scenario, Group] | None:
    """The attack that most surely exceeds the best baseline; None without an accuracy.

    That is the highest lower end of the interval of `Scenario.gain`, so that few rows are no advantage; of the accuracy
    where there is no baseline.
    """
    known = [
        (scenario, group, scenario.gain(group) or value)
        for scenario in scenarios
        for group in scenario.attacks
        if (value := group.value()) is not None
    ]
    if not known:
        return None
    beside = [one for one in known if one[0].gain(one[1]) is not None]
    scenario, group, _ = max(beside or known, key=lambda one: _least(one[2]))
    return scenario, group


def _least(value: Estimate) -> tuple[bool, float]:
    return (False, value.mean) if value.low is None else (True, value.low)
