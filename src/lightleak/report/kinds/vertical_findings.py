"""What stands out of vertical runs: where most was learned from the exchange, and what defenses change and cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lightleak.core.grouping import by_key
from lightleak.core.results import NONE
from lightleak.report.budget import budget
from lightleak.report.compare import attacks
from lightleak.report.intervals import Estimate
from lightleak.report.kinds.vertical_changes import Change, change_of, untried
from lightleak.report.kinds.vertical_groups import Groups, Place, VerticalGroup, chosen_on_other_seeds, undefended
from lightleak.report.read import Run


@dataclass(frozen=True)
class Outcome:
    """One adversary on one property under one defense, by the attack chosen on other seeds.

    Attributes:
        group: that attack.
        change: what the defense changes for an adversary who knows it; empty without a defense, and where no attack
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
        """Outcomes by defense, the reference first; each is compared with that of no defense, where there is one."""
        if not self.tried:
            return {}
        reference = undefended(self.tried)[0].defense
        by_defense = {
            defense: by_key((one for one in self.tried if one.defense == defense), lambda one: one.place)
            for defense in dict.fromkeys((reference, *(group.defense for group in self.tried)))
        }
        before = by_defense.get(NONE, {})

        def outcome(group: VerticalGroup, same: Groups) -> Outcome:
            there = before.get(group.place, []) if group.is_defended else []
            return Outcome(group, change_of(same, there, self.runs), untried(same, there))

        return {
            defense: {
                place: outcome(group, same)
                for place, same in after.items()
                if (group := chosen_on_other_seeds(same)) is not None
            }
            for defense, after in by_defense.items()
        }

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
        """Of `leaking`, else of all, the one that learned most from the exchange; None without truth."""
        return max(self.leaking or self.best, key=lambda group: group.learned_mean, default=None)

    @cached_property
    def honest(self) -> VerticalGroup | None:
        """What the main adversary gets without departing from the protocol."""
        here = self.main and (self.main.place, self.main.defense)
        honest = [one for one in self.tried if not one.manipulates and (one.place, one.defense) == here]
        return chosen_on_other_seeds(honest)

    @cached_property
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
