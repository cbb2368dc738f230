"""What one attack measured in two runs, matched update by update where both attacked the same rows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from lightleak.report.change.settings import same_clients
from lightleak.report.comparison import Group, compare
from lightleak.report.estimate import Estimate, estimate
from lightleak.report.intervals import Values, paired_difference, unpaired_difference
from lightleak.report.result import Result, Setting
from lightleak.report.run_folder import RunFolder, load_cells

SHARES = ("cell_accuracy", "categorical_accuracy", "numerical_accuracy", "exact_match_rate", "certified_share")
"""Metrics that are compared as shares; of each, more is worse for privacy."""

METRICS = (*SHARES, "rmse")
"""The last is in standard deviations of the column; of it, less is worse for privacy."""

OF_THE_RUN = ("run", "defense", "strength", "epsilon", "release_epsilon", "delta")
"""Parts of a setting that a comparison of runs is about: they may differ within what is compared."""

Verdict = Literal["less", "more", "unclear", "equal"]
Moment = Literal["before training", "network as given", "during training"]


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
        title: the attack, with its variant where a run holds several.
        batch_size: rows behind an update.
        moment: when the updates were sent.
        is_baseline: whether it is the guessing baseline, which no defence can change.
        n: updates attacked before and after.
        pairs: updates of the same rows in both; 0 where the runs attacked different rows.
        changes: by metric.
    """

    title: str
    batch_size: int | None
    moment: Moment
    is_baseline: bool
    n: tuple[int, int]
    pairs: int
    changes: Mapping[str, Change]


def moment_of(setting: Setting) -> Moment:
    """When an update was sent, without its epoch."""
    if setting.source == "training":
        return "during training"
    return "network as given" if setting.source == "given" else "before training"


def changed_groups(before: RunFolder, after: RunFolder) -> tuple[ChangedGroup, ...]:
    """Every attack, size and moment that both runs measured, in the order of the first run's rows."""
    ignored = _alike_within(before, after)
    first, second = _pooled(before, ignored), _pooled(after, ignored)
    found = (_changed(before, after, first[key], second[key]) for key in first if key in second)
    return tuple(one for one in found if one.changes)


_Key = tuple[Setting, str, str, int | None, Moment]


def _alike_within(before: RunFolder, after: RunFolder) -> dict[str, None]:
    """Parts of the setting that do not tell results of one run apart: a run has one value of each."""
    parts = ("target", "protocol", "labels", "local_epochs", "local_batches", "n_clients")
    runs = [[result.setting for result in run.results] for run in (before, after)]
    alike = [name for name in parts if all(len({getattr(one, name) for one in settings}) == 1 for settings in runs)]
    return dict.fromkeys((*OF_THE_RUN, *alike))


def _pooled(run: RunFolder, ignored: Mapping[str, None]) -> dict[_Key, list[Group]]:
    """Groups of one attack, size and moment; those of the training hold one for each epoch."""
    found: dict[_Key, list[Group]] = {}
    for group in compare([run]):
        without: dict[str, Any] = dict.fromkeys(ignored) | {"run": "", "epoch": None}
        plain = replace(group.setting, **without)
        key = (plain, group.attack, group.variant, group.batch_size, moment_of(group.setting))
        found.setdefault(key, []).append(group)
    return found


def _changed(first: RunFolder, second: RunFolder, before: Sequence[Group], after: Sequence[Group]) -> ChangedGroup:
    mine, theirs = ([result for group in groups for result in group.results] for groups in (before, after))
    group, is_paired = before[0], on_same_rows(first, second, mine, theirs)
    changes: dict[str, Change] = {}
    for name in METRICS:
        largest = 1.0 if name in SHARES else math.inf
        change = _change(values_of(mine, name), values_of(theirs, name), is_paired, largest)
        if change is not None:
            changes[name] = change
    pairs = max((change.difference.n for change in changes.values()), default=0)
    numbers, moment = (len(mine), len(theirs)), moment_of(group.setting)
    return ChangedGroup(group.title, group.batch_size, moment, group.is_baseline, numbers, pairs, changes)


def _change(before: Values, after: Values, is_paired: bool, largest: float) -> Change | None:
    means = estimate(before.values()), estimate(after.values())
    subtract = paired_difference if is_paired else unpaired_difference
    difference = subtract(before, after, largest)
    if means[0] is None or means[1] is None or difference is None:
        return None
    pairs = [(before[key], after[key]) for key in before if key in after] if is_paired else []
    return Change(means[0], means[1], difference, bool(pairs) and all(mine == other for mine, other in pairs))


def values_of(results: Sequence[Result], name: str) -> dict[tuple[object, ...], float]:
    """One metric by the update that was attacked."""
    return {unit_of(result): result.metrics[name] for result in results if name in result.metrics}


def unit_of(result: Result) -> tuple[object, ...]:
    """What names an update within its run; equal runs name equal updates equally."""
    setting = result.setting
    local = (setting.local_epochs, setting.local_batches, setting.n_clients)
    return (setting.dataset, setting.epoch, *local, result.batch_size, *result.unit)


def on_same_rows(first: RunFolder, second: RunFolder, before: Sequence[Result], after: Sequence[Result]) -> bool:
    """Whether both runs attacked updates of the same rows, so that their scores can be paired.

    The rows themselves decide where both runs kept them, of the first update they share; else the configs do.
    """
    others = {(result.attack, unit_of(result)): result for result in after}
    keys = [(result.attack, unit_of(result)) for result in before]
    shared = [(result, others[key]) for result, key in zip(before, keys, strict=True) if key in others]
    if not shared:
        return False
    for mine, other in shared:
        rows = _true_rows(first, mine), _true_rows(second, other)
        if rows[0] and rows[1]:
            return rows[0] == rows[1]
    return same_clients(first, second, before[0].setting.source)


def _true_rows(run: RunFolder, result: Result) -> list[tuple[str, ...]]:
    """True rows of one update in any order; empty where they were not kept or left out."""
    cells = load_cells(run, result)
    if cells is None or (cells["true"] == "").all():
        return []
    rows = cells.groupby("row", sort=False)["true"].agg(tuple)
    return sorted(rows)
