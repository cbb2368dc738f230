"""Which of two fractions? The game shadow-model attacks play, and what it takes to compare others in it (Table VII)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lightleak.core.errors import UsageError
from lightleak.core.summary import wilson

Seen = TypeVar("Seen")


@dataclass(frozen=True)
class TwoWorldScore:
    """How often an attack named the right one of two worlds.

    Attributes:
        accuracy: right answers over trainings; 0.5 is chance where both worlds are seen equally often.
        low: lower end of its 95% interval (Wilson).
        high: upper end.
        n: trainings.
    """

    accuracy: float
    low: float
    high: float
    n: int


def check_worlds(worlds: Sequence[float]) -> None:
    """Raise `UsageError` unless ``worlds`` are two different fractions strictly between 0 and 1."""
    if len(worlds) != 2 or worlds[0] == worlds[1] or not all(0 < t < 1 for t in worlds):
        raise UsageError(f"worlds must be two different fractions above 0 and below 1, got {tuple(worlds)}")


def nearest_world(fraction: float, worlds: Sequence[float]) -> int:
    """The world an estimated fraction is closer to: 0 or 1; a tie is world 0. So ProVFL-B plays the game.

    >>> nearest_world(0.43, (0.3, 0.5))
    1

    Raises:
        UsageError: see `check_worlds`.
    """
    check_worlds(worlds)
    return int(abs(fraction - worlds[1]) < abs(fraction - worlds[0]))


def two_world_accuracy(
    decide: Callable[[Seen], int], world_0: Sequence[Seen], world_1: Sequence[Seen]
) -> TwoWorldScore:
    """Share of trainings whose world ``decide`` names; it gets one observation at a time and never the world.

    Args:
        decide: observation to 0 or 1, e.g. ``lambda seen: nearest_world(attack.run(seen).fraction, worlds)``.
        world_0: observations of trainings at the first fraction.
        world_1: observations of trainings at the second.

    >>> two_world_accuracy(lambda seen: int(seen > 5), [1, 2, 9], [7, 8, 6]).accuracy
    0.8333333333333334

    Raises:
        UsageError: a world without a training.
    """
    if not (world_0 and world_1):
        raise UsageError(f"each world needs a training, got {len(world_0)} and {len(world_1)}")
    right = [decide(seen) == 0 for seen in world_0] + [decide(seen) == 1 for seen in world_1]
    n, accuracy = len(right), sum(right) / len(right)
    low, high = wilson(accuracy, n)
    return TwoWorldScore(accuracy, max(0.0, low), min(1.0, high), n)
