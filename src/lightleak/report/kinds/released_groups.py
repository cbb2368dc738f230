"""Attacks on a released model by setting, with what ``inversion.json`` adds to their rows."""

import statistics
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

from lightleak.core.grouping import by_key
from lightleak.core.results import ALL, ReleasedRow
from lightleak.report.compare import apart, attacks, differing, fixed, group_rows
from lightleak.report.format import joined
from lightleak.report.intervals import Estimate, difference, estimate, proportion
from lightleak.report.kinds.released_entries import Entry, bridge_name, search_name, setting_words, title_of
from lightleak.report.kinds.released_scores import Attack, of_equal

FIXED = ("dataset", "target", "evaluation", "setting")
"""What is the same for all that is compared."""

HALF = 0.5
"""Share that lies nearer to a training row where nothing is copied."""

NEGLIGIBLE = 0.1
"""How far a share may lie above another one and still be called about as large."""

Copied = Literal["none", "as public", "unknown", "too few", "unsure", "may be", "traces"]
"""What is known of copies of single rows, from what reassures most to what does least."""


@dataclass(frozen=True)
class Scenario:
    """All attacks and baselines in one setting.

    Attributes:
        groups: attacks, then baselines, each with the highest attack accuracy first.
        entries: what ``inversion.json`` says of its table and split.
        title: how it differs from the others; empty if it is the only one.
    """

    groups: tuple[Attack, ...]
    entries: tuple[Entry, ...] = ()
    title: str = ""

    @property
    def first(self) -> ReleasedRow:
        """A row, for what all rows have in common."""
        return self.groups[0].first

    @property
    def attacks(self) -> tuple[Attack, ...]:
        """The groups that the target leads."""
        return attacks(self.groups)

    @property
    def baselines(self) -> tuple[Attack, ...]:
        """The groups that it does not lead."""
        return tuple(group for group in self.groups if group.is_baseline)

    @cached_property
    def reference(self) -> Attack | None:
        """The baseline with the highest attack accuracy: the one an attack has to beat."""
        return next((group for group in self.baselines if group.value() is not None), None)

    @cached_property
    def real_rows(self) -> Estimate | None:
        """Share of held-out private rows that the evaluation model takes for their class; no bound of an attack."""
        known = [value for group in self.groups for value in group.values("real_rows_accuracy")]
        return Estimate(statistics.fmean(known)) if known else None

    @cached_property
    def n_classes(self) -> int | None:
        """Number of private classes; None where unknown."""
        stated = [size for entry in self.entries if (size := entry.size("classes"))]
        seen = {row.class_name for group in self.groups for row in group.rows} - {ALL}
        return stated[0] if stated else len(seen) or None

    @property
    def chance(self) -> Estimate | None:
        """What naming a class at random reaches."""
        return Estimate(1 / self.n_classes) if self.n_classes else None

    @property
    def real_rows_of_all(self) -> Estimate | None:
        """As `real_rows`, over all classes, those too that were not attacked; files of earlier versions do not say."""
        known = [mean for one in self.entries if (mean := one.evaluation_scores.get("class_mean")) is not None]
        return Estimate(statistics.fmean(known)) if known else self.real_rows

    def attacked(self, group: Attack) -> tuple[int, int] | None:
        """Fewest and most classes that the group makes rows for in a training; None where it is not stated."""
        left_out = [row.excluded_classes for row in group.rows if row.excluded_classes is not None]
        return (self.n_classes - max(left_out), self.n_classes - min(left_out)) if self.n_classes and left_out else None

    @property
    def is_judged_at_chance(self) -> bool:
        """Whether real rows are recognized not measurably better than by `chance`, so that no recognition shows much.

        The interval is that of the held-out private rows of one training; without their number the mean decides.
        """
        if self.real_rows_of_all is None or self.chance is None:
            return False
        real, sizes = self.real_rows_of_all.mean, [n for one in self.entries if (n := one.size("private_test_rows"))]
        least = proportion(real, min(sizes)).low if sizes else real
        return least is not None and least <= self.chance.mean

    @cached_property
    def quality(self) -> Estimate | None:
        """Share of held-out rows that the released model judges correctly, over trainings; None where unknown."""
        scores = {(one.run, one.seed): one for one in self.entries if "test_accuracy" in one.target_scores}
        value = estimate(one.target_scores["test_accuracy"] for one in scores.values())
        return of_equal(value, next((one.size("private_test_rows") for one in scores.values()), None))

    @property
    def most_equal_public(self) -> Estimate | None:
        """The highest share of public rows that equal a private one."""
        return _highest(one.value("exact_match_rate") for one in self.baselines if one.attack.startswith("public"))

    def gain(self, group: Attack) -> Estimate | None:
        """Attack accuracy over the best baseline's, paired by training where both have it; None of a baseline."""
        return None if self.reference is None or group.is_baseline else group.change(self.reference)

    def place(self, name: str) -> str:
        """A name with its setting, where there are several settings."""
        return joined(name, self.title, by=" · ")

    def copied(self, group: Attack) -> Copied:
        """Whether single training rows come through, as far as this was measured.

        Returns:
            ``none`` (at most a negligible share above one half), ``as public`` (at most a negligible share above rows
            from public data), ``unknown`` (not measured, or without an interval), ``too few`` (rows held out to tell),
            ``unsure`` (the trainings differ too much), ``may be`` (not shown to be nearer than rows from public data,
            nor to be as near) or ``traces``.
        """
        share = group.memory.value
        if share is None or share.low is None or share.high is None:
            return "unknown"
        if share.low <= HALF:
            return "none" if share.high <= HALF + NEGLIGIBLE else "unsure" if share.n > 1 else "too few"
        beyond = difference(share, self.nearest_public)
        if beyond is None or beyond.high is None:
            return "may be"
        return "traces" if beyond.is_above else "as public" if beyond.high <= NEGLIGIBLE else "may be"

    @property
    def nearest_public(self) -> Estimate | None:
        """The highest share of rows from public data, which are no copies, that lie nearer to a training row."""
        return _highest(one.memory.value for one in self.baselines)


def compare(
    rows: Sequence[ReleasedRow], entries: Sequence[Entry] = (), models: Mapping[str, Hashable] | None = None
) -> tuple[Scenario, ...]:
    """Scenarios in the order of the rows. A group has each seed, evaluation and class once.

    Args:
        rows: rows of all runs.
        entries: what ``inversion.json`` says of them.
        models: how the models of each run were made, by its name; only runs whose models were made alike share a
            scenario. Left out, those of all runs were.
    """
    made = models or {}
    found = by_key(rows, lambda row: (fixed(row, FIXED), made.get(row.run))).values()
    varying = differing((same[0] for same in found), FIXED)
    shared = by_key(found, lambda same: fixed(same[0], FIXED))
    scenarios = []
    for same in found:
        first = same[0]
        own = [one for one in entries if made.get(one.run) == made.get(first.run)]
        runs = dict.fromkeys(row.run for row in same) if len(shared[fixed(first, FIXED)]) > 1 else ()
        groups = tuple(sorted(_attacks(same, own), key=_reading_order))
        here = tuple(one for one in own if (one.dataset, one.setting) == (first.dataset, first.setting))
        title = joined(*setting_words(first, varying), *(f"run {run}" for run in runs), by=" · ")
        scenarios.append(Scenario(groups, here, title))
    return tuple(scenarios)


def most_telling(scenarios: Sequence[Scenario]) -> tuple[Scenario, Attack] | None:
    """The attack that most surely exceeds the best baseline; None without an accuracy.

    That is the highest lower end of the interval of `Scenario.gain`, so that few rows are no advantage; of the accuracy
    where there is no baseline.
    """
    known = _measured(scenarios, Attack.value)
    gained = [(one, group, gain) for one, group, _ in known if (gain := one.gain(group))]
    best = max(gained or known, key=lambda found: _least(found[2]), default=None)
    return best and best[:2]


def by_copies(scenarios: Sequence[Scenario]) -> list[tuple[Scenario, Attack, Estimate]]:
    """Attacks with their share of rows nearer to a training row, those that most likely copied rows first."""
    known = _measured(scenarios, lambda group: group.memory.value)
    severity = get_args(Copied).index
    return sorted(known, key=lambda found: (-severity(found[0].copied(found[1])), -found[2].mean))


def by_equal_rows(scenarios: Sequence[Scenario]) -> list[tuple[Scenario, Attack, Estimate]]:
    """Attacks with their share of rows that equal a private one, the highest first."""
    known = _measured(scenarios, lambda group: group.value("exact_match_rate"))
    return sorted(known, key=lambda found: -found[2].mean)


def _measured(
    scenarios: Sequence[Scenario], of: Callable[[Attack], Estimate | None]
) -> list[tuple[Scenario, Attack, Estimate]]:
    """The attacks of which a value is known, with it."""
    return [(one, group, value) for one in scenarios for group in one.attacks if (value := of(group))]


def topics(scenarios: Sequence[Scenario], entries: Sequence[Entry], main: Attack | None) -> list[Attack]:
    """Attacks with entries, each entry once, under names with their place: ``main`` first, and baselines last."""
    places = [(group is not main, scenario, group) for scenario in scenarios for group in scenario.groups]
    left, found = list(entries), []
    for is_other, scenario, group in sorted(places, key=lambda place: place[0]):
        # An entry without a search is about several groups, and belongs to the first.
        own = tuple(entry for entry in left if any(entry is one for one in group.entries))
        left = [entry for entry in left if not any(entry is one for one in own)]
        name, fit_name = scenario.place(group.name), scenario.place(group.fit_name)
        found += [(is_other, replace(group, entries=own, name=name, fit_name=fit_name))] if own else []
    # What is left is of an attack whose rows are not there, such as of an interrupted run.
    several = len({one.run for one in entries}) > 1
    key = ("run", "dataset", "setting", "attack", "label", "search")
    for same in by_key(left, lambda one: tuple(getattr(one, name) for name in key)).values():
        fit, search = joined(title_of(same[0]), f"run {same[0].run}" if several else "", by=" · "), same[0].search
        name = joined(fit, search_name(search) if search else "", by=" · ")
        row = ReleasedRow(attack=same[0].attack, latent_search=search)
        found.append((True, Attack((row,), fit_name=fit, name=name, entries=tuple(same))))
    return [attack for _, attack in sorted(found, key=lambda pair: (pair[0], pair[1].is_baseline))]


def _attacks(rows: Sequence[ReleasedRow], entries: Sequence[Entry]) -> Iterator[Attack]:
    groups = group_rows(
        rows,
        lambda row: (row.attack, row.name, row.latent_search, row.bridge),
        lambda same: apart(same, lambda row: (str(row.seed), str(row.evaluation_index), row.class_name)),
    )
    by_name = by_key(groups, lambda group: (group.attack, group.first.name))
    for group in groups:
        row = group.first
        varying = differing((one.first for one in by_name[group.attack, row.name]), ("latent_search", "bridge"))
        search = search_name(row.latent_search) if "latent_search" in varying else ""
        bridge = bridge_name(row.bridge) if "bridge" in varying else ""
        fit, name = (joined(title_of(row), one, bridge, group.variant, by=" · ") for one in ("", search))
        found = Attack(group.rows, group.variant, fit_name=fit, name=name)
        yield replace(found, entries=tuple(entry for entry in entries if _belongs(entry, found)))


def _belongs(entry: Entry, group: Attack) -> bool:
    """Whether an entry is about this group; one without a search is about every search."""
    row = group.first
    same = (entry.dataset, entry.setting, entry.attack, entry.label or entry.attack) == (
        row.dataset, row.setting, row.attack, row.name,
    )  # fmt: skip
    in_run = not group.variant or entry.run in {one.run for one in group.rows}
    return same and entry.search in (None, group.search) and in_run


def _reading_order(group: Attack) -> tuple[bool, float]:
    value = group.value()
    return group.is_baseline, -value.mean if value else 1.0


def _highest(values: Iterable[Estimate | None]) -> Estimate | None:
    return max(filter(None, values), key=lambda value: value.mean, default=None)


def _least(value: Estimate) -> tuple[bool, float]:
    return (False, value.mean) if value.low is None else (True, value.low)
