"""The settings of a gradient-inversion attack. An attack is a declaration: these values under a name."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from lightleak.attacks.settings import AttackSettings
from lightleak.core.bounds import bounded
from lightleak.core.errors import UsageError
from lightleak.data.relaxation import CategoricalRelaxation, NumericalRelaxation

Initialization = Literal["unit", "symmetric", "normal", "prior"]
Pooling = Literal["median", "mean", "none"]
ObjectiveName = Literal["cosine", "squared_error", "relative_error"]
RateSchedule = Literal["step", "cosine"]
MaskDerivative = Literal["zero", "straight_through"]
LabelMethod = Literal["true", "geng", "bias"]
EntropyMethod = Literal["frequency", "soft"]
Precision = Literal["float32", "float64", "bfloat16", "tf32"]

CPU_MEMORY_MB = 1024
"""Budget of a call where nothing says otherwise and the device is a CPU, which other programs share."""


@dataclass(frozen=True)
class EngineConfig(AttackSettings):
    """How candidates are optimized, merged and judged; defaults are TabLeak's (Sec. 4, App. B, its published settings).

    Attributes:
        restarts: independent initializations N, the ensemble size.
        steps: optimization steps.
        learning_rate: Adam's step.
        learning_rate_decay: factor of the step after every ``decay_every`` steps; 1 keeps it.
        decay_every: see ``learning_rate_decay``.
        schedule: ``step`` as the two settings above say, or ``cosine``: down to nearly nothing along half a cosine.
        numerical_learning_rate: Adam's step of numbers; None: ``learning_rate``.
        sign: step along the sign of the gradient (Geiping et al. 2020) instead of the gradient.
        initialization: where candidates start: uniform in [0, 1] (``unit``, TabLeak's Algorithm 1), uniform in [-1, 1]
            (``symmetric``, its published code), standard ``normal``, or at the ``prior``: logits, whatever the
            encoding's scale, at half the log shares of the categories plus normal noise, numbers near their mean, or
            at their lower bound where most rows lie there.
        objective: distance between gradients.
        whitening: compare gradients by their squared difference in coordinates in which the terms of random rows are
            uncorrelated, relative to the client's, in place of ``objective``; the value is the ridge, as share of the
            largest eigenvalue of their second moments. Plain ReLU networks alone.
        mask_derivative: derivative of a ReLU's mask 1[a > 0]: ``zero``, as autograd has it, or ``straight_through``:
            that of a logistic. Plain ReLU networks alone.
        mask_width: width of that logistic at the beginning, in deviations of the layer's pre-activations over random
            rows.
        mask_width_end: width at the end; geometric in between.
        prior_weight: weight of the rows' prior: cross-entropy of the categories to their shares and half the squared
            deviation of numbers, summed over rows. For noised updates.
        categorical: relaxation of categorical blocks.
        temperature_end: temperature of the softmax at the end, from 1 at the beginning; geometric in between.
        mask_absent: give no weight to categories whose column of the first layer's gradient is zero. Plain ReLU
            networks alone.
        tie_numbers: let numbers follow that the first layer's gradient shows to be the same in every row or a function
            of a categorical column. Plain ReLU networks alone.
        numerical: relaxation of numbers: ``sigmoid`` into their bounds, ``none``, or ``clamp``: moved freely in units
            of their deviation, and put back inside their bounds after every step.
        pooling: how matched restarts are merged; ``none`` keeps the one of least loss.
        entropy: ``frequency`` of projected restarts (paper, Sec. 3.2) or of the mean of their ``soft`` distributions
            (published code).
        stop_below: a restart whose loss falls below this stops moving, which needs ``temperature_end`` 1; ``None``
            runs all steps, as the paper does.
        precision: floating-point type of the optimization. ``bfloat16`` and ``tf32`` are float32 in all but the
            factors of matrix products: rounded to bfloat16 (plain ReLU networks alone), or to TF32 (a GPU alone).
        memory_mb: budget for one vectorized call; more work than that runs in chunks. ``None``: `CPU_MEMORY_MB`, and
            on a GPU most of what is free there (in a campaign, most of its memory).
        keep_ensemble: return the matched restarts.

    Raises:
        UsageError: a value of the wrong type or out of range.
    """

    owner: ClassVar[str] = "a gradient-inversion attack"

    restarts: int = bounded(30, ge=1)
    steps: int = bounded(1500, ge=1)
    learning_rate: float = bounded(0.06, gt=0)
    learning_rate_decay: float = bounded(1.0, gt=0, le=1)
    decay_every: int = bounded(10, ge=1)
    schedule: RateSchedule = "step"
    numerical_learning_rate: float | None = bounded(None, gt=0)
    sign: bool = True
    initialization: Initialization = "unit"
    objective: ObjectiveName = "cosine"
    whitening: float | None = bounded(None, gt=0)
    mask_derivative: MaskDerivative = "zero"
    mask_width: float = bounded(0.2, gt=0)
    mask_width_end: float = bounded(0.02, gt=0)
    prior_weight: float = bounded(0.0, ge=0)
    categorical: CategoricalRelaxation = "softmax"
    temperature_end: float = bounded(1.0, gt=0)
    mask_absent: bool = False
    tie_numbers: bool = False
    numerical: NumericalRelaxation = "sigmoid"
    pooling: Pooling = "median"
    entropy: EntropyMethod = "frequency"
    stop_below: float | None = None
    precision: Precision = "float32"
    memory_mb: int | None = bounded(None, ge=1)
    keep_ensemble: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule == "cosine" and self.learning_rate_decay != 1:
            raise UsageError(f"schedule 'cosine' needs learning_rate_decay 1, got {self.learning_rate_decay}")
        soft = {
            "initialization 'prior'": self.initialization == "prior",
            "temperature_end": self.temperature_end != 1,
            "mask_absent": self.mask_absent,
            "tie_numbers": self.tie_numbers,
            "prior_weight": self.prior_weight > 0,
        }
        if self.stop_below is not None and self.temperature_end != 1:
            # Rows of a stopped restart would go on to change, for as long as the other updates of the call run.
            raise UsageError(f"stop_below needs temperature_end 1, got {self.temperature_end}")
        needing = [name for name, asked in soft.items() if asked]
        if needing and self.categorical != "softmax":
            raise UsageError(f"{', '.join(needing)}: needs categorical 'softmax', got {self.categorical!r}")

    @property
    def needs_closed_form(self) -> tuple[str, ...]:
        """Settings that only the closed form of plain ReLU networks serves, those that are on.

        >>> EngineConfig(whitening=0.01).needs_closed_form
        ('whitening',)
        """
        asked = {
            "mask_derivative 'straight_through'": self.mask_derivative == "straight_through",
            "whitening": self.whitening is not None,
        }
        return tuple(name for name, on in asked.items() if on)

    @property
    def needs_prior(self) -> tuple[str, ...]:
        """Settings that use what is believed of rows before an update, those that are on."""
        asked = {"initialization 'prior'": self.initialization == "prior", "prior_weight": self.prior_weight > 0}
        return (*self.needs_closed_form, *(name for name, on in asked.items() if on))

    @property
    def memory_bytes(self) -> int:
        """Budget for one call in bytes, a CPU's where none is set.

        >>> EngineConfig(memory_mb=2).memory_bytes
        2097152
        """
        return (self.memory_mb or CPU_MEMORY_MB) * 2**20


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
    l2_prior: float = bounded(0.0, ge=0)
    batch_norm_prior: float = bounded(0.0, ge=0)
