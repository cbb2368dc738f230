"""Results of several seeds grouped by property, adversary and attack, each paired with the adversary's own columns."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from lightleak.core.intermediate_results import KINDS
from lightleak.report.estimate import Estimate, estimate
from lightleak.report.intervals import bounded
from lightleak.report.vertical.result import NO_DEFENSE, PropertyResult, Setting
from lightleak.report.vertical.wording import attack_name
from lightleak.report.vertical.worth import Worth, worth_of

BASELINE = "prior"
"""The attack that answers with the auxiliary share and never reads the intermediate results."""

READS_NO_EXCHANGE = frozenset({BASELINE, "aia_raw", "aia_raw_adjusted"})
"""Attacks that read nothing of what is exchanged: what they find has not leaked."""

ACTIVE = "provfl_m"
"""The attack that departs from the protocol: it replaces labels or trains its network for the attack as well."""


@dataclass(frozen=True)
class Group:
    """One attack of one adversary on one property, over seeds.

    Attributes:
        setting: what was held fixed.
        property_name: the property.
        adversary: ``C1`` or ``C2``.
        attack: name of the attack.
        variant: how it was carried out.
        results: one per seed.
        detail: settings that tell it from others of the same name here; empty where there is one.
        chosen_among: attacks among which every seed's was chosen by the other seeds (`chosen_on_other_seeds`).
    """

    setting: Setting
    property_name: str
    adversary: str
    attack: str
    variant: str
    results: tuple[PropertyResult, ...] = field(repr=False, hash=False)
    detail: str = ""
    chosen_among: int = 1

    @property
    def title(self) -> str:
        """The attack as a reader knows it, with its variant; of a choice, each attack and its number of seeds."""
        counts = Counter(attack_name(result.attack, result.variant) for result in self.results)
        if len(counts) > 1:
            return ", ".join(f"{name} ({count} of {len(self.results)} seeds)" for name, count in counts.most_common())
        return attack_name(self.attack, self.variant) + (f" ({self.detail})" if self.detail else "")

    @property
    def is_baseline(self) -> bool:
        """Whether this is guessing itself."""
        return self.attack == BASELINE

    @property
    def reads_exchange(self) -> bool:
        """Whether it reads anything of what is exchanged."""
        return self.attack not in READS_NO_EXCHANGE

    @property
    def manipulates(self) -> bool:
        """Whether, in some seed, the attack departs from the protocol."""
        return any(one.attack == ACTIVE or not {"LR", "MR"}.isdisjoint(one.variant.split("+")) for one in self.results)

    @cached_property
    def error(self) -> Estimate | None:
        """Mean absolute error over seeds (ProVFL's MAE); None without truth."""
        return estimate(result.error for result in self.results)

    @cached_property
    def own_error(self) -> Estimate | None:
        """What the adversary's own columns alone are off by, over the same seeds."""
        return estimate(result.own_error for result in self.results)

    @cached_property
    def unaware_error(self) -> Estimate | None:
        """Mean absolute error of an adversary who does not know the defence."""
        return estimate(result.unaware_error for result in self.results)

    @cached_property
    def trained_error(self) -> Estimate | None:
        """How far off that adversary is from the share that was trained on."""
        return estimate(result.trained_error for result in self.results)

    @cached_property
    def learned(self) -> Estimate | None:
        """What was learned from the exchange: how much closer than own columns alone, paired by seed."""
        return self.learned_among(1)

    def learned_among(self, comparisons: int) -> Estimate | None:
        """The same with an interval that holds for several groups at once (Bonferroni), to name the best of them."""
        differences = [learned for result in self.results if (learned := result.learned) is not None]
        return bounded(differences, -1.0, 1.0, comparisons)

    def leaks_among(self, comparisons: int) -> bool:
        """Whether the whole interval of `learned_among` lies above 0."""
        learned = self.learned_among(comparisons)
        return learned is not None and learned.low is not None and learned.low > 0

    @property
    def leaks(self) -> bool:
        """Whether the whole 95% interval of `learned` lies above 0."""
        return self.leaks_among(1)

    @cached_property
    def worth(self) -> Worth | None:
        """Size of a random labelled sample that estimates the share as well."""
        return worth_of((result.true, result.error) for result in self.results)

    @cached_property
    def own_worth(self) -> Worth | None:
        """The same of the adversary's own columns alone."""
        return worth_of((result.true, result.own_error) for result in self.results)

    @cached_property
    def estimated(self) -> Estimate | None:
        """Mean estimated fraction over seeds."""
        return estimate(result.estimated for result in self.results)

    @cached_property
    def true(self) -> Estimate | None:
        """Mean true fraction over seeds; seeds are different splits and differ a little."""
        return estimate(result.true for result in self.results)

    @cached_property
    def auc(self) -> Estimate | None:
        """AUC of the target over seeds."""
        return estimate(result.auc for result in self.results)

    @cached_property
    def seconds(self) -> Estimate | None:
        """Wall time of the attack."""
        return estimate(result.seconds for result in self.results)

    @property
    def coverage(self) -> tuple[int, int] | None:
        """How many of the attack's own intervals hold the truth, and of how many; None where none is known."""
        known = [result.covered for result in self.results if result.covered is not None]
        return (sum(known), len(known)) if known else None

    @cached_property
    def kind_errors(self) -> dict[str, Estimate]:
        """Mean absolute error by kind of intermediate result, where the attack estimates from each."""
        found = {kind: estimate(result.error_of(kind) for result in self.results) for kind in KINDS}
        return {kind: value for kind, value in found.items() if value is not None}


def compare(results: Iterable[PropertyResult]) -> tuple[Group, ...]:
    """Group results over seeds, runs together; groups stand in the order of the rows.

    A group holds each seed once. Where a seed comes twice under one name, the settings in which the rows differ tell
    them apart, then their run.
    """
    members: dict[tuple[Setting, str, str, str, str], list[PropertyResult]] = defaultdict(list)
    for one in results:
        members[one.setting, one.property_name, one.adversary, one.attack, one.variant].append(one)
    return tuple(
        Group(*key, results=tuple(rows), detail=detail)
        for key, same in members.items()
        for detail, rows in _apart(same).items()
    )


def _apart(rows: Sequence[PropertyResult]) -> dict[str, list[PropertyResult]]:
    """Rows by what tells those of one seed from each other."""
    if not _collide(rows):
        return {"": list(rows)}
    names = dict.fromkeys(name for row in rows for name in row.options)
    differing = [name for name in names if len({row.options.get(name) for row in rows}) > 1]
    found: dict[str, list[PropertyResult]] = defaultdict(list)
    for row in rows:
        found[", ".join(f"{name} {row.options.get(name, 'unset')}" for name in differing)].append(row)
    if not any(map(_collide, found.values())):
        return found
    by_run: dict[str, list[PropertyResult]] = defaultdict(list)
    for detail, same in found.items():
        for row in same:
            by_run[", ".join(part for part in (detail, f"run {row.run}") if part)].append(row)
    return by_run


def _collide(rows: Sequence[PropertyResult]) -> bool:
    return any(count > 1 for count in Counter(str(row.seed) for row in rows).values())


def attacks(groups: Sequence[Group]) -> tuple[Group, ...]:
    """The groups that read what is exchanged."""
    return tuple(group for group in groups if group.reads_exchange)


def undefended(groups: Sequence[Group]) -> tuple[Group, ...]:
    """The groups of a training without defence; all of them where every training had one."""
    return tuple(group for group in groups if group.setting.defense == NO_DEFENSE) or tuple(groups)


def chosen_on_other_seeds(groups: Sequence[Group]) -> Group | None:
    """What an attacker gets who picks the attack that was closest elsewhere; None where no error is known.

    For every seed the attack is taken whose mean error over all other seeds is least, so that no seed has a say in the
    choice it is measured with. With one seed the choice is made afterwards, on that seed. Only attacks with at least
    half the seeds of the best-measured one take part: a single lucky seed gives a small error by chance.

    Args:
        groups: attacks of one adversary on one property under one defence.
    """
    known = [group for group in attacks(groups) if group.error is not None]
    if not known:
        return None
    most = max(len(_by_seed(group)) for group in known)
    known = [group for group in known if 2 * len(_by_seed(group)) >= most]
    if len(known) == 1:
        return known[0]
    results = {group: _by_seed(group) for group in known}
    picked = []
    for seed in dict.fromkeys(seed for of in results.values() for seed in of):
        here = [group for group in known if seed in results[group]]
        best = min(here, key=lambda group: _mean_error(results[group], without=seed))
        picked.append((best, results[best][seed]))
    usual = Counter(group for group, _ in picked).most_common(1)[0][0]
    return replace(usual, results=tuple(result for _, result in picked), chosen_among=len(known))


def _by_seed(group: Group) -> dict[str, PropertyResult]:
    return {str(result.seed): result for result in group.results if result.error is not None}


def _mean_error(results: dict[str, PropertyResult], without: str) -> float:
    others = [one.error for seed, one in results.items() if seed != without or len(results) == 1]
    return sum(error for error in others if error is not None) / len(others)


@dataclass(frozen=True)
class Property:
    """All that is known of one property in one setting apart from the defence.

    Attributes:
        dataset: name of the table; None where the rows do not say.
        name: the property.
        groups: attacks on it without defence (with one where all trainings had one), of each adversary those that read
            no exchange last; guesses left out.
    """

    dataset: str | None
    name: str
    groups: tuple[Group, ...]

    @property
    def results(self) -> list[PropertyResult]:
        """Rows of all groups."""
        return [result for group in self.groups for result in group.results]

    @property
    def adversaries(self) -> list[str]:
        """Adversaries that attacked it, in order."""
        return sorted({group.adversary for group in attacks(self.groups)})

    def of(self, adversary: str) -> tuple[Group, ...]:
        """Its groups of one adversary."""
        return tuple(group for group in self.groups if group.adversary == adversary)

    @cached_property
    def best(self) -> tuple[Group, ...]:
        """By adversary, what it gets with the attack chosen on other seeds."""
        found = (chosen_on_other_seeds(self.of(name)) for name in self.adversaries)
        return tuple(group for group in found if group is not None)


def properties(groups: Sequence[Group]) -> tuple[Property, ...]:
    """Properties in the order of the rows, each with its groups sorted by adversary and error.

    A property that only ever was attacked under a defence keeps its defended groups.
    """
    found: dict[tuple[str | None, str], list[Group]] = defaultdict(list)
    for group in groups:
        found[group.setting.dataset, group.property_name].append(group)
    return tuple(
        Property(
            dataset,
            name,
            tuple(sorted((one for one in undefended(members) if not one.is_baseline), key=_reading_order)),
        )
        for (dataset, name), members in found.items()
    )


def most_telling(best: Sequence[Group]) -> Group | None:
    """Of several adversaries and properties the one that learned most from the exchange.

    Among those whose interval, widened for this choice, lies above 0; where none does, the one that comes closest.
    """
    leaking = [group for group in best if group.leaks_among(len(best))]
    if leaking:
        return max(leaking, key=lambda group: learned.mean if (learned := group.learned) else 0.0)
    return min(best, key=lambda group: error.mean if (error := group.error) else 2.0, default=None)


def _reading_order(group: Group) -> tuple[str, bool, bool, float]:
    error = group.error
    return group.adversary, not group.reads_exchange, error is None, error.mean if error else 0.0
