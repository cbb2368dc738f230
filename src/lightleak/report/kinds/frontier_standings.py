"""Which points of a frontier are best, and whether that rests on a measurable difference.

A point is dominated if another is at least as good in both means and better in one, over the seeds and clients that
both have. Means over a few seeds and clients can be ordered by chance, so every verdict says whether it rests on a
difference whose 95% interval excludes 0.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lightleak.report.kinds.frontier_points import Paired, Point, difference, exceeds, lowest

Verdict = Literal["best", "not distinguishable", "beaten"]


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


def costs_more(point: Point, than: Point) -> bool:
    """Whether a point's accuracy or AUROC is measurably lower, or lower in the mean where there is no interval."""
    costs = difference(than.accuracies, point.accuracies), difference(than.aurocs, point.aurocs)
    return any(lowest(cost) > 0 for cost in costs)


def cheapest_first(points: Sequence[Point]) -> tuple[Point, ...]:
    """Points by accuracy and AUROC added together, highest first; of equals the smaller epsilon, then the smaller leak.

    Each is compared on the trainings that all points share, if there are any; AUROC only where all have it.
    """
    scores = ("accuracies", "aurocs") if all(point.aurocs for point in points) else ("accuracies",)
    shared = {name: set.intersection(*(set(getattr(point, name)) for point in points)) for name in scores if points}

    def kept(point: Point, name: str) -> float:
        found: Paired = getattr(point, name)
        return statistics.fmean(value for key, value in found.items() if key in shared[name] or not shared[name])

    def order(point: Point) -> tuple[float, float, float]:
        return -sum(kept(point, name) for name in scores), point.granted("epsilon") or math.inf, point.place[1]

    return tuple(sorted(points, key=order))


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
    return exceeds(point.accuracies, other.accuracies) or exceeds(other.gains, point.gains)


def _places(first: Point, second: Point) -> tuple[tuple[float, float], tuple[float, float]]:
    """Accuracy and leakage of two points, each over what both measured, or over everything where they share nothing."""
    accuracies, gains = _means(first.accuracies, second.accuracies), _means(first.gains, second.gains)
    return (accuracies[0], gains[0]), (accuracies[1], gains[1])


def _means(first: Paired, second: Paired) -> tuple[float, float]:
    shared = [key for key in first if key in second]
    mean_first, mean_second = (statistics.fmean([of[key] for key in shared] or of.values()) for of in (first, second))
    return mean_first, mean_second


def _standing(point: Point, others: Sequence[Point]) -> Standing:
    above = [other for other in others if dominates(*_places(other, point))]
    if not above:
        rivals = tuple(other for other in others if not is_worse(other, point))
        return Standing(point, True, rivals, "not distinguishable" if rivals else "best")
    measurably = [other for other in above if is_worse(point, other)]
    verdict: Verdict = "beaten" if measurably else "not distinguishable"
    return Standing(point, False, tuple(sorted(measurably or above, key=lambda one: one.place, reverse=True)), verdict)
