"""Points of a defense frontier: what each defense lets an attack read, what it costs, and which points are best.

A point is dominated if another is at least as good in both means and better in one. Means over a few seeds and clients
can be ordered by chance, so every verdict says whether it rests on a difference whose 95% interval excludes 0.
"""

import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from lightleak.core.people import Rate
from lightleak.core.results import NONE, FrontierRow, read_row
from lightleak.report.attacks import knowing
from lightleak.report.budget import Budget, budget
from lightleak.report.compare import Group, by_key, fixed, group_rows
from lightleak.report.format import DASH, capital, defense_title, listed
from lightleak.report.intervals import ENOUGH_PAIRS, Estimate, bounded, estimate
from lightleak.report.kinds.updates_groups import BASELINE

SETTING = ("dataset", "target", "protocol", "batch_size", "training", "label_setting")
"""Fields that all points of a frontier share."""

ENOUGH = 0.5
"""Share of the leakage that the recommended defense takes away, if any does."""

MOST_NAMED = 2
"""Points that are listed by name."""

WIDEST = 0.05
"""Width of an interval, as a share of cells, beyond which guessing within it shows nothing: a defense that leaves the
attack several points above guessing would look the same."""

Verdict = Literal["best", "not distinguishable", "beaten"]
Protection = Literal["protects", "leaks", "too few measurements"]
Paired = Mapping[Hashable, float]
"""Values by what several points share: the run, with the seed of a training or the client that was attacked."""


@dataclass(frozen=True)
class Point(Group[FrontierRow]):
    """One defense at one strength, over seeds of the training and over attacked clients.

    Attributes:
        guesses: share of cells that guessing gets right, by client; guessing reads no update, so that it is the same
            under every defense.
    """

    guesses: Paired = field(default_factory=dict, repr=False)

    @cached_property
    def accuracies(self) -> Paired:
        """Test accuracy by seed of the training."""
        return self.by(_unit, lambda row: row.accuracy if row.is_training else None)

    @cached_property
    def accuracy(self) -> Estimate | None:
        """Test accuracy over seeds."""
        return estimate(self.accuracies.values())

    @cached_property
    def auroc(self) -> Estimate | None:
        """Area under the ROC curve over seeds."""
        return self.mean(lambda row: row.auroc if row.is_training else None)

    @cached_property
    def attacks(self) -> tuple[Group[FrontierRow], ...]:
        """Every attack with its settings, guessing left out."""
        attacks = group_rows((row for row in self.rows if not row.is_training), lambda row: row.attack)
        return tuple(one for one in attacks if one.attack != BASELINE)

    @property
    def is_adaptive(self) -> bool | None:
        """Whether an attack that knows the defense is among the attacks; None where there is no such attack."""
        if not (knowing_it := knowing(self.first.defense or NONE)):
            return None
        return any(one.attack in knowing_it for one in self.attacks)

    @cached_property
    def strongest(self) -> Group[FrontierRow] | None:
        """The attack that recovers most on average: a defense is as good as it is against that."""
        known = [(mean.mean, one) for one in self.attacks if (mean := one.mean("cell_accuracy"))]
        return max(known, key=lambda pair: pair[0], default=(0.0, None))[1]

    def over_guessing(self, attack: Group[FrontierRow], comparisons: int = 1) -> Estimate | None:
        """Cells that an attack recovers minus guessing, paired by client, never of zero width by chance (`bounded`)."""
        return bounded(differences(attack.by(_unit, "cell_accuracy"), self.guesses), -1.0, 1.0, comparisons)

    @cached_property
    def proven(self) -> Rate | None:
        """Rows that an attack proved, by the one that proves most, of the rows of attacked clients."""
        return max(filter(None, map(_proven, self.attacks)), key=lambda one: one.share, default=None)

    @cached_property
    def protection(self) -> Protection:
        """Whether an attack, the best or any other, does measurably better than guessing or proves a row.

        An interval includes guessing where a defense works and where few clients were attacked: it counts as protection
        over `ENOUGH_PAIRS` clients, if it is at most `WIDEST`.
        """
        found = [self.over_guessing(attack) for attack in self.attacks]
        if any(one is not None and one.is_above for one in found) or (self.proven and self.proven.share > 0):
            return "leaks"
        return "protects" if found and all(map(_is_narrow, found)) else "too few measurements"

    @cached_property
    def recovered(self) -> Paired:
        """Share of cells that `strongest` recovers, by client."""
        return {} if self.strongest is None else self.strongest.by(_unit, "cell_accuracy")

    @cached_property
    def cells(self) -> Estimate | None:
        """Share of cells that `strongest` recovers, over clients."""
        return bounded(self.recovered.values())

    @cached_property
    def leakage(self) -> Estimate | None:
        """`cells` minus guessing, paired by client; negative where guessing does better."""
        return difference(self.recovered, self.guesses)

    @cached_property
    def gains(self) -> Paired:
        """What a client gives away beyond guessing: an attacker that does better by guessing guesses, and gains 0."""
        if self.leakage is None:
            return {}
        is_useful = self.leakage.mean > 0
        shared = {key: cells for key, cells in self.recovered.items() if key in self.guesses}
        return {key: cells - self.guesses[key] if is_useful else 0.0 for key, cells in shared.items()}

    @property
    def place(self) -> tuple[float, float]:
        """Accuracy and mean of `gains`; only of a point that `is_measured`."""
        return statistics.fmean(self.accuracies.values()), statistics.fmean(self.gains.values())

    @property
    def is_measured(self) -> bool:
        """Whether both what it costs and what it leaks are known."""
        return bool(self.accuracies and self.gains)

    @property
    def name(self) -> str:
        """The curve and the strength.

        >>> row = FrontierRow(attack="none", defense="dp_sgd", defense_strength=0.5)
        >>> Point((row,)).name, Point((FrontierRow(attack="none"),)).name
        ('DP-SGD 0.5', 'no defense')
        """
        strength = self.first.defense_strength
        return curve_title(self.first.curve) + ("" if strength is None else f" {strength:g}")

    @property
    def shows_leakage(self) -> bool:
        """Whether there is something to take away: measurably, or in the mean where one client gives no interval."""
        return _lowest(self.leakage) > 0

    def granted(self, name: str) -> float | None:
        """``epsilon``, ``release_epsilon`` or ``delta`` of its training; None where it guarantees nothing."""
        return next(iter(self.values(name)), None)


@dataclass(frozen=True)
class Standing:
    """How a point compares with all others.

    Attributes:
        point: the point.
        is_best: whether no other point dominates it in the means.
        rivals: of a best point, those that are measurably worse in neither respect; of any other point, those that
            dominate it, measurably if any does.
        verdict: ``best`` (no rival), ``beaten`` (some rival is measurably better in one respect at least), else ``not
            distinguishable``.
    """

    point: Point
    is_best: bool
    rivals: tuple[Point, ...]
    verdict: Verdict


@dataclass(frozen=True)
class Frontier:
    """All points of one setting, the undefended one first and each curve by its strength.

    Attributes:
        points: one per defense and strength.
        guesses: share of cells that guessing gets right, by client.
    """

    points: tuple[Point, ...]
    guesses: Paired = field(repr=False)

    @property
    def first(self) -> FrontierRow:
        """A row, for what all points have in common."""
        return self.points[0].first

    @property
    def none(self) -> Point | None:
        """The point without a defense."""
        return next((point for point in self.points if point.first.is_undefended), None)

    @cached_property
    def guess(self) -> Estimate | None:
        """Share of cells that guessing gets right, over clients."""
        return bounded(self.guesses.values())

    @cached_property
    def budget(self) -> Budget:
        """What the attacks could spend."""
        return budget(row for point in self.points for row in point.rows)

    @cached_property
    def measured(self) -> tuple[Point, ...]:
        """The points whose cost and leakage are known."""
        return tuple(point for point in self.points if point.is_measured)

    @property
    def tried(self) -> tuple[Point, ...]:
        """The defenses that were measured."""
        return tuple(point for point in self.measured if not point.first.is_undefended)

    @property
    def guaranteed(self) -> tuple[Point, ...]:
        """The measured points with an epsilon, the weakest guarantee first."""
        known = [(epsilon, point) for point in self.measured if (epsilon := point.granted("epsilon")) is not None]
        return tuple(point for _, point in sorted(known, key=lambda pair: -pair[0]))

    @cached_property
    def helping(self) -> tuple[Point, ...]:
        """The defenses that leak measurably less than none, or less in the mean where one client has no interval."""
        none = self.none
        if none is None or not none.is_measured or not none.place[1]:
            return ()
        return tuple(point for point in self.tried if _lowest(difference(none.gains, point.gains)) > 0)

    def protection(self, point: Point) -> Protection:
        """`Point.protection`, with which a defense is credited only if it leaks measurably less than no defense."""
        is_open = self.none is not None and self.none.is_measured and not any(point is one for one in self.helping)
        return "too few measurements" if point.protection == "protects" and is_open else point.protection

    @cached_property
    def protecting(self) -> tuple[Point, ...]:
        """The defenses that protect, the most accurate first; of equals the smaller epsilon, then the smaller leak."""
        found = [point for point in self.tried if self.protection(point) == "protects"]
        return tuple(sorted(found, key=lambda one: (-one.place[0], one.granted("epsilon") or math.inf, one.place[1])))

    @property
    def halving(self) -> tuple[Point, ...]:
        """Those of them that leave at most the rest of `ENOUGH`, in the mean."""
        return tuple(
            point for point in self.helping if self.none and point.place[1] <= (1 - ENOUGH) * self.none.place[1]
        )

    @cached_property
    def choice(self) -> Point | None:
        """The cheapest defense that protects, else that takes away half of the leakage, else the one that takes most.

        None where no defense was shown to leak less than none, or none was shown to leak.
        """
        if self.none is None or not self.helping or not self.none.shows_leakage:
            return None
        if self.protecting:
            return self.protecting[0]
        return most_accurate(self.halving) if self.halving else most_protective(self.helping)

    @cached_property
    def merits(self) -> list[tuple[Point, str]]:
        """The defenses to consider, and why; none where attacks had too small a budget."""
        if self.budget.is_weak or self.choice is None:
            return []
        found = [(self.choice, "first to consider"), (most_accurate(self.helping), "costs least of those that help")]
        safest = most_protective(self.helping)
        if safest.place[1] < self.choice.place[1] or (safest is self.choice and safest.place[1]):
            found.append((safest, "gives least away"))
        return found + [(point, "the strongest guarantee") for point in self.guaranteed[-1:]]

    @staticmethod
    def named(points: Sequence[Point]) -> str:
        """A few points by name, and how many more there are.

        >>> Frontier.named([Point((FrontierRow(attack="none", defense=name),)) for name in ("sign", "clipping", "x")])
        'Sign, Clipping and 1 more'
        """
        more = len(points) - MOST_NAMED
        known = [point.name for point in points[:MOST_NAMED]]
        return f"{', '.join(known)} and {more} more" if more > 0 else listed(known)

    @property
    def is_single(self) -> bool:
        """Whether no point was measured with several trainings or clients."""
        return all(len(point.accuracies) < 2 and len(point.gains) < 2 for point in self.measured)

    def read_change(self, point: Point, comparisons: int = 0) -> Estimate | None:
        """What the defense changes in the share of cells recovered, paired by client.

        ``comparisons`` widens the interval to one that holds for so many at once (`bounded`).
        """
        if self.none is None:
            return None
        found = differences(point.recovered, self.none.recovered)
        return bounded(found, -1.0, 1.0, comparisons) if comparisons else estimate(found)

    def accuracy_change(self, point: Point) -> Estimate | None:
        """What it changes in accuracy, paired by seed."""
        return difference(point.accuracies, self.none.accuracies) if self.none else None

    @cached_property
    def standings(self) -> tuple[Standing, ...]:
        """How each measured point compares with the others."""
        return standings(self.measured)

    def standing(self, point: Point) -> Standing | None:
        """How a point compares; None where it is not measured."""
        return next((one for one in self.standings if one.point is point), None)

    def cost(self, point: Point) -> Estimate | None:
        """Accuracy lost against no defense, paired by seed."""
        return None if self.none is None or point is self.none else difference(self.none.accuracies, point.accuracies)


def compare(rows: Iterable[FrontierRow]) -> tuple[Frontier, ...]:
    """Group rows into frontiers, runs together, in the order of the rows."""
    return tuple(_frontier(same) for same in by_key(rows, lambda row: fixed(row, SETTING)).values())


def compare_raw(rows: Iterable[Mapping[str, Any]], run: str = "") -> tuple[Frontier, ...]:
    """The same of rows as ``results.json`` contains them."""
    found = (read_row(row, f"row {i}", run) for i, row in enumerate(rows))
    return compare(row for row in found if isinstance(row, FrontierRow))


def fullest(frontiers: Sequence[Frontier]) -> Frontier | None:
    """The frontier with most points measured, which the summary is about; None where there is no point at all."""
    return max(frontiers, key=lambda one: len(one.measured), default=None)


def most_accurate(points: Sequence[Point]) -> Point:
    """The cheapest; of equals the one that leaks least."""
    return max(points, key=lambda point: (point.place[0], -point.place[1]))


def most_protective(points: Sequence[Point]) -> Point:
    """The one that leaks least; of equals, such as those that leak nothing, the most accurate."""
    return min(points, key=lambda point: (point.place[1], -point.place[0]))


def differences(first: Paired, second: Paired) -> list[float]:
    """``first`` minus ``second`` for each key that they share."""
    return [value - second[key] for key, value in first.items() if key in second]


def difference(first: Paired, second: Paired) -> Estimate | None:
    """Mean of these, with its interval; None where they share no key.

    >>> difference({"a": 0.75, "b": 0.5}, {"a": 0.25}).mean
    0.5
    """
    return estimate(differences(first, second))


def dominates(first: tuple[float, float], second: tuple[float, float]) -> bool:
    """Whether the first (accuracy, leakage) is at least as good as the second in both and better in one.

    >>> dominates((0.84, 0.1), (0.84, 0.2)), dominates((0.85, 0.3), (0.84, 0.2)), dominates((0.8, 0.1), (0.8, 0.1))
    (True, False, False)
    """
    return first[0] >= second[0] and first[1] <= second[1] and first != second


def standings(points: Sequence[Point]) -> tuple[Standing, ...]:
    """How each point compares with the others; all of them `is_measured`."""
    return tuple(_standing(point, [other for other in points if other is not point]) for point in points)


def is_worse(other: Point, point: Point) -> bool:
    """Whether ``other`` is measurably less accurate or measurably leakier."""
    return _exceeds(point.accuracies, other.accuracies) or _exceeds(other.gains, point.gains)


def costs_more(point: Point, than: Point) -> bool:
    """Whether a point is measurably less accurate, or less in the mean where one training gives no interval."""
    cost = difference(than.accuracies, point.accuracies)
    if cost is None or not cost.has_interval:
        return point.place[0] < than.place[0]
    return cost.is_above


def curve_title(label: str) -> str:
    """Name of a curve.

    >>> curve_title("gaussian_noise"), curve_title("none")
    ('Gaussian noise', 'no defense')
    """
    return "no defense" if label == NONE else capital(defense_title(label))


def guarantee(epsilon: float | None) -> str:
    """Epsilon of differential privacy.

    >>> guarantee(2.943), guarantee(None)
    ('2.94', '–')
    """
    return DASH if epsilon is None else f"{epsilon:.3g}"


def _unit(row: FrontierRow) -> tuple[str, str, str]:
    """What rows of several strengths are paired by: the run, the seed, and the client."""
    return row.run, str(row.seed), "" if row.is_training else str(row.batch_index)


def _frontier(rows: Sequence[FrontierRow]) -> Frontier:
    guesses = Group(tuple(row for row in rows if row.attack == BASELINE)).by(_unit, "cell_accuracy")
    same = by_key(
        rows, lambda row: (row.curve, row.is_undefended or row.defense, row.defense_strength, row.defense_option)
    )
    # The first row of a point is one that says what the defense is, where any does.
    points = [
        Point(tuple(sorted(found, key=lambda row: not row.defense_words)), guesses=guesses) for found in same.values()
    ]
    curves = list(dict.fromkeys(point.first.curve for point in points))

    def order(point: Point) -> tuple[bool, int, float]:
        row = point.first
        return not row.is_undefended, curves.index(row.curve), row.defense_strength or 0.0

    return Frontier(tuple(sorted(points, key=order)), guesses)


def _standing(point: Point, others: Sequence[Point]) -> Standing:
    above = [other for other in others if dominates(other.place, point.place)]
    if not above:
        rivals = tuple(other for other in others if not is_worse(other, point))
        return Standing(point, True, rivals, "not distinguishable" if rivals else "best")
    measurably = [
        other for other in above if _exceeds(other.accuracies, point.accuracies) or _exceeds(point.gains, other.gains)
    ]
    verdict: Verdict = "beaten" if measurably else "not distinguishable"
    return Standing(point, False, tuple(sorted(measurably or above, key=lambda one: one.place, reverse=True)), verdict)


def _proven(attack: Group[FrontierRow]) -> Rate | None:
    rows = [row for row in attack.rows if row.certified_rows is not None and row.batch_size]
    right = sum((row.certified_rows or 0) - (row.certified_wrong or 0) for row in rows)
    return Rate.of(right, sum(row.batch_size or 0 for row in rows))


def _is_narrow(value: Estimate | None) -> bool:
    if value is None or value.low is None or value.high is None:
        return False
    return value.n >= ENOUGH_PAIRS and value.high - value.low <= WIDEST


def _exceeds(first: Paired, second: Paired) -> bool:
    """Whether the 95% interval of the paired difference lies above 0."""
    found = difference(first, second)
    return found is not None and found.is_above


def _lowest(value: Estimate | None) -> float:
    """Lower end of an interval, or the mean where there is none."""
    return 0.0 if value is None else value.mean if value.low is None else value.low
