"""One attack in one setting over its evaluations, and how two of them differ."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from lightleak.report.estimate import Estimate, estimate
from lightleak.report.intervals import difference
from lightleak.report.released.result import ALL, InversionResult, Setting

BASELINES = ("public_pseudo_labelled", "gan_without_target", "plgmi_black_box", "public_random")
"""What is not led by the target: whatever an attack reaches above them, the model itself gave away."""

UNLED = (None, "random", "softmax")
"""Latent searches that do not ask the target; a baseline with another one is an attack."""

ACCURACY = "attack_accuracy"


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
        """How many trainings were evaluated."""
        return len({key[:2] for key in self.evaluations})

    @property
    def interval_over(self) -> Literal["seeds", "evaluations", "samples"]:
        """What the interval of `value` is over: trainings if there are several, else evaluations, else made-up rows."""
        return "seeds" if self.n_seeds > 1 else "evaluations" if len(self.evaluations) > 1 else "samples"

    def value(self, name: str = ACCURACY) -> Estimate | None:
        """Mean of one metric with the interval that `interval_over` names; None where it was not measured.

        Evaluations of one training are not independent trainings: they are averaged first where there are several.
        """
        found = self._by_evaluation(name)
        if name == ACCURACY and len(set(found.values())) == 1:
            # One evaluation, or equal ones such as 100%: only the number of rows says how sure it is.
            low, high = self._own_interval()
            return Estimate(next(iter(found.values())), len(found), low, high)
        return _over_seeds(found)

    def change(self, other: "Group", name: str = ACCURACY) -> Estimate | None:
        """One metric minus another group's: paired where they share several evaluations, else by `difference`."""
        mine, others = self._by_evaluation(name), other._by_evaluation(name)
        pairs = {key: mine[key] - others[key] for key in mine if key in others}
        return _over_seeds(pairs) if len(pairs) > 1 else difference(self.value(name), other.value(name))

    def deviation(self, name: str = ACCURACY) -> float | None:
        """Sample standard deviation over all evaluations, as the thesis prints it; None for fewer than two."""
        values = list(self._by_evaluation(name).values())
        return statistics.stdev(values) if len(values) > 1 else None

    def singles(self, name: str = ACCURACY) -> list[tuple[str, float]]:
        """Each evaluation: what it is called, and its value."""
        several = self.n_seeds > 1
        return [
            (f"seed {key[1]}, evaluation {key[2]}" if several else f"evaluation {key[2]}", value)
            for key, value in self._by_evaluation(name).items()
        ]

    def by_class(self, name: str) -> dict[str, Estimate]:
        """One metric by class, mean over evaluations."""
        found: dict[str, list[float]] = defaultdict(list)
        for one in self.results:
            if one.class_name != ALL and name in one.metrics:
                found[one.class_name].append(one.metrics[name])
        return {key: value for key, values in found.items() if (value := estimate(values)) is not None}

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

    def _own_interval(self) -> tuple[float | None, float | None]:
        """The widest of the intervals over rows."""
        own = [one for one in self.results if one.class_name == ALL and ACCURACY in one.metrics]
        lows, highs = [one.low for one in own if one.low is not None], [one.high for one in own if one.high is not None]
        return min(lows, default=None), max(highs, default=None)


def _over_seeds(values: Mapping[tuple[Any, ...], float]) -> Estimate | None:
    """Mean of values by run, seed and evaluation: over seeds where there are several, else over evaluations."""
    by_seed: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for key, value in values.items():
        by_seed[key[:2]].append(value)
    return estimate(map(statistics.fmean, by_seed.values()) if len(by_seed) > 1 else values.values())


def is_baseline(attack: str, search: str | None) -> bool:
    """Whether rows made so are not led by the target.

    >>> is_baseline("gan_without_target", "random"), is_baseline("gan_without_target", "gradient")
    (True, False)
    """
    return attack in BASELINES and search in UNLED


def _overall(rows: Iterable[InversionResult]) -> list[InversionResult]:
    rows = list(rows)
    return [one for one in rows if one.class_name == ALL] or rows
