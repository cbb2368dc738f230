"""What stands out of vertical runs: where most was learned from the exchange, and what defenses change and cost."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from lightleak.core.grouping import by_key
from lightleak.core.results import NONE, VerticalRow, flat
from lightleak.report.budget import budget
from lightleak.report.intervals import Estimate, bounded
from lightleak.report.kinds.vertical_groups import (
    Groups,
    Place,
    VerticalGroup,
    attack_name,
    attacks,
    chosen_on_other_seeds,
    mean_error,
    undefended,
)
from lightleak.report.read import Run

MAY_DIFFER = (
    "title", "kind", "workers", "device", "redact", "engine", "ray_address", "gpus_per_pack", "keep_captures",
    "defenses", "seeds", "properties", "adversaries", "attacks", "attack_epochs",
)  # fmt: skip
"""Settings in which two runs may differ: they change no score, or every row states them."""

Pair = tuple[VerticalRow, VerticalRow]
"""One attack on one seed without and with the defense."""


@dataclass(frozen=True)
class Change:
    """Errors of an adversary without and with a defense, one for each seed that both have.

    On each seed the adversary takes the attack that was closest on the other seeds, among those that were run on all of
    these seeds with and without the defense, or on every seed its own columns alone where these are closer on average.

    Attributes:
        before: errors without the defense.
        after: errors with it.
        cost: what the defense does to the model's AUC, after minus before; None where that is not known.
        reads_own: whether own columns alone were closer than the attacks, with or without the defense.
        other: what else differs between the runs, by the name of the setting.
    """

    before: tuple[float, ...] = ()
    after: tuple[float, ...] = ()
    cost: Estimate | None = None
    reads_own: bool = False
    other: tuple[str, ...] = ()

    def rise(self, comparisons: int = 1) -> Estimate | None:
        """How much further off the defense leaves the adversary, with an interval for that many changes at once."""
        return _difference(zip(self.before, self.after, strict=True), comparisons)

    @property
    def means(self) -> tuple[float, float]:
        """Mean error without and with the defense."""
        return statistics.fmean(self.before), statistics.fmean(self.after)


def change_of(here: Groups, there: Groups, runs: Iterable[Run] = ()) -> Change:
    """Compare the attacks under a defense with those without it; nothing is known where no attack or seed is shared.

    Args:
        here: attacks of one adversary on one property under the defense.
        there: the same without it.
        runs: the runs of these attacks, for their settings.
    """
    before, after = ({_attack(group): group.by_seed for group in some} for some in (there, here))
    names = [name for name in before if name in after]
    first = before[names[0]] if names else {}
    seeds = [seed for seed in first if all(seed in of[name] for of in (before, after) for name in names)]
    if not seeds:
        return Change()
    pairs = [[(before[name][seed], after[name][seed]) for seed in seeds] for name in names]
    shared = ([{seed: of[name][seed] for seed in seeds} for name in names] for of in (before, after))
    (before_errors, before_own), (after_errors, after_own) = map(_answer, shared)
    # The AUC is that of an attack that only watches, where there is one.
    manipulating = {_attack(group) for group in here if group.manipulates}
    watching = pairs[min(range(len(names)), key=lambda at: names[at] in manipulating)]
    areas = ((row.auc, other.auc) for row, other in watching if row.auc is not None and other.auc is not None)
    other = _other_settings((pair for rows in pairs for pair in rows), {run.name: run for run in runs})
    return Change(before_errors, after_errors, _difference(areas), before_own or after_own, other)


def untried(here: Groups, there: Groups) -> tuple[str, ...]:
    """Name the attacks that an adversary chooses without the defense and that were not tried under it."""
    names = {_attack(group) for group in here}
    tried = {id(row) for group in there if _attack(group) in names for row in group.rows}
    chosen = chosen_on_other_seeds(there)
    return tuple(dict.fromkeys(attack_name(row) for row in chosen.rows if id(row) not in tried)) if chosen else ()


def _attack(group: VerticalGroup) -> tuple[object, ...]:
    row = group.first
    return row.attack, row.variant, group.variant, row.target, row.epoch


def _answer(attacks: Sequence[Mapping[str, VerticalRow]]) -> tuple[tuple[float, ...], bool]:
    """Errors of an adversary with these attacks, one for each seed, and whether own columns alone gave them."""
    picked = (min(attacks, key=lambda rows: mean_error(rows, without=seed))[seed] for seed in attacks[0])
    found = [row.error for row in picked if row.error is not None]
    own = [[row.own_columns_error for row in rows.values() if row.own_columns_error is not None] for rows in attacks]
    known = (errors for errors in own if len(errors) == len(found))
    closest = min(known, key=statistics.fmean, default=found)
    reads_own = statistics.fmean(closest) < statistics.fmean(found)
    return tuple(closest if reads_own else found), reads_own


def _difference(pairs: Iterable[tuple[float, float]], comparisons: int = 1) -> Estimate | None:
    """Mean of after minus before."""
    return bounded((after - before for before, after in pairs), -1.0, 1.0, comparisons)


def _other_settings(pairs: Iterable[Pair], runs: Mapping[str, Run]) -> tuple[str, ...]:
    """Name what differs between rows without and with a defense, but for the defense."""
    known = list(pairs)
    found = dict.fromkeys(name for pair in known for name in _changed_facts(*pair))
    for first, second in dict.fromkeys((row.run, other.run) for row, other in known):
        if first != second and first in runs and second in runs and runs[first].settings and runs[second].settings:
            found |= dict.fromkeys(_changed(_settings(runs[first]), _settings(runs[second])))
    return tuple(found)


def _changed_facts(row: VerticalRow, other: VerticalRow) -> list[str]:
    """Name what differs in what two rows state; what one of them does not state is not taken to differ."""
    facts = {"parties": (row.parties, other.parties), "rows with known property": (_sample(row), _sample(other))}
    differing = [name for name, values in facts.items() if None not in values and len(set(values)) > 1]
    return [*_changed(row.settings, other.settings), *differing]


def _sample(row: VerticalRow) -> int | None:
    return row.threat.sample if row.threat else None


def _settings(run: Run) -> dict[str, str]:
    return flat({name: value for name, value in run.settings.items() if name not in MAY_DIFFER})


def _changed(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    return [name for name in dict.fromkeys([*first, *second]) if first.get(name) != second.get(name)]


@dataclass(frozen=True)
class Outcome:
    """One adversary on one property under one defense, by the attack chosen on other seeds.

    Attributes:
        group: that attack.
        change: what the defense changes for an adversary who knows it; nothing without a defense, and where no attack
            was tried on the same seed with and without it.
        untried: attacks that the adversary chooses without the defense and that were not tried under it.
    """

    group: VerticalGroup
    change: Change
    untried: tuple[str, ...]

    @property
    def error(self) -> Estimate:
        """How far off the attack is."""
        assert self.group.error is not None  # `chosen_on_other_seeds` keeps only groups with an error
        return self.group.error

    @property
    def is_comparable(self) -> bool:
        """Whether a change could be put down to the defense."""
        rise = self.change.rise()
        return rise is not None and rise.has_interval and not self.untried and not self.change.other

    def helps(self, comparisons: int) -> bool:
        """Whether the defense measurably leaves the attacker further off, among so many comparisons."""
        rise = self.change.rise(comparisons) if self.is_comparable else None
        # An attack that was tried under the defense alone may come closer than all that were compared.
        return rise is not None and rise.is_above and self.error.mean > self.change.means[0]


@dataclass(frozen=True)
class Findings:
    """All that vertical runs measured, and what stands out.

    Attributes:
        groups: every group.
        redact: leave out every share, and with it how far off the adversary's own columns alone are.
        runs: the runs that they are from, for their settings.
    """

    groups: Groups
    redact: bool = False
    runs: Sequence[Run] = ()

    @cached_property
    def tried(self) -> Groups:
        """The attacks that read what is exchanged."""
        return attacks(self.groups)

    @cached_property
    def outcomes(self) -> dict[str, dict[Place, Outcome]]:
        """Outcomes by defense, what they are compared with first."""
        return outcomes(self.tried, self.runs) if self.tried else {}

    @cached_property
    def best(self) -> list[VerticalGroup]:
        """What every adversary gets of every property without a defense."""
        return [one.group for one in next(iter(self.outcomes.values()), {}).values()]

    @property
    def places(self) -> int:
        """Combinations of table, property and adversary."""
        return len(self.best)

    @cached_property
    def main(self) -> VerticalGroup | None:
        """The one that learned most (`most_telling`); None without truth."""
        return most_telling(self.best)

    @cached_property
    def honest(self) -> VerticalGroup | None:
        """What the main adversary gets without departing from the protocol."""
        here = self.main and (self.main.place, self.main.defense)
        honest = [one for one in self.tried if not one.manipulates and (one.place, one.defense) == here]
        return chosen_on_other_seeds(honest)

    @property
    def leaking(self) -> list[VerticalGroup]:
        """Those of `best` that measurably learned something from the exchange, at all places at once."""
        return [group for group in self.best if group.leaks(self.places)]

    @cached_property
    def caution(self) -> str:
        """Why nothing follows from what attacks did not find; empty where something does."""
        return budget(row for group in self.tried for row in group.rows).caution

    @cached_property
    def defended(self) -> list[Outcome]:
        """What the main adversary gets of the main property under each defense; none without an undefended run."""
        _, *others = self.outcomes.values() or [{}]
        main = self.main
        return [found[main.place] for found in others if main and not main.is_defended and main.place in found]

    @cached_property
    def comparisons(self) -> int:
        """Changes among which the reported ones are: of every defense, property and adversary."""
        return sum(bool(one.change.before) for found in self.outcomes.values() for one in found.values())

    @property
    def comparable(self) -> list[Outcome]:
        """Those of `defended` of which it can be said whether the defense helps."""
        return [one for one in self.defended if one.is_comparable]

    @cached_property
    def helping(self) -> list[Outcome]:
        """Those of the defenses that measurably help; none where an attack was too weak to tell."""
        return [] if self.caution else [one for one in self.defended if one.helps(self.comparisons)]

    @property
    def untried(self) -> dict[tuple[str, ...], list[Outcome]]:
        """Those of `defended` under which the main attack was not tried, by the names of what is missing."""
        return by_key((one for one in self.defended if one.untried), lambda one: one.untried)

    @property
    def confounded(self) -> dict[tuple[str, ...], list[Outcome]]:
        """Those of `defended` whose run differs in more than the defense, by the names of these settings."""
        found = (one for one in self.defended if one.change.other and not one.untried)
        return by_key(found, lambda one: one.change.other)

    @property
    def most_protective(self) -> Outcome | None:
        """The one of them that leaves the adversary furthest off."""
        return max(self.helping, key=lambda one: one.change.means[1], default=None)

    @property
    def least_costly(self) -> Outcome | None:
        """The one of them that costs least."""
        return max(self.helping, key=lambda one: one.change.cost.mean if one.change.cost else -1.0, default=None)


def most_telling(best: Groups) -> VerticalGroup | None:
    """Return of several adversaries and properties the one that learned most from the exchange.

    Among those whose interval, widened for this choice, lies above 0; where none does, the one that comes closest.
    """
    leaking = [group for group in best if group.leaks(len(best))]
    if leaking:
        return max(leaking, key=lambda group: statistics.fmean(group.values("learned")))
    return min(best, key=lambda group: group.sorted_by, default=None)


def outcomes(groups: Groups, runs: Sequence[Run] = ()) -> dict[str, dict[Place, Outcome]]:
    """Outcomes by defense, the reference first; each is compared with that of no defense, where there is one."""
    tried = attacks(groups)
    reference = undefended(tried)[0].defense
    by_defense = {
        defense: by_key((one for one in tried if one.defense == defense), lambda one: one.place)
        for defense in dict.fromkeys((reference, *(group.defense for group in tried)))
    }
    before = by_defense.get(NONE, {})

    def outcome(group: VerticalGroup, same: Groups) -> Outcome:
        there = before.get(group.place, []) if group.is_defended else []
        return Outcome(group, change_of(same, there, runs), untried(same, there))

    return {
        defense: {
            place: outcome(group, same)
            for place, same in after.items()
            if (group := chosen_on_other_seeds(same)) is not None
        }
        for defense, after in by_defense.items()
    }
