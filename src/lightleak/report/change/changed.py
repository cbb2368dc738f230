"""What one attack measured in two runs, matched update by update where both attacked the same rows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lightleak.core.results import UpdateRow
from lightleak.report.change.settings import same_clients
from lightleak.report.compare import Group, by_key, fixed
from lightleak.report.intervals import Estimate, Values, estimate, paired_difference, unpaired_difference
from lightleak.report.kinds.updates_groups import compare, update_of
from lightleak.report.kinds.updates_words import FIXED, Moment, moment_of
from lightleak.report.read import Run, load_cells

SHARES = ("cell_accuracy", "categorical_accuracy", "numerical_accuracy", "exact_match_rate", "certified_share")
"""Metrics that are compared as shares; of each, more is worse for privacy."""

METRICS = (*SHARES, "rmse")
"""The last is in standard deviations of the column; of it, less is worse for privacy."""

OF_THE_RUN = ("run", "defense", "defense_strength", "epsilon", "release_epsilon", "delta")
"""Fields that a comparison of runs is about: they may differ within what is compared."""

MAY_BE_ALIKE = ("target", "protocol", "labels", "local_epochs", "local_batches", "n_clients")
"""Fields that do not tell rows of one run apart where each run has a single value of them."""

Verdict = Literal["less", "more", "unclear", "equal"]


@dataclass(frozen=True)
class Change:
    """One metric in two runs.

    Attributes:
        before: mean over the updates of the first run.
        after: of the second.
        difference: after minus before; its ``n`` is the number of pairs, 0 where the runs attacked different rows.
        is_equal: whether both are equal on every pair.
    """

    before: Estimate
    after: Estimate
    difference: Estimate
    is_equal: bool = False

    @property
    def verdict(self) -> Verdict:
        """What the difference's interval says; ``equal`` where every pair is."""
        if self.is_equal:
            return "equal"
        low, high = self.difference.low, self.difference.high
        if low is None or high is None:
            return "unclear"
        return "less" if high < 0 else "more" if low > 0 else "unclear"


@dataclass(frozen=True)
class ChangedGroup:
    """One attack on updates of one size at one moment, before and after.

    Attributes:
        group: the attack in the first run.
        n: updates attacked before and after.
        pairs: updates of the same rows in both; 0 where the runs attacked different rows.
        changes: by metric.
    """

    group: Group[UpdateRow]
    n: tuple[int, int]
    pairs: int
    changes: Mapping[str, Change]

    @property
    def moment(self) -> Moment:
        """When the updates were sent."""
        return moment_of(self.group.first)


def changed_groups(before: Run, after: Run) -> tuple[ChangedGroup, ...]:
    """Every attack, size and moment that both runs measured, in the order of the first run's rows."""
    alike = [
        name
        for name in MAY_BE_ALIKE
        if all(len({getattr(row, name) for row in run.of(UpdateRow)}) == 1 for run in (before, after))
    ]
    names = [name for name in FIXED if name not in (*OF_THE_RUN, *alike, "epoch", "source")]

    def pooled(run: Run) -> dict[object, list[Group[UpdateRow]]]:
        """Groups of one attack, size and moment; those of the training contain one for each epoch."""
        return by_key(
            compare([run]),
            lambda g: (fixed(g.first, names), g.attack, g.variant, g.first.batch_size, moment_of(g.first)),
        )

    first, second = pooled(before), pooled(after)
    found = (_changed(before, after, first[key], second[key]) for key in first if key in second)
    return tuple(one for one in found if one.changes)


def _changed(
    first: Run, second: Run, before: Sequence[Group[UpdateRow]], after: Sequence[Group[UpdateRow]]
) -> ChangedGroup:
    mine, theirs = ([row for group in groups for row in group.rows] for groups in (before, after))
    is_paired = on_same_rows(first, second, mine, theirs)
    changes: dict[str, Change] = {}
    for name in METRICS:
        largest = 1.0 if name in SHARES else math.inf
        change = _change(values_of(mine, name), values_of(theirs, name), is_paired, largest)
        if change is not None:
            changes[name] = change
    pairs = max((change.difference.n for change in changes.values()), default=0)
    return ChangedGroup(before[0], (len(mine), len(theirs)), pairs, changes)


def _change(before: Values, after: Values, is_paired: bool, largest: float) -> Change | None:
    means = estimate(before.values()), estimate(after.values())
    subtract = paired_difference if is_paired else unpaired_difference
    difference = subtract(before, after, largest)
    if means[0] is None or means[1] is None or difference is None:
        return None
    pairs = [(before[key], after[key]) for key in before if key in after] if is_paired else []
    return Change(means[0], means[1], difference, bool(pairs) and all(mine == other for mine, other in pairs))


def values_of(rows: Sequence[UpdateRow], name: str) -> dict[tuple[object, ...], float]:
    """One metric by the update that was attacked."""
    return {update_of(row): value for row in rows if (value := row.number(name)) is not None}


def on_same_rows(first: Run, second: Run, before: Sequence[UpdateRow], after: Sequence[UpdateRow]) -> bool:
    """Whether both runs attacked updates of the same rows, so that their scores can be paired.

    The rows themselves decide where both runs kept them, of the first update they share; else the configs do.
    """
    others = {(row.attack, update_of(row)): row for row in after}
    shared = [(row, other) for row in before if (other := others.get((row.attack, update_of(row)))) is not None]
    if not shared:
        return False
    for mine, other in shared:
        rows = _true_rows(first, mine), _true_rows(second, other)
        if rows[0] and rows[1]:
            return rows[0] == rows[1]
    return same_clients(first, second, before[0].source)


def _true_rows(run: Run, row: UpdateRow) -> list[tuple[str, ...]]:
    """True rows of one update in any order; empty where they were not kept or left out."""
    cells = load_cells(run, row.reconstruction) or ()
    if not any(cell["true"] for cell in cells):
        return []
    return sorted(tuple(cell["true"] for cell in same) for same in by_key(cells, lambda cell: cell["row"]).values())
