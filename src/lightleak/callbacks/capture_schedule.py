"""Which optimizer steps, or which clients of which rounds, are captured."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lightleak.core.errors import UsageError


@dataclass(frozen=True)
class CaptureSchedule:
    """Chosen steps, and the first full ones of chosen epochs; all numbers start at 0.

    Attributes:
        epochs: epochs to capture in, for example ``(0, 1, 5)`` or ``range(0, 100, 10)``.
        per_epoch: the first so many full steps of each.
        steps: optimizer steps to capture besides.
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


@dataclass(frozen=True)
class RoundSchedule:
    """Chosen rounds of a federation, and of each the first clients or the chosen ones; all numbers start at 0.

    Attributes:
        rounds: rounds to capture in, for example ``(0, 5, 10)``.
        per_round: the first so many captures of each, in the order in which the server drew the clients.
        clients: these instead, wherever they take part.
        max_captures: no more than these in one run.
    """

    rounds: Collection[int]
    per_round: int = 1
    clients: Collection[int] = ()
    max_captures: int = 100

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            UsageError: no round is chosen, or a number is below its bound.
        """
        if not len(self.rounds):
            raise UsageError("nothing to capture: give rounds, such as (0, 5)")
        for name in ("per_round", "max_captures"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("rounds", "clients"):
            chosen = getattr(self, name)
            if len(chosen) and min(chosen) < 0:
                raise UsageError(f"{name} are counted from 0, got {min(chosen)}")

    def choose(self, drawn: Sequence[int]) -> list[int]:
        """The clients to capture among those of a chosen round; ``max_captures`` is the caller's to keep.

        >>> RoundSchedule(rounds=(0,), per_round=2).choose([7, 3, 5])
        [7, 3]
        >>> RoundSchedule(rounds=(0,), clients=(5, 7, 9)).choose([7, 3, 5])
        [7, 5]
        """
        if len(self.clients):
            return [client for client in drawn if client in self.clients]
        return list(drawn[: self.per_round])
