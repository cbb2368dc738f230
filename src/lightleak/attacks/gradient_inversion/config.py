"""The settings of a gradient-inversion attack. An attack is a declaration: these values under a name."""

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from lightleak.core.errors import UsageError
from lightleak.data.relaxation import CategoricalRelaxation, NumericalRelaxation

Initialisation = Literal["unit", "symmetric", "normal"]
Pooling = Literal["median", "mean", "none"]
ObjectiveName = Literal["cosine", "squared_error"]
LabelMethod = Literal["true", "geng", "bias"]
EntropyMethod = Literal["frequency", "soft"]
Precision = Literal["float32", "float64", "bfloat16", "tf32"]

CPU_MEMORY_MB = 1024
"""Budget of a call where nothing says otherwise and the device is a CPU, which other programs share."""


@dataclass(frozen=True)
class EngineConfig:
    """How candidates are optimised, merged and judged; defaults are TabLeak's (Sec. 4, App. B, its published settings).

    Attributes:
        restarts: independent initialisations N, the ensemble size.
        steps: optimisation steps.
        learning_rate: Adam's step.
        learning_rate_decay: factor of the step after every ``decay_every`` steps; 1 keeps it.
        decay_every: see ``learning_rate_decay``.
        sign: step along the sign of the gradient (Geiping et al. 2020) instead of the gradient.
        initialisation: where candidates start: uniform in [0, 1] (``unit``, TabLeak's Algorithm 1), uniform in [-1, 1]
            (``symmetric``, its published code), or standard ``normal``.
        objective: distance between gradients.
        categorical: relaxation of categorical blocks.
        numerical: relaxation of numbers.
        pooling: how matched restarts are merged; ``none`` keeps the one of least loss.
        entropy: ``frequency`` of projected restarts (paper, Sec. 3.2) or the pooled ``soft`` distribution (published
            code).
        stop_below: a restart whose loss falls below this stops moving; ``None`` runs all steps, as the paper does.
        precision: floating-point type of the optimisation. ``bfloat16`` and ``tf32`` are float32 in all but the
            factors of matrix products: rounded to bfloat16 (plain ReLU networks alone), or to TF32 (a GPU alone).
        memory_mb: budget for one vectorised call; more work than that runs in chunks. ``None``: `CPU_MEMORY_MB`, and
            on a GPU most of what is free there (in a campaign, most of its memory).
        keep_ensemble: return the matched restarts.

    Raises:
        UsageError: a value of the wrong type or out of range.
    """

    restarts: int = 30
    steps: int = 1500
    learning_rate: float = 0.06
    learning_rate_decay: float = 1.0
    decay_every: int = 10
    sign: bool = True
    initialisation: Initialisation = "unit"
    objective: ObjectiveName = "cosine"
    categorical: CategoricalRelaxation = "softmax"
    numerical: NumericalRelaxation = "sigmoid"
    pooling: Pooling = "median"
    entropy: EntropyMethod = "frequency"
    stop_below: float | None = None
    precision: Precision = "float32"
    memory_mb: int | None = None
    keep_ensemble: bool = False

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            _check(name, getattr(self, name), hint)
        for name in ("restarts", "steps", "memory_mb", "decay_every"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.learning_rate > 0:
            raise UsageError(f"learning_rate must be above 0, got {self.learning_rate}")
        if not 0 < self.learning_rate_decay <= 1:
            raise UsageError(f"learning_rate_decay must be above 0 and at most 1, got {self.learning_rate_decay}")

    def with_options(self, **options: Any) -> Self:
        """A copy with some settings changed.

        Raises:
            UsageError: no setting of that name, or a value out of range.
        """
        known = [f.name for f in fields(self)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise UsageError(
                f"a gradient-inversion attack has no setting {', '.join(unknown)}; settings: {', '.join(known)}"
            )
        return replace(self, **options)

    @property
    def memory_bytes(self) -> int:
        """Budget for one call in bytes, a CPU's where none is set.

        >>> EngineConfig(memory_mb=2).memory_bytes
        2097152
        """
        return (self.memory_mb or CPU_MEMORY_MB) * 2**20

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return asdict(self)

    def not_negative(self, *names: str) -> None:
        """Raise `UsageError` for one of these settings that is below 0."""
        for name in names:
            if not getattr(self, name) >= 0:
                raise UsageError(f"{name} must be at least 0, got {getattr(self, name)}")


@dataclass(frozen=True)
class InversionConfig(EngineConfig):
    """The settings of an attack on FedSGD gradients; see `EngineConfig` for the others.

    Attributes:
        labels: ``true`` (shared with the attacker), or restored by ``geng`` (dummy activations) or ``bias`` (last
            bias).
        l2_prior: weight of the squared norm of the batch (GradInversion).
        batch_norm_prior: weight of the distance to the client's BatchNorm statistics (GradInversion).

    Raises:
        UsageError: a value of the wrong type or out of range.
    """

    labels: LabelMethod = "true"
    l2_prior: float = 0.0
    batch_norm_prior: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.not_negative("l2_prior", "batch_norm_prior")


def _check(name: str, value: Any, hint: Any) -> None:
    """Refuse a value that is not of the type a setting declares, before it fails in the middle of a run."""
    words = get_args(hint) if get_origin(hint) is Literal else ()
    if words and value not in words:
        raise UsageError(f"{name} must be one of {', '.join(words)}, got {value!r}")
    if hint is bool and not isinstance(value, bool):
        raise UsageError(f"{name} must be true or false, got {value!r}")
    if value is None and type(None) in get_args(hint):
        return
    if (hint is int or int in get_args(hint)) and (isinstance(value, bool) or not isinstance(value, int)):
        raise UsageError(f"{name} must be a whole number, got {value!r}")
    if hint is float or float in get_args(hint):
        usable = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not usable:
            raise UsageError(f"{name} must be a finite number, got {value!r}")
