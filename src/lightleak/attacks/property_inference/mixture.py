"""The closed form: the records' distribution as a mixture of the two auxiliary ones (not in the paper).

The share t is the least-squares solution of ``F = t F_1 + (1 - t) F_0`` over distribution functions on a grid. With
``h = (F_1 - F_0) / |F_1 - F_0|^2`` it is ``t = h . (F - F_0)``: a mean, over the records, of one score per value, with
mean 0 over the rows without the property and 1 over those with it. Hence the spread of the scores says how far t may
be off, with no resampling, and the scores of several kinds say how their errors go together.

Sampling errors of ``F_1`` and ``F_0`` also make ``|F_1 - F_0|^2`` too large, by ``s_1 + s_0`` on average, which pulls
an estimate towards ``s_0 / (s_1 + s_0)`` (regression dilution). Of a single kind, estimates that scatter outwards make
up for it; in a weighted mean they do not, because kinds that seem far apart by chance get large weights. The interval
of a weighted mean holds for no pull, for all of it and for what is in between.
"""

from dataclasses import dataclass

import numpy as np

from lightleak.attacks.property_inference.calibration import Noise, Response, SampleSizes, ensemble_weights
from lightleak.attacks.property_inference.estimation import KindValues, Outcome, Values

WEIGHT_STEPS = 3  # the best weights depend on the fraction, which depends on them


@dataclass(frozen=True)
class MixtureScores:
    """Scores of one kind of intermediate result.

    Attributes:
        with_property: ``[a]`` scores of the auxiliary rows with the property, mean 1.
        without: ``[b]`` those of the rows without, mean 0.
        fraction: mean score of the records, the estimate; not clipped.
        size: ``|F_1 - F_0|^2``.
        spread_with: ``|F_1 (1 - F_1)|_1``, the mean squared error of ``F_1`` times the rows it is from.
        spread_without: the same of ``F_0``.
    """

    with_property: np.ndarray
    without: np.ndarray
    fraction: float
    size: float
    spread_with: float
    spread_without: float


def mixture_scores(values: KindValues, grid_points: int = 49) -> MixtureScores | None:
    """Solve for the share of the records; ``None`` where both classes are the same on the grid.

    Args:
        values: auxiliary rows and records.
        grid_points: points at which distribution functions are compared: quantiles of the auxiliary values.
    """
    levels = np.arange(1, grid_points + 1) / (grid_points + 1)
    grid = np.unique(np.quantile(np.concatenate([values.with_property, values.without]), levels))
    bins = [np.searchsorted(grid, v) for v in (values.with_property, values.without, values.records)]
    one, zero, mixed = (np.bincount(b, minlength=len(grid) + 1)[:-1].cumsum() / len(b) for b in bins)
    difference = one - zero
    size = float(difference @ difference)
    if size == 0:
        return None
    weights = difference / size
    # A value counts at every grid point at or above it.
    score = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
    offset = float(weights @ zero)
    fraction = float(weights @ mixed) - offset
    spreads = float(one @ (1 - one)), float(zero @ (1 - zero))
    return MixtureScores(score[bins[0]] - offset, score[bins[1]] - offset, fraction, size, *spreads)


def estimate_by_mixture(values: Values, sizes: SampleSizes, prior: float, weighted: bool, grid_points: int) -> Outcome:
    """Estimate from each kind and merge: the plain mean of what lies in [0, 1], or the mean of least variance.

    Args:
        values: one number per record and kind.
        sizes: how many rows these are.
        prior: the answer of a kind that is the same in both classes.
        weighted: weigh the kinds by the covariance of their scores.
        grid_points: see `mixture_scores`.
    """
    found = {kind: mixture_scores(v, grid_points) for kind, v in values.items()}
    by_kind = {kind: prior if scores is None else scores.fraction for kind, scores in found.items()}
    known = {kind: scores for kind, scores in found.items() if scores is not None}
    if not known:
        return Outcome(prior, by_kind, Response(0.0, prior), Noise(0.0, 0.0))
    estimates = np.array([scores.fraction for scores in known.values()])
    with_property = _covariance([scores.with_property for scores in known.values()]) / sizes.with_property
    without = _covariance([scores.without for scores in known.values()]) / sizes.without
    pulled = None
    if weighted:
        fraction = 0.5
        for _ in range(WEIGHT_STEPS):
            weights = ensemble_weights(fraction**2 * with_property + (1 - fraction) ** 2 * without)
            fraction = float(np.clip(weights @ estimates, 0, 1))
        fraction = float(weights @ estimates)
        pulled = _pulled(list(known.values()), weights, sizes)
    else:
        weights = np.full(len(estimates), 1 / len(estimates))
        fraction = float(estimates.clip(0, 1).mean())
    noise = Noise(float(weights @ with_property @ weights), float(weights @ without @ weights))
    details = {"weights": dict(zip(known, weights.tolist(), strict=True))}
    return Outcome(fraction, by_kind, pulled=pulled, noise=noise, details=details)


def _pulled(kinds: list[MixtureScores], weights: np.ndarray, sizes: SampleSizes) -> Response:
    """What the weighted mean answers where sampling errors pull every kind as far as they do on average."""
    errors = np.array([(one.spread_with / sizes.with_property, one.spread_without / sizes.without) for one in kinds])
    lost = np.minimum(errors.sum(1) / np.array([one.size for one in kinds]), 1.0)
    pull = float(weights @ lost)
    if pull < 1e-9:  # nothing is lost, or negative weights undo it
        return Response()
    return Response(1 - pull, float(weights @ (lost * errors[:, 1] / errors.sum(1))) / pull)


def _covariance(scores: list[np.ndarray]) -> np.ndarray:
    return np.atleast_2d(np.cov(np.stack(scores)))
