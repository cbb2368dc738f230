"""The settings of distribution comparison (ProVFL Sec. VI-A)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from lightleak.attacks.property_inference.estimators import REGRESSORS
from lightleak.attacks.property_inference.norms import Norm
from lightleak.attacks.property_inference.populations import Features, fraction_grid
from lightleak.attacks.property_inference.record_features import require_some_kinds
from lightleak.attacks.settings import AttackSettings
from lightleak.core.bounds import bounded, require_one_of
from lightleak.core.errors import UsageError
from lightleak.core.parties import Kind

Summary = Norm | Literal["discriminant"]
Ensemble = Literal["mean", "weighted"]
MIXTURE = "mixture"
DRAWS = ("samples", "sample_size", "queries")
"""Settings of the populations that a regressor learns from and answers on."""


@dataclass(frozen=True)
class DistributionComparisonConfig(AttackSettings):
    """Defaults are the paper's (Sec. VI-A), with 100 quantiles for a population's 2000 sorted norms.

    Attributes:
        kinds: kinds of intermediate results to use; ``None`` takes all in the observation (C2 has ``AO`` only).
        norm: number that stands for a record: ``l1``, ``l2``, ``linf``, or ``discriminant``, a direction learned
            from the auxiliary rows (not in the paper).
        estimator: ``mixture``, or a regressor on populations.
        ensemble: how kinds are merged: plain ``mean`` (paper), or ``weighted`` for the least variance.
        features: what a regressor sees of a population: ``quantiles``, or all its norms ``sorted`` (published code).
        n_quantiles: quantiles of a population.
        samples: R, populations a regressor learns from; a mixture takes none of these three.
        sample_size: M, norms of a population.
        queries: Q, queries of M records each; one has no spread, and with it a regressor's interval is not made.
        fraction_step: q in percent, the step of the grid that a population's fraction is drawn from.
        held_out: samples per half of the auxiliary rows from which a regressor's interval comes; 0 makes none.
        grid_points: points at which the mixture compares distribution functions.
        clip: move estimates into [0, 1].

    Raises:
        UsageError: a value out of range, or two that do not go together.
    """

    owner: ClassVar[str] = "distribution comparison"

    kinds: tuple[Kind, ...] | None = None
    norm: Summary = "l1"
    estimator: str = "xgboost"
    ensemble: Ensemble = "mean"
    features: Features = "quantiles"
    n_quantiles: int = bounded(100, ge=1)
    samples: int = bounded(200, ge=1)
    sample_size: int = bounded(2000, ge=1)
    queries: int = bounded(100, ge=1)
    fraction_step: float = 1.0
    held_out: int = bounded(100, ge=0)
    grid_points: int = bounded(49, ge=1)
    clip: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_some_kinds(self.kinds)
        require_one_of("estimator", self.estimator, (MIXTURE, *REGRESSORS.names()))
        drawn = [name for name in DRAWS if getattr(self, name) != getattr(type(self), name)]
        if self.estimator == MIXTURE and drawn:
            raise UsageError(f"estimator {MIXTURE} draws no populations; leave out {', '.join(drawn)}")
        if self.features == "quantiles" and self.n_quantiles > self.sample_size:
            raise UsageError(f"n_quantiles must be at most sample_size {self.sample_size}, got {self.n_quantiles}")
        fraction_grid(self.fraction_step)
        if self.weighted and self.estimator != MIXTURE and not self.held_out:
            raise UsageError(f"ensemble weighted with estimator {self.estimator} needs held_out above 0, got 0")

    @property
    def weighted(self) -> bool:
        """Whether kinds are weighed."""
        return self.ensemble == "weighted"

    @classmethod
    def as_published(cls, **options: Any) -> "DistributionComparisonConfig":
        """What the published code does: all sorted norms, XGBoost's own defaults, raw estimates, no interval."""
        published = {"features": "sorted", "estimator": "xgboost_published", "clip": False, "held_out": 0}
        return cls.of(**{**published, **options})
