"""Regressors on populations of record norms, and their worth on rows they have not seen (ProVFL Algorithm 1)."""

from collections.abc import Sequence

import numpy as np

from lightleak.attacks.property_inference.calibration import Noise, Response, ensemble_weights, held_out_response
from lightleak.attacks.property_inference.comparison_config import DistributionComparisonConfig
from lightleak.attacks.property_inference.estimation import Outcome, Values
from lightleak.attacks.property_inference.estimators import REGRESSORS, Predict
from lightleak.attacks.property_inference.populations import (
    draw_populations,
    draw_queries,
    draw_resampled_pairs,
    fraction_grid,
    population_features,
)
from lightleak.core.seeds import derive_seed, numpy_generator


def estimate_by_regression(
    values: Values, folds: tuple[np.ndarray, np.ndarray], config: DistributionComparisonConfig, seed: int
) -> Outcome:
    """Fit a regressor per kind, query it, and merge the kinds.

    All kinds share the drawn rows. The interval's noise comes from halves of the auxiliary rows that predict each other
    (`held_out` pairs for each half; none, no interval).

    Args:
        values: one number per record and kind.
        folds: bool ``[a]`` and ``[b]``, which half an auxiliary row with, or without, the property belongs to.
        config: how populations are drawn and what learns from them.
        seed: root seed.
    """
    kinds = list(values)
    auxiliary = [np.concatenate([values[kind].with_property, values[kind].without]) for kind in kinds]
    everyone = np.arange(len(folds[0])), np.arange(len(folds[1])) + len(folds[0])
    regressors = _fit(auxiliary, everyone, config, config.samples, derive_seed(seed, "attack samples"))
    n_records = len(values[kinds[0]].records)
    drawn = draw_queries(n_records, config.queries, config.sample_size, numpy_generator(seed, "queries"))
    asked = _predict(regressors, [values[kind].records for kind in kinds], drawn, config)
    answers = asked.mean(0)
    weights, response, noise, details = np.full(len(kinds), 1 / len(kinds)), Response(), None, {}
    if config.held_out:
        fractions, predictions = _held_out(auxiliary, everyone, folds, config, seed)
        if config.weighted:
            errors = (predictions.mean(2) - fractions[..., None]).reshape(-1, len(kinds))
            weights = ensemble_weights(errors.T @ errors / len(errors))
        merged = predictions @ weights
        response, sampled = held_out_response(fractions, merged)
        if config.queries > 1:
            constant = float((asked @ weights).var(ddof=1)) / config.queries + sampled.constant
            noise = Noise(sampled.with_property, sampled.without, constant)
        details = {
            "weights": dict(zip(kinds, weights.tolist(), strict=True)),
            "response_slope": response.slope,
            "held_out_error": float(np.abs(merged - fractions[..., None]).mean()),
        }
    by_kind = dict(zip(kinds, answers.tolist(), strict=True))
    return Outcome(float(answers @ weights), by_kind, response, noise, details)


def _fit(
    auxiliary: Sequence[np.ndarray],
    rows: tuple[np.ndarray, np.ndarray],
    config: DistributionComparisonConfig,
    samples: int,
    seed: int,
) -> list[Predict]:
    """A regressor per kind from populations of the rows at these positions."""
    rng = numpy_generator(seed, "draws")
    grid = fraction_grid(config.fraction_step)
    counts = np.rint(grid[rng.integers(0, len(grid), samples)] * config.sample_size).astype(np.int64)
    drawn = draw_populations(counts, (len(rows[0]), len(rows[1])), config.sample_size, rng)
    positions = np.concatenate(rows)[drawn]
    fit, target = REGRESSORS.get(config.estimator), counts / config.sample_size
    return [
        fit(population_features(one[positions], config.features, config.n_quantiles), target, derive_seed(seed, "fit"))
        for one in auxiliary
    ]


def _predict(
    regressors: Sequence[Predict], values: Sequence[np.ndarray], drawn: np.ndarray, config: DistributionComparisonConfig
) -> np.ndarray:
    """Predictions ``[populations, kinds]`` for the drawn positions ``[populations, M]``."""
    features = (population_features(one[drawn], config.features, config.n_quantiles) for one in values)
    return np.stack([predict(rows) for predict, rows in zip(regressors, features, strict=True)], axis=1)


def _held_out(
    auxiliary: Sequence[np.ndarray],
    everyone: tuple[np.ndarray, np.ndarray],
    folds: tuple[np.ndarray, np.ndarray],
    config: DistributionComparisonConfig,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Each half of the rows fits, with half the samples, and predicts pairs of samples of the other half.

    Returns:
        Fractions ``[2, S]`` and predictions ``[2, S, 2, kinds]``.
    """
    fractions, predictions = [], []
    for half in (False, True):
        fitted = tuple(rows[fold == half] for rows, fold in zip(everyone, folds, strict=True))
        rest = tuple(rows[fold != half] for rows, fold in zip(everyone, folds, strict=True))
        own = derive_seed(seed, "held out", int(half))
        regressors = _fit(auxiliary, (fitted[0], fitted[1]), config, max(1, config.samples // 2), own)
        rng = numpy_generator(own, "pairs")
        counts = rng.integers(0, config.sample_size + 1, config.held_out)
        pairs = draw_resampled_pairs(counts, rest[0], rest[1], config.sample_size, rng)
        predicted = _predict(regressors, auxiliary, pairs.reshape(-1, config.sample_size), config)
        fractions.append(counts / config.sample_size)
        predictions.append(predicted.reshape(config.held_out, 2, -1))
    return np.stack(fractions), np.stack(predictions)
