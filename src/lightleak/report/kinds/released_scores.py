"""Scores of one attack on a released model over trainings and evaluations, and its measures against public rows."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from lightleak.core.grouping import by_key
from lightleak.core.results import ALL, ReleasedRow
from lightleak.metrics.inversion.score import MEASURES
from lightleak.report.compare import Group, means_by
from lightleak.report.format import DASH, interval, percent, points
from lightleak.report.intervals import Estimate, bounded, difference, proportion
from lightleak.report.kinds.released_entries import Entry, Memorization, pooled, title_of

BASELINES = ("public_pseudo_labeled", "gan_without_target", "plgmi_black_box", "public_random")
"""What is not led by the target: whatever an attack reaches above them, the model itself gave away."""

BLACK_BOX = "plgmi_black_box"
"""The attack that sees answers alone, for files that do not state what an attacker sees."""

UNLED = (None, "random", "softmax")
"""Latent searches that do not ask the target; a baseline with another one is an attack."""

ACCURACY = "attack_accuracy"
OVER_PUBLIC = "over_public_"
"""Prefix of a measure minus that of as many public rows which the target sorted into its classes."""

COUNT = "distinct_nearest_rows"
"""The one measure that counts rows."""

SHARES = ({*MEASURES} - {COUNT}) | {"shapes_score", "pair_trends_score", "condition_accuracy"}
"""Scores between 0 and 1, of which equal trainings leave an interval (`bounded`); equal rows have one of their own."""

Outcome = Literal["more", "less", "chance", "one training", "unknown"]


@dataclass(frozen=True)
class Measure:
    """One measure of an attack, compared with as many draws of public rows that the model sorted into the same classes.

    Attributes:
        name: one of `lightleak.metrics.inversion.score.MEASURES`.
        value: the attack's.
        public: that of the public rows.
        gain: the difference, paired by training.
    """

    name: str
    value: Estimate | None
    public: Estimate | None
    gain: Estimate | None

    @property
    def is_count(self) -> bool:
        """Whether it counts rows; the others are shares."""
        return self.name == COUNT

    def shown(self, value: Estimate | None) -> str:
        """A value in percent, or as a number of rows."""
        return f"{value.mean:.1f} rows" if self.is_count and value else percent(value)

    @property
    def difference(self) -> str:
        """The difference in points, or in rows, with its interval."""
        if self.gain is None:
            return DASH
        scale = 0.01 if self.is_count else 1.0
        ends = (None if end is None else scale * end for end in (self.gain.low, self.gain.high))
        scaled = Estimate(scale * self.gain.mean, self.gain.n, *ends)
        return points(scaled) + (f" ({interval(scaled, -math.inf, math.inf)})" if scaled.has_interval else "")

    @property
    def outcome(self) -> Outcome:
        """What the interval of the difference says.

        One training gives no interval. Nor do equal gains of a count over several trainings, which show nothing.
        """
        if self.gain is None:
            return "unknown"
        if self.gain.n < 2:
            return "one training"
        return "more" if self.gain.is_above else "less" if self.gain.is_below else "chance"


@dataclass(frozen=True)
class Attack(Group[ReleasedRow]):
    """One attack or baseline in one setting, over its evaluations.

    Attributes:
        fit_name: what its training is called in this setting.
        name: the same with its latent search, where several were measured.
        entries: what ``inversion.json`` says of it.
    """

    fit_name: str = ""
    name: str = ""
    entries: tuple[Entry, ...] = field(default=(), repr=False)

    @property
    def title(self) -> str:
        """What the config calls it, or its name in the literature."""
        return title_of(self.first)

    @property
    def search(self) -> str | None:
        """Its latent search."""
        return self.first.latent_search

    @property
    def is_black_box(self) -> bool:
        """Whether the attacker sees the model's answers alone."""
        threat = self.first.threat
        return "weights" not in threat.sees if threat else self.attack == BLACK_BOX

    @property
    def is_baseline(self) -> bool:
        """Whether its rows come from public data, not led by the target.

        >>> rows = [ReleasedRow(attack="gan_without_target", latent_search=one) for one in ("random", "gradient")]
        >>> [Attack((row,)).is_baseline for row in rows]
        [True, False]
        """
        return self.attack in BASELINES and self.search in UNLED

    @cached_property
    def evaluations(self) -> dict[tuple[str, ...], list[ReleasedRow]]:
        """Rows by run, seed and evaluation."""
        return by_key(self.rows, lambda row: (row.run, str(row.seed), str(row.evaluation_index)))

    @property
    def n_trainings(self) -> int:
        """How many trainings were evaluated; only several give an interval."""
        return len({key[:2] for key in self.evaluations})

    @property
    def samples(self) -> int | None:
        """Made-up rows judged in each evaluation; None where it is not stated or differs."""
        found = {sum(row.samples or 0 for row in _overall(rows)) for rows in self.evaluations.values()} - {0}
        return found.pop() if len(found) == 1 else None

    def value(self, name: str = ACCURACY) -> Estimate | None:
        """Mean of one score over trainings, with their interval where there are several; None where not measured.

        Evaluations of one training say nothing of another one: they are averaged, and give no interval.
        """
        return _over_trainings(name, self.by_evaluation(name))

    def change(self, other: "Attack") -> Estimate | None:
        """Accuracy minus another's, paired by evaluation; the difference of the means where they share none."""
        mine, others = self.by_evaluation(ACCURACY), other.by_evaluation(ACCURACY)
        pairs = {key: mine[key] - others[key] for key in mine if key in others}
        return _over_trainings(OVER_PUBLIC + ACCURACY, pairs) if pairs else difference(self.value(), other.value())

    def value_beside(self, other: "Attack") -> Estimate | None:
        """Mean accuracy over the evaluations that `change` compares; over all where the two share none."""
        mine, others = self.by_evaluation(ACCURACY), other.by_evaluation(ACCURACY)
        return _over_trainings(ACCURACY, {key: mine[key] for key in mine if key in others} or mine)

    def deviation(self, name: str = ACCURACY) -> float | None:
        """Sample standard deviation over trainings, or over evaluations of the only one; None for fewer than two."""
        found = self.by_evaluation(name)
        values = list((_by_training(found) if self.n_trainings > 1 else found).values())
        return statistics.stdev(values) if len(values) > 1 else None

    def singles(self) -> list[tuple[float, str]]:
        """The accuracy of each evaluation, with what it is called."""
        seed = "seed {1}, " if self.n_trainings > 1 else ""
        found = self.by_evaluation(ACCURACY).items()
        return [(value, f"{seed}evaluation {{2}}: {percent(value)}".format(*key)) for key, value in found]

    @property
    def equal_rows(self) -> Estimate | None:
        """Share of made-up rows that equal a private one; equal trainings are no surer than their rows allow."""
        return of_equal(self.value("exact_match_rate"), self.samples)

    def by_class(self, name: str) -> dict[str, float]:
        """One score by class, mean over evaluations and trainings."""
        found = self.by(lambda row: row.class_name, name)
        return {str(key): value for key, value in found.items() if key != ALL}

    def by_evaluation(self, name: str) -> dict[tuple[str, ...], float]:
        """The row over all classes; where there is none, the mean over the classes."""
        found = {key: _numbers(_overall(rows), name) or _numbers(rows, name) for key, rows in self.evaluations.items()}
        return {key: statistics.fmean(values) for key, values in found.items() if values}

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """Every measure, those that were not taken too."""
        return tuple(
            Measure(name, self.value(name), self.value(f"public_{name}"), self.value(OVER_PUBLIC + name))
            for name in MEASURES
        )

    def having(self, outcome: Outcome) -> tuple[Measure, ...]:
        """The measures with this outcome."""
        return tuple(one for one in self.measures if one.outcome == outcome)

    @property
    def repeats_public(self) -> bool:
        """Whether more rows of a class were made than public ones were kept, so that those were drawn repeatedly."""
        made = {row.class_name: row.samples or 0 for row in self.rows}
        kept = [one for entry in self.entries for one in entry.pseudo_labels]
        return any(made.get(one.class_name, 0) > one.used for one in kept if one.used)

    @cached_property
    def memory(self) -> Memorization:
        """How near its rows are to training rows: the share of all evaluations, the distances of each first one.

        The interval is over trainings; that of one training is as wide as its first evaluation's, over its rows.
        """
        first, share = pooled(self.entries), self.value("nearer_to_train")
        if share is None:
            return first
        low, high = share.low, share.high
        if share.n < 2 and first.share is not None and first.low is not None and first.high is not None:
            moved = share.mean - first.share
            low, high = max(first.low + moved, 0.0), min(first.high + moved, 1.0)
        return replace(first, share=share.mean, low=low, high=high, n=self.n_made or first.n, trainings=share.n)

    @property
    def n_made(self) -> int:
        """Made-up rows judged in all evaluations."""
        return sum(row.samples or 0 for rows in self.evaluations.values() for row in _overall(rows))


def of_equal(value: Estimate | None, n: int | None) -> Estimate | None:
    """Give a mean over equal trainings the interval that its n rows allow: it is no surer than that."""
    if value is None or value.low != value.high:
        return value
    return proportion(value.mean, n) if n and 0 <= value.mean <= 1 else Estimate(value.mean)


def _overall(rows: Sequence[ReleasedRow]) -> Sequence[ReleasedRow]:
    return [row for row in rows if row.class_name == ALL] or rows


def _numbers(rows: Iterable[ReleasedRow], name: str) -> list[float]:
    return [value for row in rows if (value := row.number(name)) is not None]


def _by_training(values: Mapping[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    """Means of values by run, seed and evaluation over the evaluations of each training."""
    return means_by((key[:2], value) for key, value in values.items())


def _over_trainings(name: str, values: Mapping[tuple[str, ...], float]) -> Estimate | None:
    """Mean over trainings with an interval that stays within what the score can be."""
    base = name.removeprefix(OVER_PUBLIC)
    highest = 1.0 if base.removeprefix("public_") in SHARES else math.inf
    lowest = -highest if name != base else 0.0 if highest == 1.0 else -math.inf
    return bounded(_by_training(values).values(), lowest, highest)
