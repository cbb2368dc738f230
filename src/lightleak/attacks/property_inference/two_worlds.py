"""Which of two fractions? The game that shadow-model attacks play, and how ProVFL-B plays it (Table VII)."""

from collections.abc import Sequence

from lightleak.core.errors import UsageError


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
