"""Which defence a report names, and what stands beside it."""

from collections.abc import Sequence
from dataclasses import dataclass

from lightleak.report.estimate import Estimate
from lightleak.report.frontier.comparison import Frontier, Point, paired

ENOUGH = 0.5
"""Share of the leakage that the defence named in the headline takes away, if any does."""


@dataclass(frozen=True)
class Choice:
    """The defence that the report names, beside no defence.

    Attributes:
        none: no defence.
        point: the defence.
        halves: whether it takes away half of the leakage.
    """

    none: Point
    point: Point
    halves: bool


def fullest(frontiers: Sequence[Frontier]) -> Frontier | None:
    """The frontier with most points measured, of which the report tells; None where there is no point at all."""
    return max((one for one in frontiers if one.points), key=lambda one: len(one.measured), default=None)


def choose(frontier: Frontier) -> Choice | None:
    """The most accurate defence that takes away half of the leakage, else the one that takes most.

    None where no defence was shown to leak less than none.
    """
    none, found = frontier.none, helping(frontier)
    if none is None or not found:
        return None
    halving = [point for point in found if takes_half(point, none)]
    return Choice(none, most_accurate(halving), True) if halving else Choice(none, most_protective(found), False)


def helping(frontier: Frontier) -> tuple[Point, ...]:
    """The defences that were shown to leak less than none."""
    none = frontier.none
    if none is None or not none.is_measured or not none.gain:
        return ()
    return tuple(point for point in frontier.measured if not point.strength.is_none and _leaks_less(point, none))


def tried(frontier: Frontier) -> tuple[Point, ...]:
    """The defences that were measured."""
    return tuple(point for point in frontier.measured if not point.strength.is_none)


def guaranteed(frontier: Frontier) -> tuple[Point, ...]:
    """The measured points with a guarantee, the weakest first."""
    known = [point for point in frontier.measured if point.epsilon is not None]
    return tuple(sorted(known, key=lambda point: -(point.epsilon or 0.0)))


def reading_change(point: Point, none: Point) -> Estimate | None:
    """Share of cells recovered under a defence minus that without, by client."""
    return paired(point.recovered, none.recovered)


def accuracy_change(point: Point, none: Point) -> Estimate | None:
    """What a defence does to the accuracy, after minus before, by training."""
    return paired(point.accuracies, none.accuracies)


def takes_half(point: Point, none: Point) -> bool:
    """Whether it leaves at most the rest of `ENOUGH`, in the mean."""
    return point.gain <= (1 - ENOUGH) * none.gain


def shows_leakage(none: Point) -> bool:
    """Whether there is something to take away: measurably, or in the mean where one client gives no interval."""
    leakage = none.leakage
    return leakage is not None and leakage.mean > 0 and (leakage.low is None or leakage.low > 0)


def most_accurate(points: Sequence[Point]) -> Point:
    """The cheapest; of equals the one that leaks least."""
    return max(points, key=lambda point: (accuracy_of(point), -point.gain))


def most_protective(points: Sequence[Point]) -> Point:
    """The one that leaks least; of equals, such as those that leak nothing, the most accurate."""
    return min(points, key=lambda point: (point.gain, -accuracy_of(point)))


def accuracy_of(point: Point) -> float:
    """Mean accuracy of a point that is measured."""
    assert point.accuracy is not None  # of a point that is measured
    return point.accuracy.mean


def _leaks_less(point: Point, none: Point) -> bool:
    """Measurably, or in the mean where one client gives no interval."""
    saved = paired(none.gains, point.gains)
    return saved is not None and (saved.mean if saved.low is None else saved.low) > 0
