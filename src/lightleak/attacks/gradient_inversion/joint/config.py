"""Settings of joint inversion."""

from dataclasses import dataclass
from typing import ClassVar

from lightleak.attacks.gradient_inversion.exact.config import ExactSettings
from lightleak.core.bounds import bounded


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

    restarts: int = bounded(1, ge=1)
    steps: int = bounded(5000, ge=1)
    sweeps: int = bounded(9, ge=0)
    rounds: int = bounded(6, ge=0)
    round_steps: int = bounded(1500, ge=1)
    reopenings: int = bounded(3, ge=0)
    noised_restarts: int = bounded(3, ge=1)
    noised_steps: int = bounded(1200, ge=1)
    noised_rounds: int = bounded(3, ge=0)
    noised_round_steps: int = bounded(500, ge=1)
    ridge: float = bounded(1e-2, gt=0)
    noise: float | None = bounded(None, ge=0)
