"""One attack in one setting over its evaluations, and how two of them differ."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lightleak.report.estimate import Estimate
from lightleak.report.intervals import bounded, difference
from lightleak.report.released.result import ALL, OVER_PUBLIC, InversionResult, Setting

BASELINES = ("public_pseudo_labelled", "gan_without_target", "plgmi_black_box", "public_random")
"""What is not led by the target: whatever an attack reaches above them, the model itself gave away."""

UNLED = (None, "random", "softmax")
"""Latent searches that do not ask the target; a baseline with another one is an attack."""

ACCURACY = "attack_accuracy"

SHARES = (
    "attack_accuracy",
    "disjoint_accuracy",
    "class_shapes_score",
    "nearer_to_train",
    "shapes_score",
    "pair_trends_score",
    "condition_accuracy",
)
"""Metrics between 0 and 1, of which equal trainings leave an interval (`bounded`); equal rows have one of their own."""


@dataclass(frozen=True)
class Group:
    """One attack in one setting, over its evaluations.

    Attributes:
        setting: what was held fixed.
        attack: name of the attack or baseline.
        label: its name in the config.
        search: latent search.
        bridge: how the generator's output reaches the target.
        results: its rows, over all classes and in single ones.
        detail: what tells it from others of the same name here; empty where there is one.
    """

    setting: Setting
    attack: str
    label: str
    search: str | None
    bridge: str | None
    results: tuple[InversionResult, ...] = field(repr=False, hash=False)
    detail: str = ""

    @property
    def is_baseline(self) -> bool:
        """Whether its rows come from public data, not led by the target."""
        return is_baseline(self.attack, self.search)

    @cached_property
    def evaluations(self) -> dict[tuple[Any, ...], tuple[InversionResult, ...]]:
        """Rows by run, seed and evaluation."""
        found: dict[tuple[Any, ...], list[InversionResult]] = defaultdict(list)
        for one in self.results:
            found[one.run, str(one.seed), str(one.evaluation_index)].append(one)
        return {key: tuple(rows) for key, rows in found.items()}

    @property
    def n_seeds(self) -> int:
        """How many trainings were evaluated; only several give an interval."""
        return len({key[:2] for key in self.evaluations})

    def value(self, name: str = ACCURACY) -> Estimate | None:
        """Mean of one metric over trainings, with their interval where there are several; None where not measured.

        Evaluations of one training say nothing of another one: they are averaged, and give no interval.
        """
        return _over_trainings(name, self._by_evaluation(name))

    def change(self, other: "Group", name: str = ACCURACY) -> Estimate | None:
        """One metric minus another group's, paired by evaluation; the difference of the means where they share none."""
        mine, others = self._by_evaluation(name), other._by_evaluation(name)
        pairs = {key: mine[key] - others[key] for key in mine if key in others}
        return _over_trainings(OVER_PUBLIC + name, pairs) if pairs else difference(self.value(name), other.value(name))

    def deviation(self, name: str = ACCURACY) -> float | None:
        """Sample standard deviation over trainings, or over evaluations of the only one; None for fewer than two."""
        found = self._by_evaluation(name)
        values = list((_by_training(found) if self.n_seeds > 1 else found).values())
        return statistics.stdev(values) if len(values) > 1 else None

    def singles(self, name: str = ACCURACY) -> list[tuple[str, float]]:
        """Each evaluation: what it is called, and its value."""
        several = self.n_seeds > 1
        return [
            (f"seed {key[1]}, evaluation {key[2]}" if several else f"evaluation {key[2]}", value)
            for key, value in self._by_evaluation(name).items()
        ]

    def by_class(self, name: str) -> dict[str, Estimate]:
        """One metric by class, mean over evaluations and trainings."""
        found: dict[str, list[float]] = defaultdict(list)
        for one in self.results:
            if one.class_name != ALL and name in one.metrics:
                found[one.class_name].append(one.metrics[name])
        return {key: Estimate(statistics.fmean(values), len(values)) for key, values in found.items()}

    @property
    def samples(self) -> int | None:
        """Made-up rows judged in each evaluation; None where it is not stated or differs."""
        found = {sum(one.samples or 0 for one in _overall(rows)) for rows in self.evaluations.values()} - {0}
        return found.pop() if len(found) == 1 else None

    def _by_evaluation(self, name: str) -> dict[tuple[Any, ...], float]:
        """The row over all classes; where there is none, the mean over the classes."""
        found = {}
        for key, rows in self.evaluations.items():
            known = [one.metrics[name] for one in _overall(rows) if name in one.metrics]
            known = known or [one.metrics[name] for one in rows if name in one.metrics]
            if known:
                found[key] = statistics.fmean(known)
        return found


def _by_training(values: Mapping[tuple[Any, ...], float]) -> dict[tuple[Any, ...], float]:
    """Means of values by run, seed and evaluation over the evaluations of each training."""
    found: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for key, value in values.items():
        found[key[:2]].append(value)
    return {key: statistics.fmean(of_training) for key, of_training in found.items()}


def _over_trainings(name: str, values: Mapping[tuple[Any, ...], float]) -> Estimate | None:
    """Mean over trainings with an interval that stays within what the metric can be."""
    base = name.removeprefix(OVER_PUBLIC)
    highest = 1.0 if base.removeprefix("public_") in SHARES else math.inf
    lowest = -highest if name != base else 0.0 if highest == 1.0 else -math.inf
    return bounded(_by_training(values).values(), lowest, highest)


def is_baseline(attack: str, search: str | None) -> bool:
    """Whether rows made so are not led by the target.

    >>> is_baseline("gan_without_target", "random"), is_baseline("gan_without_target", "gradient")
    (True, False)
    """
    return attack in BASELINES and search in UNLED


def _overall(rows: Iterable[InversionResult]) -> list[InversionResult]:
    rows = list(rows)
    return [one for one in rows if one.class_name == ALL] or rows
