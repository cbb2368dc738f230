"""Settings of joint inversion."""

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self, get_args

from lightleak.attacks.gradient_inversion.tables.row_prior import PriorSource
from lightleak.core.errors import UsageError

_LEAST = {
    "restarts": 1,
    "steps": 1,
    "sweeps": 0,
    "rounds": 0,
    "round_steps": 1,
    "reopenings": 0,
    "noised_restarts": 1,
    "noised_steps": 1,
}


@dataclass(frozen=True)
class JointConfig:
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
        ridge: of the whitening, as share of the largest second moment.
        noise: deviation of what was added to every element of the gradient; None: estimated from the gradient.
        prior: what is believed of cells, see `RowPrior.of`.

    Raises:
        UsageError: a value of the wrong type or out of range.
    """

    restarts: int = 1
    steps: int = 5000
    sweeps: int = 9
    rounds: int = 6
    round_steps: int = 1500
    reopenings: int = 3
    noised_restarts: int = 5
    noised_steps: int = 1200
    ridge: float = 1e-2
    noise: float | None = None
    prior: PriorSource = "auto"

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"{name} must be a whole number, at least {least}, got {value!r}")
        for name, value in (("ridge", self.ridge), ("noise", self.noise)):
            if name == "noise" and value is None:
                continue
            usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not usable or value < 0 or (name == "ridge" and value == 0):  # type: ignore[operator]
                bound = "above 0" if name == "ridge" else "at least 0"
                raise UsageError(f"{name} must be a finite number {bound}, got {value!r}")
        if self.prior not in get_args(PriorSource):
            raise UsageError(f"prior must be one of {', '.join(get_args(PriorSource))}, got {self.prior!r}")

    def with_options(self, **options: Any) -> Self:
        """A copy with some settings changed.

        Raises:
            UsageError: no setting of that name, or a value out of range.
        """
        known = [f.name for f in fields(self)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise UsageError(f"exact_joint has no setting {', '.join(unknown)}; settings: {', '.join(known)}")
        return replace(self, **options)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)
