"""What one adversary gets of one property under one defence, beside what it gets without."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lightleak.report.estimate import Estimate, estimate
from lightleak.report.vertical.comparison import Group, attacks, chosen_on_other_seeds
from lightleak.report.vertical.result import NO_DEFENSE, PropertyResult

Place = tuple[str | None, str, str]
"""Table, property and adversary."""


@dataclass(frozen=True)
class Line:
    """One adversary on one property under one defence, by the attack chosen on other seeds.

    Attributes:
        group: that attack.
        rise: how much further off the defence leaves an adversary who knows it, over the attacks that were tried with
            and without it, each chosen on other seeds; None where none was, or without a defence.
        cost: what the defence does to the model's AUC, after minus before, over the same trainings.
    """

    group: Group
    rise: Estimate | None = None
    cost: Estimate | None = None

    @property
    def error(self) -> Estimate:
        """How far off it is."""
        found = self.group.error
        assert found is not None  # `chosen_on_other_seeds` keeps only groups with an error
        return found

    @property
    def helps(self) -> bool:
        """Whether the defence measurably leaves the attacker further off."""
        return self.rise is not None and self.rise.low is not None and self.rise.low > 0


Lines = dict[Place, Line]


def place_of(group: Group) -> Place:
    """Where a group stands."""
    return group.setting.dataset, group.property_name, group.adversary


def reference_of(groups: Sequence[Group]) -> str:
    """What defences are compared with: none, or the first where every training had one."""
    names = [group.setting.defense for group in groups]
    return NO_DEFENSE if NO_DEFENSE in names else names[0]


def lines_of(groups: Sequence[Group], defense: str) -> Lines:
    """Lines of the trainings with one defence, none of them compared."""
    under = [group for group in attacks(groups) if group.setting.defense == defense]
    found = {}
    for place in dict.fromkeys(map(place_of, under)):
        chosen = chosen_on_other_seeds([group for group in under if place_of(group) == place])
        if chosen is not None:
            found[place] = Line(chosen)
    return found


def compared_lines(groups: Sequence[Group], reference: str, defense: str) -> Lines:
    """Lines under one defence, each compared over the attacks that were tried with and without it."""
    tried = attacks(groups)
    found = {}
    for place, line in lines_of(tried, defense).items():
        here, there = (
            [one for one in tried if one.setting.defense == name and place_of(one) == place]
            for name in (defense, reference)
        )
        shared = {_attack(one) for one in here} & {_attack(one) for one in there}
        after, before = (
            chosen_on_other_seeds([one for one in some if _attack(one) in shared]) for some in (here, there)
        )
        found[place] = Line(line.group, paired(after, before, lambda one: one.error), _cost(here, there, shared))
    return found


def paired(
    group: Group | None, other: Group | None, value: Callable[[PropertyResult], float | None]
) -> Estimate | None:
    """Mean of the first group's value minus the second's over the seeds they share."""
    if group is None or other is None:
        return None
    known = {str(one.seed): value(one) for one in other.results}
    pairs = [(value(one), known.get(str(one.seed))) for one in group.results]
    return estimate(a - b for a, b in pairs if a is not None and b is not None)


def _attack(group: Group) -> tuple[object, ...]:
    return group.attack, group.variant, group.detail, group.setting.target, group.setting.epoch


def _cost(here: Sequence[Group], there: Sequence[Group], shared: set[tuple[object, ...]]) -> Estimate | None:
    """AUC after minus before, in the training of an attack that only watches where there is one."""
    chosen = sorted((one for one in here if _attack(one) in shared), key=lambda one: one.manipulates)
    if not chosen:
        return None
    return paired(chosen[0], next(one for one in there if _attack(one) == _attack(chosen[0])), lambda one: one.auc)
