"""Estimates of a property's share over seeds, by attack, and the attack that is chosen on other seeds."""

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from lightleak.core.grouping import by_key
from lightleak.core.results import NONE, VerticalRow
from lightleak.report.compare import Group, apart, attacks, fixed, group_rows
from lightleak.report.format import attack_title
from lightleak.report.intervals import Estimate, bounded
from lightleak.report.kinds.vertical_worth import worth_of

PASSIVE = "passive"

UNKNOWN = "not known"
"""The defense of a training of which a capture says nothing."""

GUESS = "prior"
"""The baseline that answers with the auxiliary share."""

HALF = 0.5
"""Share of the auxiliary sample that has the property, by construction; an answer that takes no exchange."""

ACTIVE = "provfl_m"
"""The attack that departs from the protocol, for files that do not state what an attacker does."""

FIXED = ("dataset", "target", "epoch", "defense")
"""Fields that are fixed while attacks, properties and adversaries are compared."""

Place = tuple[str | None, str, str]
"""Table, property and adversary."""


@dataclass(frozen=True)
class VerticalGroup(Group[VerticalRow]):
    """One attack of one adversary on one property, a row for each seed.

    Attributes:
        chosen_among: attacks among which every seed's was chosen by the other seeds (`chosen_on_other_seeds`).
    """

    chosen_among: int = 1

    @property
    def title(self) -> str:
        """The attack as a reader knows it; of a choice, each attack and its number of seeds."""
        counts = Counter(map(attack_name, self.rows))
        if len(counts) > 1:
            return ", ".join(f"{name} ({count} of {len(self.rows)} seeds)" for name, count in counts.most_common())
        return attack_name(self.first) + (f" ({self.variant})" if self.variant else "")

    @property
    def place(self) -> Place:
        """Table, property and adversary."""
        return self.first.dataset, self.first.property_name, self.first.adversary

    @property
    def defense(self) -> str:
        """Label of the defense."""
        return self.first.defense or NONE

    @property
    def is_defended(self) -> bool:
        """Whether there is a defense."""
        return self.defense not in (NONE, UNKNOWN)

    @property
    def is_stated(self) -> bool:
        """Whether the file says which defense there was, if any."""
        return self.defense != UNKNOWN

    @property
    def defense_label(self) -> str:
        """The defense as the config calls it."""
        if not self.is_stated:
            return "defense not known"
        return self.defense.replace("_", " ") if self.is_defended else "no defense"

    @property
    def manipulates(self) -> bool:
        """Whether, in some seed, the attack departs from the protocol."""
        return any(map(_manipulates, self.rows))

    @cached_property
    def by_seed(self) -> dict[str, VerticalRow]:
        """The rows whose error is known."""
        return {seed_of(row): row for row in self.rows if row.error is not None}

    @cached_property
    def error(self) -> Estimate | None:
        """Mean absolute error over seeds (ProVFL's MAE); None without truth."""
        return bounded(self.values("error"))

    @cached_property
    def own_error(self) -> Estimate | None:
        """What the adversary's own columns alone are off by, over the same seeds."""
        return bounded(self.values("own_columns_error"))

    @property
    def estimate(self) -> Estimate | None:
        """Mean of the estimates, of a single one with the attack's own interval."""
        found, (low, high) = self.mean("estimated"), self.first.ends
        is_single = found is not None and found.n == 1 and low is not None and high is not None
        return replace(found, low=low, high=high) if found and is_single else found

    def learned(self, comparisons: int = 1) -> Estimate | None:
        """What was learned from the exchange: how much closer than own columns alone, paired by seed.

        The interval holds for that many groups at once (Bonferroni), to name the best of them. It stays between minus
        the attack's error and the error of own columns alone, each at the upper end of its own interval.
        """
        found = bounded(self.values("learned"), -1.0, 1.0, comparisons)
        if found is None or found.low is None or found.high is None or self.own_error is None or self.error is None:
            return found
        error, own = (end if end is not None else 1.0 for end in (self.error.high, self.own_error.high))
        low, high = max(found.low, min(-error, found.mean)), min(found.high, max(own, found.mean))
        return replace(found, low=low, high=high)

    @property
    def learned_mean(self) -> float:
        """What was learned on average, to sort by; where own columns alone were not measured, minus the error."""
        learned = self.learned()
        return learned.mean if learned else -self.sorted_by

    def leaks(self, comparisons: int = 1) -> bool:
        """Whether something was measurably learned: more than own columns tell, and than the answer `HALF`."""
        known = ((row.true_fraction, row.error) for row in self.rows)
        closer = (abs(HALF - true) - error for true, error in known if true is not None and error is not None)
        learned, beyond_half = self.learned(comparisons), bounded(closer, -1.0, 1.0, comparisons)
        return learned is not None and learned.is_above and (beyond_half is None or beyond_half.is_above)

    @property
    def worth(self) -> Estimate | None:
        """Size of a random labeled sample that estimates the share as well."""
        return worth_of((row.true_fraction, row.error) for row in self.rows)

    @property
    def sorted_by(self) -> float:
        """The mean error, to sort by; unknown ones come last."""
        return self.error.mean if self.error else 2.0

    @property
    def coverage(self) -> tuple[int, int] | None:
        """How many of the attack's own intervals contain the truth, and of how many; None where none is known."""
        known = [row.covered for row in self.rows if row.covered is not None]
        return (sum(known), len(known)) if known else None

    def topic(self, several: bool) -> str:
        """Name the property, with its table where there are several."""
        table, name, _ = self.place
        return f"{table or 'table not stated'}: {name}" if several else name

    def setting_words(self, names: Iterable[str]) -> list[str]:
        """Name the given fields of `FIXED`, each in a short phrase."""
        row = self.first
        phrases = {
            "dataset": row.dataset or "dataset not stated",
            "target": row.target or "network not stated",
            "epoch": "epoch not stated" if row.epoch is None else f"epoch {row.epoch}",
            "defense": self.defense_label,
        }
        return [phrases[name] for name in names]


Groups = Sequence[VerticalGroup]


def attack_name(row: VerticalRow) -> str:
    """The attack as the literature calls it, with its variant; following the protocol goes without saying.

    >>> attack_name(VerticalRow(attack="provfl_m", property_name="a=b", variant="LR+MR"))
    'ProVFL-M, LR+MR'
    """
    return attack_title(row.attack) + (f", {row.variant}" if row.variant and row.variant != PASSIVE else "")


def seed_of(row: VerticalRow) -> str:
    """The key by which rows of one group differ: the seed, and the capture where captures were attacked."""
    return str(row.seed) if row.capture is None else f"{row.capture}, seed {row.seed}"


def compare(rows: Iterable[VerticalRow]) -> tuple[VerticalGroup, ...]:
    """Group rows over seeds, runs together, in the order of the rows.

    A group contains each seed once, with the same settings; see `lightleak.report.compare.apart`.
    """
    found = group_rows(
        map(_general, rows),
        lambda row: (*fixed(row, FIXED), row.property_name, row.adversary, row.attack, row.variant),
        lambda same: apart(same, seed_of),
    )
    return tuple(VerticalGroup(group.rows, group.variant) for group in found)


def undefended(groups: Groups) -> Groups:
    """The groups of a training without a defense; all of them where every training had one."""
    return [group for group in groups if group.defense == NONE] or groups


def chosen_on_other_seeds(groups: Groups) -> VerticalGroup | None:
    """What an attacker gets who picks the attack that was closest elsewhere; None where no error is known.

    For every seed the attack is taken whose mean error over all other seeds is least, so that no seed has a say in the
    choice it is measured with. With one seed the choice is made afterwards, on that seed. Only attacks with at least
    half the seeds of the best-measured one take part: a single lucky seed gives a small error by chance.

    Args:
        groups: attacks of one adversary on one property under one defense.

    Returns:
        The rows that were chosen, those of the attack that was chosen most often first.
    """
    known = [(group, group.by_seed) for group in attacks(groups)]
    most = max((len(rows) for _, rows in known), default=0)
    known = [(group, rows) for group, rows in known if rows and 2 * len(rows) >= most]
    if len(known) < 2:
        return known[0][0] if known else None
    picked = []
    for seed in dict.fromkeys(seed for _, rows in known for seed in rows):
        here = [index for index, (_, rows) in enumerate(known) if seed in rows]
        best = min(here, key=lambda index: mean_error(known[index][1], without=seed))
        picked.append((best, known[best][1][seed]))
    usual = Counter(index for index, _ in picked).most_common(1)[0][0]
    rows = tuple(row for _, row in sorted(picked, key=lambda pair: pair[0] != usual))
    return replace(known[usual][0], rows=rows, chosen_among=len(known))


def chosen(groups: Groups) -> dict[Place, VerticalGroup]:
    """What every adversary gets of every property by the attack chosen on other seeds."""
    by_place = by_key(attacks(groups), lambda group: group.place)
    found = {place: chosen_on_other_seeds(same) for place, same in by_place.items()}
    return {place: group for place, group in found.items() if group is not None}


def properties(groups: Groups) -> dict[str, list[VerticalGroup]]:
    """Attacks on each property without a defense, with one where all trainings had one; guesses are left out.

    Returns:
        By name of the property, with that of its table where there are several, in the order of the rows: groups sorted
        by adversary and error, of each adversary baselines last.
    """
    several, found = len({group.first.dataset for group in groups}) > 1, {}
    for same in by_key(groups, lambda group: group.place[:2]).values():
        if kept := [group for group in undefended(same) if group.attack != GUESS]:
            kept.sort(key=lambda group: (group.place[2], group.is_baseline, group.sorted_by))
            found[same[0].topic(several)] = kept
    return found


def _defense(row: VerticalRow) -> str:
    """The label of the defense, but `NONE` exactly where that is its name, and `UNKNOWN` where a capture lacks it."""
    if row.defense_name == NONE:
        return NONE
    if row.capture is not None and row.defense is None:
        return UNKNOWN
    return (row.defense if row.defense != NONE else row.defense_name) or NONE


def _general(row: VerticalRow) -> VerticalRow:
    """The row with its property unnamed in what it says of itself, so that what holds for all of them is shown once."""
    named = re.compile(rf"(?<!\w){re.escape(row.property_name)}(?!\w)")
    stated = row.threat_model and named.sub("the property", row.threat_model)
    warnings = tuple(named.sub("the property", warning) for warning in row.warnings)
    return replace(row, defense=_defense(row), threat_model=stated, warnings=warnings)


def _manipulates(row: VerticalRow) -> bool:
    if row.threat is not None:
        return bool(row.threat.does)
    return row.attack == ACTIVE or not {"LR", "MR"}.isdisjoint(row.variant.split("+"))


def mean_error(rows: Mapping[str, VerticalRow], without: str) -> float:
    """Return the mean error over all other seeds; of a single one, its own."""
    others = [row.error for seed, row in rows.items() if seed != without or len(rows) == 1]
    return statistics.fmean(error for error in others if error is not None)
