"""What stands out of vertical runs: where most was learned from the exchange, and what defenses change and cost."""

import statistics
from dataclasses import dataclass
from functools import cached_property

from lightleak.core.grouping import by_key
from lightleak.core.results import VerticalRow
from lightleak.report.compare import Score, paired
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.vertical_groups import (
    Groups,
    Place,
    VerticalGroup,
    attacks,
    chosen_on_other_seeds,
    seed_of,
    undefended,
)


@dataclass(frozen=True)
class Outcome:
    """One adversary on one property under one defense, by the attack chosen on other seeds.

    Attributes:
        group: that attack.
        rise: how much further off the defense leaves an adversary who knows it, over the attacks that were tried with
            and without it, each chosen on other seeds; None where none was, or without a defense.
        cost: what the defense does to the model's AUC, after minus before, over the same trainings.
    """

    group: VerticalGroup
    rise: Estimate | None = None
    cost: Estimate | None = None

    @property
    def error(self) -> Estimate:
        """How far off the attack is."""
        assert self.group.error is not None  # `chosen_on_other_seeds` keeps only groups with an error
        return self.group.error

    @property
    def helps(self) -> bool:
        """Whether the defense measurably leaves the attacker further off."""
        return self.rise is not None and self.rise.is_above


@dataclass(frozen=True)
class Findings:
    """All that vertical runs measured, and what stands out.

    Attributes:
        groups: every group.
        redact: leave out every share, and with it how far off the adversary's own columns alone are.
    """

    groups: Groups
    redact: bool = False

    @cached_property
    def tried(self) -> Groups:
        """The attacks that read what is exchanged."""
        return attacks(self.groups)

    @cached_property
    def outcomes(self) -> dict[str, dict[Place, Outcome]]:
        """Outcomes by defense, what they are compared with first."""
        return outcomes(self.tried) if self.tried else {}

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
        main = self.main
        honest = (one for one in self.tried if not one.manipulates)
        return main and chosen_on_other_seeds(
            [one for one in honest if (one.place, one.defense) == (main.place, main.defense)]
        )

    @property
    def leaking(self) -> list[VerticalGroup]:
        """Those of `best` that measurably learned something from the exchange, at all places at once."""
        return [group for group in self.best if group.leaks(self.places)]

    @cached_property
    def defended(self) -> list[Outcome]:
        """What the main adversary gets of the main property under each defense."""
        _, *others = self.outcomes.values() or [{}]
        return [found[self.main.place] for found in others if self.main and self.main.place in found]

    @property
    def helping(self) -> list[Outcome]:
        """Those of the defenses that measurably help."""
        return [one for one in self.defended if one.helps]

    @property
    def most_protective(self) -> Outcome | None:
        """The one of them that leaves the adversary furthest off."""
        return max(self.helping, key=lambda one: one.error.mean, default=None)

    @property
    def least_costly(self) -> Outcome | None:
        """The one of them that costs least."""
        return max(self.helping, key=lambda one: one.cost.mean if one.cost else -1.0, default=None)


def most_telling(best: Groups) -> VerticalGroup | None:
    """Return of several adversaries and properties the one that learned most from the exchange.

    Among those whose interval, widened for this choice, lies above 0; where none does, the one that comes closest.
    """
    leaking = [group for group in best if group.leaks(len(best))]
    if leaking:
        return max(leaking, key=lambda group: statistics.fmean(group.values("learned")))
    return min(best, key=lambda group: group.sorted_by, default=None)


def outcomes(groups: Groups) -> dict[str, dict[Place, Outcome]]:
    """Outcomes by defense, the reference first, each compared over the attacks that were tried with and without it."""
    tried = attacks(groups)
    reference = undefended(tried)[0].defense
    by_defense = {
        defense: by_key((one for one in tried if one.defense == defense), lambda one: one.place)
        for defense in dict.fromkeys((reference, *(group.defense for group in tried)))
    }
    before = by_defense[reference]
    return {
        defense: {
            place: Outcome(group) if defense == reference else _compared(group, same, before.get(place, []))
            for place, same in after.items()
            if (group := chosen_on_other_seeds(same)) is not None
        }
        for defense, after in by_defense.items()
    }


def _compared(group: VerticalGroup, here: Groups, there: Groups) -> Outcome:
    names = {_attack(one) for one in here} & {_attack(one) for one in there}
    after, before = ([one for one in some if _attack(one) in names] for some in (here, there))
    if not names:
        return Outcome(group)
    # The AUC is that of an attack that only watches, where there is one.
    watching = min(after, key=lambda one: one.manipulates)
    same = next(one for one in before if _attack(one) == _attack(watching))
    rise = _paired(chosen_on_other_seeds(after), chosen_on_other_seeds(before), "error")
    return Outcome(group, rise, _paired(watching, same, "auc"))


def _paired(group: VerticalGroup | None, other: VerticalGroup | None, score: Score[VerticalRow]) -> Estimate | None:
    """Mean difference over the seeds that both have; None where they share none."""
    found = None if group is None else paired(group, other, score, seed_of)
    return found if found is not None and found.n else None


def _attack(group: VerticalGroup) -> tuple[object, ...]:
    row = group.first
    return row.attack, row.variant, group.variant, row.target, row.epoch
