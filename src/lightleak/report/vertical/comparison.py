"""Results of several seeds grouped by property, adversary and attack, each beside guessing the auxiliary share."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from lightleak.core.intermediate_results import KINDS
from lightleak.report.estimate import Estimate, estimate
from lightleak.report.vertical.result import NO_DEFENSE, PropertyResult, Setting
from lightleak.report.vertical.wording import attack_name

BASELINE = "prior"
"""The attack that answers with the auxiliary share and never reads the intermediate results."""


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
    """

    setting: Setting
    property_name: str
    adversary: str
    attack: str
    variant: str
    results: tuple[PropertyResult, ...] = field(repr=False, hash=False)
    detail: str = ""

    @property
    def title(self) -> str:
        """The attack as a reader knows it, with its variant."""
        return attack_name(self.attack, self.variant) + (f" ({self.detail})" if self.detail else "")

    @property
    def is_baseline(self) -> bool:
        """Whether this is guessing itself."""
        return self.attack == BASELINE

    @cached_property
    def error(self) -> Estimate | None:
        """Mean absolute error over seeds (ProVFL's MAE); None without truth."""
        return estimate(result.error for result in self.results)

    @cached_property
    def guess_error(self) -> Estimate | None:
        """What the auxiliary share is off by, over the same seeds."""
        return estimate(result.prior_error for result in self.results)

    @cached_property
    def gain(self) -> Estimate | None:
        """How much closer than guessing, paired by seed."""
        return estimate(result.gain for result in self.results)

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

    @property
    def beats_guessing(self) -> bool:
        """Whether the whole 95% interval of `gain` lies above 0."""
        gain = self.gain
        return gain is not None and gain.low is not None and gain.low > 0

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
    """The groups that are no guesses."""
    return tuple(group for group in groups if not group.is_baseline)


def undefended(groups: Sequence[Group]) -> tuple[Group, ...]:
    """The groups of a training without defence; all of them where every training had one."""
    return tuple(group for group in groups if group.setting.defense == NO_DEFENSE) or tuple(groups)


def most_telling(groups: Sequence[Group]) -> Group | None:
    """The attack that comes closest, among those that beat guessing if any does; None where no error is known.

    Only groups with at least half the seeds of the best-measured one are chosen from: a single lucky seed gives a
    small error by chance.
    """
    known = [(error, group) for group in attacks(groups) if (error := group.error) is not None]
    if not known:
        return None
    most = max(error.n for error, _ in known)
    known = [pair for pair in known if 2 * pair[0].n >= most]
    beating = [pair for pair in known if pair[1].beats_guessing]
    return min(beating or known, key=lambda pair: pair[0].mean)[1]


@dataclass(frozen=True)
class Property:
    """All that is known of one property in one setting apart from the defence.

    Attributes:
        dataset: name of the table; None where the rows do not say.
        name: the property.
        groups: attacks on it without defence (with one where all trainings had one), guesses left out.
    """

    dataset: str | None
    name: str
    groups: tuple[Group, ...]

    @property
    def results(self) -> list[PropertyResult]:
        """Rows of all groups."""
        return [result for group in self.groups for result in group.results]

    @cached_property
    def guess_error(self) -> Estimate | None:
        """Error of guessing, each seed once."""
        by_seed = {(one.run, str(one.seed), one.setting): one.prior_error for one in self.results}
        return estimate(by_seed.values())

    @property
    def adversaries(self) -> list[str]:
        """Adversaries that attacked it, in order."""
        return sorted({group.adversary for group in self.groups})

    def of(self, adversary: str) -> tuple[Group, ...]:
        """Its groups of one adversary."""
        return tuple(group for group in self.groups if group.adversary == adversary)


def properties(groups: Sequence[Group]) -> tuple[Property, ...]:
    """Properties in the order of the rows, each with its groups sorted by adversary and error.

    A property that only ever was attacked under a defence keeps its defended groups.
    """
    found: dict[tuple[str | None, str], list[Group]] = defaultdict(list)
    for group in groups:
        found[group.setting.dataset, group.property_name].append(group)
    return tuple(
        Property(dataset, name, tuple(sorted(attacks(undefended(members)), key=_reading_order)))
        for (dataset, name), members in found.items()
    )


def _reading_order(group: Group) -> tuple[str, bool, float]:
    error = group.error
    return group.adversary, error is None, error.mean if error else 0.0
