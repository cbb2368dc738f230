"""Choose the optimizer steps, or the rounds and clients, that are captured."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral

from lightleak.core.bounds import bounded, check_settings
from lightleak.core.errors import UsageError


@dataclass(frozen=True)
class CaptureSchedule:
    """Chosen steps, and the first full ones of chosen epochs; all numbers start at 0.

    Attributes:
        epochs: epochs to capture in, for example ``(0, 1, 5)`` or ``range(0, 100, 10)``.
        per_epoch: number of full steps from the start of each; None: all its steps, one with a smaller batch too.
        steps: further optimizer steps to capture.
        max_captures: limit per training and process.
    """

    epochs: Collection[int] = ()
    per_epoch: int | None = bounded(1, ge=1)
    steps: Collection[int] = ()
    max_captures: int = bounded(100, ge=1)

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            UsageError: nothing is chosen, what is chosen is no list of whole numbers, or a number is below its bound.
        """
        _check_numbers({"epochs": self.epochs, "steps": self.steps})
        if not len(self.epochs) and not len(self.steps):
            raise UsageError("nothing to capture: give epochs, such as (0, 5), or steps, such as (0, 100)")
        check_settings(self)

    def wants(self, epoch: int, step: int, taken_in_epoch: int) -> bool:
        """Whether this step is chosen, after so many captures in its epoch; the caller enforces ``max_captures``.

        >>> CaptureSchedule(epochs=(0, 5), per_epoch=2).wants(epoch=5, step=80, taken_in_epoch=1)
        True
        """
        more = self.per_epoch is None or taken_in_epoch < self.per_epoch
        return step in self.steps or (epoch in self.epochs and more)

    def takes_partial(self, step: int) -> bool:
        """Whether a chosen step is captured with a smaller batch too."""
        return self.per_epoch is None or step in self.steps


@dataclass(frozen=True)
class RoundSchedule:
    """Chosen rounds of a federation, and of each the first clients or the chosen ones; all numbers start at 0.

    Attributes:
        rounds: rounds to capture in, for example ``(0, 5, 10)``.
        per_round: number of captures per round, in the order in which the server drew the clients.
        clients: capture these clients instead, in every chosen round in which they take part.
        max_captures: limit per training.
    """

    rounds: Collection[int]
    per_round: int = bounded(1, ge=1)
    clients: Collection[int] = ()
    max_captures: int = bounded(100, ge=1)

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            UsageError: no round is chosen, what is chosen is no list of whole numbers, or a number is below its bound.
        """
        _check_numbers({"rounds": self.rounds, "clients": self.clients})
        if not len(self.rounds):
            raise UsageError("nothing to capture: give rounds, such as (0, 5)")
        check_settings(self)

    def choose(self, drawn: Sequence[int]) -> list[int]:
        """The clients to capture among those of a chosen round; the caller enforces ``max_captures``.

        >>> RoundSchedule(rounds=(0,), per_round=2).choose([7, 3, 5])
        [7, 3]
        >>> RoundSchedule(rounds=(0,), clients=(5, 7, 9)).choose([7, 3, 5])
        [7, 5]
        """
        if len(self.clients):
            return [client for client in drawn if client in self.clients]
        return list(drawn[: self.per_round])


def _check_numbers(chosen: Mapping[str, Collection[int]]) -> None:
    for name, numbers in chosen.items():
        is_list = isinstance(numbers, Collection) and not isinstance(numbers, str)
        if not is_list or not all(isinstance(number, Integral) for number in numbers):
            raise UsageError(f"{name} must be a list of whole numbers, such as (0, 5), got {numbers!r}")
        if len(numbers) and min(numbers) < 0:
            raise UsageError(f"{name} are counted from 0, got {min(numbers)}")
