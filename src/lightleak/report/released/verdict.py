"""Whether made-up rows show more of the classes than public rows do: a conclusion from all measures together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lightleak.metrics.inversion.score import MEASURES
from lightleak.report.estimate import Estimate
from lightleak.report.released.group import Group
from lightleak.report.released.result import OVER_PUBLIC
from lightleak.report.wording import interval, percent, points

Outcome = Literal["more", "less", "chance", "one training", "unknown"]

TITLES = {
    "attack_accuracy": "Taken for their class",
    "disjoint_accuracy": "Taken for it by a second judge",
    "class_shapes_score": "Class shapes",
    "distinct_nearest_rows": "Distinct nearest rows",
    "nearer_to_train": "Nearer to a training row",
}
"""Heads of the columns that hold them."""

WORDS = {
    "attack_accuracy": "recognised by the evaluation model",
    "disjoint_accuracy": "recognised by a second one that shares no training row with the released model",
    "class_shapes_score": "the spread of single columns within a class",
    "distinct_nearest_rows": "distinct private rows that they come nearest to",
    "nearer_to_train": "nearness to training rows against held-out ones",
}


@dataclass(frozen=True)
class Measure:
    """One measure of an attack beside as many public rows which the released model sorted into the same classes.

    Attributes:
        name: of `lightleak.metrics.inversion.score.MEASURES`.
        value: the attack's.
        public: that of the public rows.
        gain: the difference, paired by training.
    """

    name: str
    value: Estimate | None
    public: Estimate | None
    gain: Estimate | None

    @property
    def title(self) -> str:
        """What it measures, as the head of a column."""
        return TITLES[self.name]

    @property
    def words(self) -> str:
        """What it measures, within a sentence."""
        return WORDS[self.name]

    @property
    def is_count(self) -> bool:
        """Whether it counts rows; the others are shares."""
        return self.name == "distinct_nearest_rows"

    def shown(self, value: Estimate | None) -> str:
        """A value in percent, or as a number of rows."""
        if value is None:
            return "–"
        return f"{value.mean:.1f} rows" if self.is_count else percent(value.mean)

    @property
    def difference(self) -> str:
        """The difference in points, or in rows, with its interval."""
        if self.gain is None:
            return "–"
        scale = 0.01 if self.is_count else 1.0
        ends = (None if end is None else scale * end for end in (self.gain.low, self.gain.high))
        scaled = Estimate(scale * self.gain.mean, self.gain.n, *ends)
        spread = f" ({interval(scaled, -math.inf, math.inf)})" if scaled.has_interval else ""
        return f"{points(scaled.mean)}{spread}"

    @property
    def outcome(self) -> Outcome:
        """What the interval of the difference says; without several trainings there is none."""
        if self.gain is None:
            return "unknown"
        if self.gain.low is None or self.gain.high is None:
            return "one training"
        return "more" if self.gain.low > 0 else "less" if self.gain.high < 0 else "chance"


def measures_of(group: Group) -> tuple[Measure, ...]:
    """Every measure of an attack, those that were not taken too."""
    return tuple(
        Measure(name, group.value(name), group.value(f"public_{name}"), group.value(OVER_PUBLIC + name))
        for name in MEASURES
    )


def gives_away(measures: Sequence[Measure]) -> bool:
    """Whether every measure says that the rows show more of the classes than public rows do."""
    return all(one.outcome == "more" for one in measures)


def having(measures: Sequence[Measure], outcome: Outcome) -> tuple[Measure, ...]:
    """The measures with this outcome."""
    return tuple(one for one in measures if one.outcome == outcome)
