"""Distribution comparison, the passive attack ProVFL-B (ProVFL Sec. V-A, Algorithm 1)."""

import time
from typing import Any

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
from lightleak.attacks.property_inference.comparison_config import MIXTURE, DistributionComparisonConfig
from lightleak.attacks.property_inference.discriminant import discriminant_values
from lightleak.attacks.property_inference.estimation import KindValues, Outcome, Values, misfit, separation
from lightleak.attacks.property_inference.mixture import estimate_by_mixture
from lightleak.attacks.property_inference.norms import record_norms
from lightleak.attacks.property_inference.regression import estimate_by_regression
from lightleak.attacks.settings import factory
from lightleak.core.errors import ObservationError, UnsupportedError
from lightleak.core.facts import Facts
from lightleak.core.intermediate_results import IntermediateResults
from lightleak.core.parties import KINDS, VISIBLE, Kind
from lightleak.core.property_estimate import PropertyEstimate
from lightleak.core.seeds import derive_seed, numpy_generator

LEAST_ROWS = 10
"""Distinct auxiliary rows of a class below which its distribution, and its spread, are not known."""
SEPARATED = 0.05
MISFIT = 0.001
"""Levels of the tests behind two warnings, over all kinds; the second is strict because every audit runs it."""


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
            raise ObservationError(
                f"a query draws sample_size {m} records; the observation has {n}: set sample_size to a part of them, "
                f"such as {max(1, n // 4)}"
            )
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
            outcome = estimate_by_regression(values, folds, config, derive_seed(seed, "distribution comparison"))
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
            responses = [one for one in (outcome.response, outcome.pulled) if one is not None]
            ends = [interval(outcome.fraction, one, outcome.noise, sizes) for one in responses]
            low, high = min(low for low, _ in ends), max(high for _, high in ends)
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
        threat = party_threat(observation, tuple(values), len(known.ids.unique()), epoch=epoch)
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
    def make(config: DistributionComparisonConfig) -> PropertyAttack:
        return DistributionComparison(config, name, title)

    facts = Facts(summary, SEES, NEEDS, deviates, settings=(default,))
    PROPERTY_ATTACKS.register(name, facts)(factory(make, default))


def provfl_b(*, as_published: bool = False, **options: Any) -> DistributionComparison:
    """ProVFL-B by its settings.

    Args:
        as_published: settings of the published code: all sorted norms, XGBoost's own defaults, no interval.
        options: settings of `DistributionComparisonConfig`.
    """
    config = DistributionComparisonConfig.as_published() if as_published else DistributionComparisonConfig()
    return DistributionComparison(config.with_options(**options))


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

PROPERTY_ATTACKS.register(
    "provfl_b",
    Facts(
        "ProVFL's passive attack: regression on norms",
        SEES,
        NEEDS,
        (_QUANTILES,),
        settings=(provfl_b, DistributionComparisonConfig()),
    ),
)(provfl_b)
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
