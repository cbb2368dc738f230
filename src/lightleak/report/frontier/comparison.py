"""Rows grouped into points: one defence at one strength, with what it lets be read and what it costs."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from lightleak.report.budget import Budget, budget
from lightleak.report.estimate import Estimate, estimate
from lightleak.report.frontier.result import FrontierResult, Setting, Strength
from lightleak.report.kinds.updates_groups import BASELINE

Paired = Mapping[tuple[str, str, str], float]
"""Values by what several points share: the seed of a training, or the client that was attacked."""


@dataclass(frozen=True)
class Point:
    """One defence at one strength, over seeds of the training and over attacked clients.

    Attributes:
        strength: the defence and its strength.
        results: its trainings and attacks.
        guesses: share of cells that guessing gets right, by client; guessing reads no update, so that it is the same
            under every defence.
    """

    strength: Strength
    results: tuple[FrontierResult, ...] = field(repr=False)
    guesses: Paired = field(repr=False)

    @cached_property
    def accuracies(self) -> dict[tuple[str, str, str], float]:
        """Test accuracy by seed of the training."""
        return {one.key: one.accuracy for one in self.results if one.attack is None and one.accuracy is not None}

    @cached_property
    def accuracy(self) -> Estimate | None:
        """Test accuracy over seeds."""
        return estimate(self.accuracies.values())

    @cached_property
    def auroc(self) -> Estimate | None:
        """Area under the ROC curve over seeds."""
        return estimate(one.auroc for one in self.results if one.attack is None)

    @cached_property
    def _strongest(self) -> tuple[str | None, dict[tuple[str, str, str], float]]:
        """The attack, with its settings, that recovers most in the mean, and its share of right cells by client."""
        found: dict[tuple[str, str], dict[tuple[str, str, str], float]] = defaultdict(dict)
        for one in self.results:
            if one.attack is not None and one.attack != BASELINE and one.cell_accuracy is not None:
                found[one.attack, str(sorted(one.options.items()))][one.key] = one.cell_accuracy
        means = {attack: sum(cells.values()) / len(cells) for attack, cells in found.items()}
        best = max(means, key=means.__getitem__, default=None)
        return (None, {}) if best is None else (best[0], found[best])

    @property
    def attack(self) -> str | None:
        """The attack that recovers most here: a defence is as good as it is against that one."""
        return self._strongest[0]

    @property
    def recovered(self) -> Paired:
        """Share of cells that `attack` recovers, by client."""
        return self._strongest[1]

    @cached_property
    def cells(self) -> Estimate | None:
        """Share of cells that `attack` recovers, over clients."""
        return estimate(self.recovered.values())

    @cached_property
    def leakage(self) -> Estimate | None:
        """`cells` minus guessing, paired by client; negative where guessing does better."""
        return paired(self.recovered, self.guesses)

    @cached_property
    def gains(self) -> dict[tuple[str, str, str], float]:
        """What a client gives away beyond guessing: an attacker that does better by guessing guesses, and gains 0."""
        if self.leakage is None:
            return {}
        shared = {key: cells for key, cells in self.recovered.items() if key in self.guesses}
        return {key: cells - self.guesses[key] if self.leakage.mean > 0 else 0.0 for key, cells in shared.items()}

    @property
    def gain(self) -> float:
        """Mean of `gains`: the leakage, or 0 where it is negative; only of a point `is_measured`."""
        return sum(self.gains.values()) / len(self.gains)

    @property
    def is_measured(self) -> bool:
        """Whether both what it costs and what it leaks are known."""
        return bool(self.accuracies and self.gains)

    @property
    def epsilon(self) -> float | None:
        """What its training guarantees; None where it guarantees nothing."""
        return next((one.epsilon for one in self.results if one.epsilon is not None), None)

    @property
    def release_epsilon(self) -> float | None:
        """What it guarantees for one update, to whom the batch is known; None where it guarantees nothing."""
        return next((one.release_epsilon for one in self.results if one.release_epsilon is not None), None)

    @property
    def delta(self) -> float | None:
        """The delta of `epsilon`."""
        return next((one.delta for one in self.results if one.delta is not None), None)


@dataclass(frozen=True)
class Frontier:
    """All points of one setting, the undefended one first and each curve by its strength.

    Attributes:
        setting: what they share.
        points: one per defence and strength.
        guesses: share of cells that guessing gets right, by client.
    """

    setting: Setting
    points: tuple[Point, ...]
    guesses: Paired = field(repr=False)

    @property
    def none(self) -> Point | None:
        """The point without a defence."""
        return next((point for point in self.points if point.strength.is_none), None)

    @cached_property
    def guess(self) -> Estimate | None:
        """Share of cells that guessing gets right, over clients."""
        return estimate(self.guesses.values())

    @cached_property
    def budget(self) -> Budget:
        """What the attacks could spend."""
        return budget(one for point in self.points for one in point.results)

    @property
    def measured(self) -> tuple[Point, ...]:
        """The points of which cost and leakage are known."""
        return tuple(point for point in self.points if point.is_measured)

    @property
    def curves(self) -> dict[str, list[Point]]:
        """Points by the name of their curve."""
        found: dict[str, list[Point]] = defaultdict(list)
        for point in self.points:
            found[point.strength.label].append(point)
        return dict(found)

    def cost(self, point: Point) -> Estimate | None:
        """Accuracy lost against no defence, paired by seed."""
        return None if self.none is None or point is self.none else paired(self.none.accuracies, point.accuracies)


def compare(results: Iterable[FrontierResult]) -> tuple[Frontier, ...]:
    """Group rows into frontiers, runs together; they stand in the order of the rows."""
    by_setting: dict[Setting, list[FrontierResult]] = defaultdict(list)
    for one in results:
        by_setting[one.setting].append(one)
    return tuple(_frontier(setting, members) for setting, members in by_setting.items())


def _frontier(setting: Setting, members: Sequence[FrontierResult]) -> Frontier:
    guesses = {
        one.key: one.cell_accuracy for one in members if one.attack == BASELINE and one.cell_accuracy is not None
    }
    by_point: dict[Strength, list[FrontierResult]] = defaultdict(list)
    for one in members:
        by_point[replace(one.strength, words="")].append(one)
    points = [_point(same, guesses) for same in by_point.values()]
    curves = list(dict.fromkeys(point.strength.label for point in points))

    def order(point: Point) -> tuple[bool, int, float]:
        strength = point.strength
        return not strength.is_none, curves.index(strength.label), strength.value or 0.0

    return Frontier(setting, tuple(sorted(points, key=order)), guesses)


def _point(same: Sequence[FrontierResult], guesses: Paired) -> Point:
    told = next((one.strength for one in same if one.strength.words), same[0].strength)
    return Point(told, tuple(same), guesses)


def paired(first: Paired, second: Paired) -> Estimate | None:
    """Mean of ``first`` minus ``second`` over the keys they share, with its interval; None where they share none.

    >>> paired({("a", "0", "0"): 0.75, ("a", "1", "0"): 0.5}, {("a", "0", "0"): 0.25}).mean
    0.5
    """
    return estimate(first[key] - second[key] for key in first if key in second)
