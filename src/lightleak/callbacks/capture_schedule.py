"""Which optimiser steps are captured."""

from collections.abc import Collection
from dataclasses import dataclass

from lightleak.core.errors import UsageError


@dataclass(frozen=True)
class CaptureSchedule:
    """Chosen steps, and the first full ones of chosen epochs; all numbers start at 0.

    Attributes:
        epochs: epochs to capture in, for example ``(0, 1, 5)`` or ``range(0, 100, 10)``.
        per_epoch: the first so many full steps of each.
        steps: optimiser steps to capture besides.
        max_captures: no more than these in one process.
    """

    epochs: Collection[int] = ()
    per_epoch: int = 1
    steps: Collection[int] = ()
    max_captures: int = 100

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            UsageError: nothing is chosen, or a number is below its bound.
        """
        if not len(self.epochs) and not len(self.steps):
            raise UsageError("nothing to capture: give epochs, such as (0, 5), or steps, such as (0, 100)")
        for name in ("per_epoch", "max_captures"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("epochs", "steps"):
            chosen = getattr(self, name)
            if len(chosen) and min(chosen) < 0:
                raise UsageError(f"{name} are counted from 0, got {min(chosen)}")

    def wants(self, epoch: int, step: int, taken_in_epoch: int) -> bool:
        """Whether this step is chosen, after so many captures in its epoch; ``max_captures`` is the caller's to keep.

        >>> CaptureSchedule(epochs=(0, 5), per_epoch=2).wants(epoch=5, step=80, taken_in_epoch=1)
        True
        """
        return step in self.steps or (epoch in self.epochs and taken_in_epoch < self.per_epoch)
