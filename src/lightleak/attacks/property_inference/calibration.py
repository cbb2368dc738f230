"""What an estimated fraction is worth: its 95% interval, and the weights of several estimates (not in the paper).

An estimate is off because the auxiliary rows are a sample of those with and without the property. To first order its
variance at a true fraction t is ``t^2 v_1 + (1 - t)^2 v_0``, and less where the auxiliary rows are much of their class.
The interval holds every t at which what was estimated is within 1.96 standard deviations of what that t would
give; so it grows to [0, 1] by itself where the observation carries little information. It cannot cover auxiliary rows
that do not look like the records: a wrong label, or rows picked by something that the results depend on.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from lightleak.core.summary import Z95

LEAST_SLOPE = 0.1  # below it an estimate hardly moves with the fraction, and dividing by the slope means nothing
CURVE_DEGREE = 3  # trees answer fractions near 0 and 1 too close to the middle: a curve with two bends
GRID = np.linspace(0, 1, 2001)


@dataclass(frozen=True)
class Response:
    """What an estimator is expected to answer at fraction t: ``center + slope (t - center)``."""

    slope: float = 1.0
    center: float = 0.5

    @property
    def informative(self) -> bool:
        """Whether the estimate moves with the fraction."""
        return self.slope > LEAST_SLOPE

    def expected(self, fraction: np.ndarray) -> np.ndarray:
        """Expected estimate at each fraction."""
        return self.center + self.slope * (fraction - self.center)


@dataclass(frozen=True)
class Noise:
    """Variance of an estimate at fraction t: ``t^2 with_property + (1 - t)^2 without + constant``."""

    with_property: float
    without: float
    constant: float = 0.0


@dataclass(frozen=True)
class SampleSizes:
    """Auxiliary rows with and without the property, a repeated row counting once at most, and all records."""

    with_property: float
    without: float
    records: int


def effective_size(ids: np.ndarray) -> float:
    """Independent rows that weigh as much as ``ids`` do with their repetitions.

    >>> effective_size(np.array([1, 2, 3, 3]))
    2.6666666666666665
    """
    _, counts = np.unique(ids, return_counts=True)
    return float(counts.sum() ** 2 / (counts**2).sum())


def interval(estimate: float, response: Response, noise: Noise, sizes: SampleSizes) -> tuple[float, float]:
    """95% interval of the fraction: all t that do not contradict the estimate; [0, 1] where it is uninformative."""
    if not response.informative:
        return 0.0, 1.0
    t = GRID
    spread = np.sqrt(
        noise.with_property * t**2 * _unseen(t, sizes.with_property, sizes.records)
        + noise.without * (1 - t) ** 2 * _unseen(1 - t, sizes.without, sizes.records)
        + noise.constant
    )
    distance = np.abs(estimate - response.expected(t))
    accepted = distance <= Z95 * spread
    if accepted.any():
        return float(t[accepted][0]), float(t[accepted][-1])
    # No fraction explains the estimate, which lies beyond 0 or 1: the nearest one and its own spread.
    nearest = int(distance.argmin())
    reach = Z95 * float(spread[nearest]) / response.slope
    return max(0.0, float(t[nearest]) - reach), min(1.0, float(t[nearest]) + reach)


def ensemble_weights(errors: np.ndarray) -> np.ndarray:
    """Weights ``[k]`` that sum to one and give the least variance.

    Args:
        errors: ``[k, k]`` covariance of the estimates' errors.
    """
    # A tenth of each variance more: AG and VG are nearly one number, and their difference must get no large weight.
    # The last term is for a kind whose rows of a class all score the same.
    damped = errors + np.diag(0.1 * np.diag(errors) + 1e-12)
    solved = np.linalg.solve(damped, np.ones(len(errors)))
    return solved / solved.sum()


def held_out_response(fractions: np.ndarray, predictions: np.ndarray) -> tuple[Response, Noise]:
    """Response and noise of an estimator on the full auxiliary rows from what halves of them said about each other.

    A regressor also learns the accidents of its auxiliary rows, which pull what it says of other rows to the middle.
    With half the rows this pull is twice as strong: a slope s becomes ``2 s / (1 + s)`` with all (Spearman-Brown).

    Args:
        fractions: ``[2, S]`` true fractions of the samples of each held-out half.
        predictions: ``[2, S, 2]`` predictions for a pair of samples of one bootstrap copy of that half.
    """
    # What one half's accidents add, the other half's take away: the line is that of both together.
    half_slope, intercept = np.polyfit(fractions.ravel(), predictions.mean(-1).ravel(), 1)
    slope = 2 * half_slope / (1 + half_slope) if half_slope > 0 else 0.0
    if not Response(slope).informative:
        return Response(0.0), Noise(0.0, 0.0)
    # At slope 1 the line has no fixed point: the center then has no effect.
    center = float(np.clip(intercept / (1 - half_slope), 0, 1)) if abs(1 - half_slope) > 0.01 else 0.5
    # Around a curve of each half's own: what all of its samples share is not the scatter of the copies.
    curves = [np.polyfit(t, p.mean(-1), CURVE_DEGREE) for t, p in zip(fractions, predictions, strict=True)]
    expected = np.stack([np.polyval(curve, t) for curve, t in zip(curves, fractions, strict=True)])
    common = (predictions - expected[..., None]).prod(-1).ravel()
    basis = np.stack([fractions.ravel() ** 2, (1 - fractions.ravel()) ** 2], axis=1)
    (with_property, without), _ = nnls(basis, common)
    # The estimator's own error: how far both halves together are from a line.
    bend = np.polyval(np.mean(curves, axis=0), GRID) - (intercept + half_slope * GRID)
    # Half the rows have twice the variance of all.
    scale = (slope / half_slope) ** 2 / 2
    return Response(slope, center), Noise(with_property * scale, without * scale, float(np.mean(bend**2)))


def _unseen(share: np.ndarray, known: float, records: int) -> np.ndarray:
    """Finite-population factor: part of a class that is not among the auxiliary rows."""
    return np.clip(1 - known / np.maximum(share * records, 1e-9), 0, 1)
