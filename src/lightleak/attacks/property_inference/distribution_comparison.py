"""Distribution comparison, the passive attack ProVFL-B (ProVFL Sec. V-A, Algorithm 1)."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from lightleak.attacks.property_inference.attack import (
    PROPERTY_ATTACKS,
    SEES,
    PropertyAttack,
    party_threat,
    require_distinct_rows,
)
from lightleak.attacks.property_inference.calibration import SampleSizes, effective_size, interval
from lightleak.attacks.property_inference.discriminant import discriminant_values
from lightleak.attacks.property_inference.estimation import KindValues, Outcome, Values, misfit, separation
from lightleak.attacks.property_inference.estimators import REGRESSORS
from lightleak.attacks.property_inference.mixture import estimate_by_mixture
from lightleak.attacks.property_inference.norms import Norm, record_norms
from lightleak.attacks.property_inference.populations import Features, fraction_grid
from lightleak.attacks.property_inference.record_features import require_some_kinds
from lightleak.attacks.property_inference.regression import RegressionPlan, estimate_by_regression
from lightleak.attacks.settings import AttackSettings, require_one_of
from lightleak.core.bounds import bounded
from lightleak.core.errors import ObservationError, UnsupportedError, UsageError
from lightleak.core.facts import Facts
from lightleak.core.intermediate_results import IntermediateResults
from lightleak.core.parties import KINDS, VISIBLE, Kind
from lightleak.core.property_estimate import PropertyEstimate
from lightleak.core.seeds import derive_seed, numpy_generator

Summary = Norm | Literal["discriminant"]
Ensemble = Literal["mean", "weighted"]
MIXTURE = "mixture"
LEAST_ROWS = 10
"""Distinct auxiliary rows of a class below which its distribution, and its spread, are not known."""
SEPARATED = 0.05
MISFIT = 0.001
"""Levels of the tests behind two warnings, over all kinds; the second is strict because every audit runs it."""


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
        samples: R, populations a regressor learns from.
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


class DistributionComparison(PropertyAttack):
    """Find the fraction at which the auxiliary rows' intermediate results look like all records'."""

    citation = "Bai et al., ProVFL: Property Inference Attacks against Vertical Federated Learning, IEEE TIFS 2025"

    def __init__(
        self, config: DistributionComparisonConfig | None = None, name: str = "provfl_b", title: str = "ProVFL-B"
    ) -> None:
        self.config = config or DistributionComparisonConfig()
        self.name, self.title = name, title

    def options(self) -> dict[str, Any]:
        """The settings, JSON-ready."""
        return self.config.to_dict()

    def check(self, observation: IntermediateResults) -> None:
        """Reject a kind that cannot be seen or was not recorded, or too few rows."""
        for kind in self.config.kinds or ():
            if kind not in VISIBLE[observation.adversary]:
                allowed = ", ".join(VISIBLE[observation.adversary])
                raise UnsupportedError(f"an adversary {observation.adversary} can see {allowed}; kinds asks for {kind}")
            if kind not in observation.results:
                recorded = ", ".join(observation.results)
                raise ObservationError(f"kinds asks for {kind}; the observation holds {recorded}")
        n, m = len(observation.ids), self.config.sample_size
        if self.config.estimator != MIXTURE and n < m:
            raise ObservationError(f"a query draws sample_size {m} records; the observation has {n}")
        require_distinct_rows(observation.auxiliary, LEAST_ROWS, "distribution comparison")

    def run(
        self, observation: IntermediateResults, seed: int = 0, device: torch.device | str = "cpu"
    ) -> PropertyEstimate:
        """Estimate the fraction, with an interval and what speaks against believing it."""
        self.check(observation)
        began = time.perf_counter()
        config, known = self.config, observation.auxiliary
        ids = known.ids[known.has_property].cpu().numpy(), known.ids[~known.has_property].cpu().numpy()
        sizes = SampleSizes(effective_size(ids[0]), effective_size(ids[1]), len(observation.ids))
        folds = _folds(ids[0], seed), _folds(ids[1], seed)
        values = _values(observation, config, ids, folds, device)
        if config.estimator == MIXTURE:
            outcome = estimate_by_mixture(values, sizes, known.prior, config.weighted, config.grid_points)
        else:
            outcome = estimate_by_regression(
                values, folds, RegressionPlan.of(config), derive_seed(seed, "distribution comparison")
            )
        return self._report(observation, values, sizes, outcome, began)

    def _report(
        self,
        observation: IntermediateResults,
        values: Values,
        sizes: SampleSizes,
        outcome: Outcome,
        began: float,
    ) -> PropertyEstimate:
        known = observation.auxiliary
        fraction = self._finish(outcome.fraction)
        inside = min(max(fraction, 0.0), 1.0)
        distances = {kind: separation(one, sizes) for kind, one in values.items()}
        fits = {kind: misfit(one, inside, sizes) for kind, one in values.items()}
        p_value = min(1.0, min(p for _, p in distances.values()) * len(values))
        separated = p_value < SEPARATED
        low, high = 0.0, 1.0
        if separated and outcome.noise is not None:
            low, high = interval(outcome.fraction, outcome.response, outcome.noise, sizes)
        low, high = min(low, inside), max(high, inside)
        warnings = []
        if outcome.noise is None:
            warnings.append(
                "no interval was computed: the estimate cannot be distinguished from guessing the auxiliary prior"
            )
        if not separated:
            warnings.append(
                f"auxiliary rows with and without {known.property_name} do not differ in what is observed "
                f"(Kolmogorov-Smirnov, p = {p_value:.2g}): the estimate is a guess"
            )
        elif outcome.noise is not None and low <= known.prior <= high:
            warnings.append(
                f"the 95% interval {low:.3f} to {high:.3f} contains the auxiliary prior {known.prior:.3f}: "
                "the estimate cannot be distinguished from guessing it"
            )
        if separated and (p_misfit := min(p for _, p in fits.values()) * len(values)) < MISFIT:
            warnings.append(
                "the records' values are no mixture of the auxiliary rows' "
                f"(p = {p_misfit:.2g}): these rows do not look like the records, which the interval does not cover"
            )
        epoch = observation.facts.epoch
        threat = party_threat(observation, tuple(values), len(observation.auxiliary.ids), epoch=epoch)
        return PropertyEstimate(
            fraction,
            low,
            high,
            known.prior,
            time.perf_counter() - began,
            threat.describe(),
            {kind: self._finish(value) for kind, value in outcome.by_kind.items()},
            tuple(warnings),
            {
                "raw_fraction": outcome.fraction,
                "separation": {kind: distance for kind, (distance, _) in distances.items()},
                "misfit": {kind: distance for kind, (distance, _) in fits.items()},
                "separation_p_value": p_value,
                "distinct_auxiliary_rows": len(known.ids.unique()),
                **outcome.details,
            },
            threat,
        )

    def _finish(self, fraction: float) -> float:
        return min(max(fraction, 0.0), 1.0) if self.config.clip else fraction


def _values(
    observation: IntermediateResults,
    config: DistributionComparisonConfig,
    ids: tuple[np.ndarray, np.ndarray],
    folds: tuple[np.ndarray, np.ndarray],
    device: torch.device | str,
) -> Values:
    rows = [observation.positions(torch.from_numpy(one)).numpy() for one in ids]
    values: dict[Kind, KindValues] = {}
    for kind in config.kinds or tuple(kind for kind in KINDS if kind in observation.results):
        results = observation.results[kind]
        if config.norm == "discriminant":
            vectors = results.double().cpu().numpy()
            values[kind] = discriminant_values(vectors[rows[0]], vectors[rows[1]], vectors, folds)
        else:
            norms = record_norms(results.to(device), config.norm).cpu().numpy()
            values[kind] = KindValues(norms[rows[0]], norms[rows[1]], norms)
    return values


def _folds(ids: np.ndarray, seed: int) -> np.ndarray:
    """Half of the distinct rows, at random; a repeated row is in one half with all its copies."""
    distinct, place = np.unique(ids, return_inverse=True)
    second = np.arange(len(distinct)) % 2 == 1
    numpy_generator(seed, "halves of the auxiliary rows").shuffle(second)
    return second[place]


def _declare(name: str, title: str, default: DistributionComparisonConfig, summary: str, *deviates: str) -> None:
    def build(*, as_published: bool = False, **options: Any) -> DistributionComparison:
        """Make the attack.

        Args:
            as_published: settings of the published code: all sorted norms, XGBoost's own defaults, no interval.
            options: settings of `DistributionComparisonConfig`.
        """
        config = DistributionComparisonConfig.as_published() if as_published else default
        return DistributionComparison(config.with_options(**options), name, title)

    factory: Callable[..., PropertyAttack] = build
    PROPERTY_ATTACKS.register(name, Facts(summary, SEES, NEEDS, deviates, settings=(build, default)))(factory)


NEEDS = (
    f"At least {LEAST_ROWS} distinct auxiliary rows with the property and as many without it.",
    "Auxiliary rows that were trained on like all others; a warning says where the records are no mixture of them.",
)
_QUANTILES = (
    "A population is described by 100 quantiles and gets an interval; the published code takes all 2,000 sorted norms, "
    "XGBoost's own defaults and raw estimates (`as_published: true`)."
)
_MIXTURE = (
    "In place of a regressor on drawn populations the fraction of a mixture of two distributions is found in closed "
    "form, and kinds are weighted by their variance: not in the paper."
)

_declare(
    "provfl_b", "ProVFL-B", DistributionComparisonConfig(), "ProVFL's passive attack: regression on norms", _QUANTILES
)
_declare(
    "provfl_b_mixture",
    "ProVFL-B, mixture",
    DistributionComparisonConfig(estimator=MIXTURE, ensemble="weighted"),
    "ProVFL-B with a mixture in closed form",
    _MIXTURE,
)
_declare(
    "provfl_b_discriminant",
    "ProVFL-B, discriminant",
    DistributionComparisonConfig(norm="discriminant", estimator=MIXTURE, ensemble="weighted"),
    "ProVFL-B on a learned direction in place of the norm",
    "A direction learned from the auxiliary rows takes the place of the norm: not in the paper.",
    _MIXTURE,
)
