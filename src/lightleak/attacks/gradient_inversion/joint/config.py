"""Settings of joint inversion."""

from dataclasses import dataclass
from typing import ClassVar

from lightleak.attacks.gradient_inversion.exact.config import ExactSettings


@dataclass(frozen=True)
class JointConfig(ExactSettings):
    """How much work joint inversion does, and what it may know.

    Attributes:
        restarts: starts at most; a further one is made only where those before did not explain the gradient.
        steps: the engine's steps from a start.
        sweeps: most sweeps over single cells after them.
        rounds: rounds of refinement of each start.
        round_steps: the engine's steps of a round.
        reopenings: fresh starts of doubtful rows after a round that gained little.
        noised_restarts: starts that are pooled where the gradient is noised.
        noised_steps: the engine's steps of each of them.
        noised_rounds: rounds at most from the pooled rows; a further one follows only where the one before gained.
        noised_round_steps: the engine's steps of each of them.
        ridge: of the whitening, as share of the largest second moment.
        noise: deviation of what was added to every element of the gradient; None: estimated from the gradient.

    Raises:
        UsageError: a value of the wrong type or out of range.
    """

    owner: ClassVar[str] = "exact_joint"

    restarts: int = 1
    steps: int = 5000
    sweeps: int = 9
    rounds: int = 6
    round_steps: int = 1500
    reopenings: int = 3
    noised_restarts: int = 3
    noised_steps: int = 1200
    noised_rounds: int = 3
    noised_round_steps: int = 500
    ridge: float = 1e-2
    noise: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "restarts", "steps", "round_steps", "noised_restarts", "noised_steps", "noised_round_steps")
        self.at_least(0, "sweeps", "rounds", "reopenings", "noised_rounds", "noise")
        self.above_zero("ridge")
