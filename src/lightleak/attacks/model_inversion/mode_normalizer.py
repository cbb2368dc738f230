"""Mode-specific normalization of one numerical column (CTGAN, Xu et al. 2019, Sec. 4.2; thesis Sec. 3.4.1.1).

A column's values are a mixture of normal distributions, fitted by variational inference under a Dirichlet process
(Blei and Jordan 2006), with the priors that scikit-learn's BayesianGaussianMixture takes by default and CTGAN therefore
uses. The mixture is fitted on distinct values and how often each occurs, which gives the same updates as all rows: a
column of whole numbers has a hundred distinct values or so, however many rows.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, digamma, gammaln

from lightleak.core.errors import DataError
from lightleak.core.seeds import numpy_generator

Array = NDArray[np.float64]

MAX_MODES = 10  # what CTGAN allows per column
MIN_WEIGHT = 0.005  # CTGAN drops modes of at most this weight
DEVIATIONS = 4.0  # a value is divided by this many deviations of its mode, so that nearly all lie in [-1, 1]
CLIP = 0.99  # as in CTGAN: a tanh cannot reach 1
MAX_VALUES = 2048  # distinct values a mixture is fitted on; 0.05% of the rows each, a tenth of the lightest mode kept

_CONCENTRATION = 0.001  # of the Dirichlet process, as in CTGAN
_MEAN_PRECISION = 1.0  # scikit-learn's defaults from here on
_DEGREES_OF_FREEDOM = 1.0
_RIDGE = 1e-6  # added to every variance, in units of the column's own
_TOLERANCE = 1e-3
_MAX_ITERATIONS = 100
_LLOYD_ITERATIONS = 50


class Mixture(NamedTuple):
    """A fitted mixture of K normal distributions.

    Attributes:
        weights: ``[K]`` expected shares, summing to 1.
        means: ``[K]``.
        variances: ``[K]``.
        log_weights: ``[K]`` expected logarithm of share and normalization: the log-posterior of a mode for a value x is
            ``log_weights - (x - means)^2 / (2 variances)``, up to a constant of x.
        iterations: updates made.
    """

    weights: Array
    means: Array
    variances: Array
    log_weights: Array
    iterations: int


@dataclass(frozen=True)
class Modes:
    """The modes of a numerical column that carry enough weight, as float64 ``[k]`` each.

    Attributes:
        means: means, in the column's units.
        deviations: standard deviations.
        log_weights: see `Mixture`.

    >>> modes = Modes.fit(np.array([0.0] * 50 + [10.0] * 50))
    >>> modes.means.round(1).tolist()
    [0.1, 9.9]
    >>> mode = modes.draw(np.array([0.0, 10.0]), np.array([0.5, 0.5]))
    >>> modes.restore(modes.normalize(np.array([0.0, 10.0]), mode), mode).round(6).tolist()
    [0.0, 10.0]
    """

    means: Array
    deviations: Array
    log_weights: Array

    @classmethod
    def fit(cls, values: Array, seed: int = 0) -> "Modes":
        """The modes of ``values [n]``, ascending by mean.

        The mixture is fitted on standardized values, so that the smallest variance scikit-learn allows (1e-6) does not
        depend on the column's unit.

        Raises:
            DataError: fewer than two values, or values that are not finite or too large for their variance.
        """
        if len(values) < 2:
            raise DataError(f"modes are fitted on at least 2 values, got {len(values)}")
        distinct, counts = np.unique(np.asarray(values, dtype="float64"), return_counts=True)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.average(distinct, weights=counts)
            scale = float(np.sqrt(np.average((distinct - mean) ** 2, weights=counts)))
        if not np.isfinite(scale):
            raise DataError("modes are fitted on finite numbers whose variance is a float64")
        scale = scale or 1.0  # a constant column has one mode whatever its unit
        points, weights = thin((distinct - mean) / scale, counts.astype("float64"))
        start = interval_start(points, weights, min(MAX_MODES, len(points)), seed)
        fitted = variational_mixture(points, weights, start)
        kept = np.flatnonzero(fitted.weights > MIN_WEIGHT)
        kept = kept[np.argsort(fitted.means[kept], kind="stable")]
        deviations = np.sqrt(fitted.variances[kept]) * scale
        return cls(fitted.means[kept] * scale + mean, deviations, fitted.log_weights[kept])

    def posterior(self, values: Array) -> Array:
        """Probability of every mode for each of ``values [n]``, ``[n, k]``."""
        log = self.log_weights - 0.5 * ((values[:, None] - self.means) / self.deviations) ** 2
        share = np.exp(log - log.max(1, keepdims=True))
        return np.asarray(share / share.sum(1, keepdims=True))

    def draw(self, values: Array, uniform: Array) -> NDArray[np.int64]:
        """A mode from the posterior of each of ``values [n]``, by uniform numbers ``[n]`` in [0, 1).

        CTGAN draws from the posterior over all modes, those it has dropped included, and gives a value of a dropped one
        any mode with equal probability; here it gets a mode that is near.
        """
        distinct, where = np.unique(values, return_inverse=True)
        bounds = self.posterior(distinct).cumsum(1)[:, :-1]  # the last bound is 1 but for rounding
        return np.asarray((bounds[where] <= uniform[:, None]).sum(1))

    def normalize(self, values: Array, mode: NDArray[np.int64]) -> Array:
        """``values [n]`` in units of 4 deviations about the mean of their mode, clipped to +-0.99."""
        scaled = (values - self.means[mode]) / (DEVIATIONS * self.deviations[mode])
        return np.asarray(scaled.clip(-CLIP, CLIP))

    def restore(self, scaled: Array, mode: NDArray[np.int64]) -> Array:
        """Inverse of `normalize` for values that were not clipped."""
        return np.asarray(scaled * DEVIATIONS * self.deviations[mode] + self.means[mode])


def thin(values: Array, weights: Array, most: int = MAX_VALUES) -> tuple[Array, Array]:
    """Ascending ``values [u]`` as at most ``most`` of them with the same total weight and mean.

    Neighbors of equal rank (in steps of 1/``most`` of the weight) become their mean; a value heavier than a step stays
    alone.
    """
    if len(values) <= most:
        return values, weights
    middle = weights.cumsum() - weights / 2
    step = np.floor(middle * (most / weights.sum()))
    first = np.flatnonzero(np.diff(step, prepend=-1.0))
    total = np.add.reduceat(weights, first)
    return np.add.reduceat(values * weights, first) / total, total


def interval_start(values: Array, weights: Array, clusters: int, seed: int) -> Array:
    """Responsibilities ``[u, clusters]`` of k-means on ascending distinct ``values [u]``: 1 for a value's cluster.

    In one dimension clusters are intervals, so that an assignment is a search among their middles. Starts are drawn far
    from each other (k-means++, Arthur and Vassilvitskii 2007) with the column's weights. There are fewer clusters where
    values differ by less than the square root of the smallest float.
    """
    centers = _spread_centers(values, weights, clusters, seed)
    mass = np.concatenate([[0.0], weights.cumsum()])
    moment = np.concatenate([[0.0], (weights * values).cumsum()])
    edges = np.empty(0, dtype="int64")
    for iteration in range(_LLOYD_ITERATIONS):
        found = np.searchsorted(values, (centers[1:] + centers[:-1]) / 2)
        if iteration and np.array_equal(found, edges):
            break
        edges = found
        cut = np.concatenate([[0], edges, [len(values)]])
        inside = np.diff(mass[cut])
        # Both neighbors may take all of a cluster's values: its center then stays.
        centers = np.where(inside > 0, np.diff(moment[cut]) / np.where(inside > 0, inside, 1.0), centers)
    cluster = np.searchsorted(edges, np.arange(len(values)), side="right")
    return np.asarray(np.eye(len(centers))[cluster])


def _spread_centers(values: Array, weights: Array, clusters: int, seed: int) -> Array:
    """At most ``clusters`` of ``values``, ascending: each drawn by weight times squared distance to those before."""
    rng = numpy_generator(seed, "k-means")
    distance, chance = np.full(len(values), np.inf), weights
    centers: list[float] = []
    while len(centers) < clusters and chance.any():
        centers.append(float(values[rng.choice(len(values), p=chance / chance.sum())]))
        distance = np.minimum(distance, (values - centers[-1]) ** 2)
        chance = weights * distance
    return np.sort(centers)


def variational_mixture(values: Array, weights: Array, start: Array, iterations: int = _MAX_ITERATIONS) -> Mixture:
    """Fit a mixture to distinct ``values [u]`` that occur ``weights [u]`` times, from responsibilities ``[u, K]``.

    Mean-field updates of a Dirichlet process mixture (Blei and Jordan 2006; normal-Wishart prior as in Bishop 2006,
    Sec. 10.2), until the lower bound changes by less than 1e-3.
    """
    mean = np.average(values, weights=weights)
    variance = weights @ (values - mean) ** 2 / (weights.sum() - 1)
    responsible, bound = start, -np.inf
    state = _maximize(values, weights, responsible, mean, variance)
    done = 0
    while done < iterations:
        done += 1
        log = state.log_weights - 0.5 * (values[:, None] - state.means) ** 2 / state.variances
        top = log.max(1, keepdims=True)
        log -= top + np.log(np.exp(log - top).sum(1, keepdims=True))
        responsible = np.exp(log)
        state = _maximize(values, weights, responsible, mean, variance)
        before, bound = bound, state.bound - float(weights @ (responsible * log).sum(1))
        if abs(bound - before) < _TOLERANCE:
            break
    return Mixture(state.shares(), state.means, state.variances, state.log_weights, done)


class _State(NamedTuple):
    """Posterior of the parameters: sticks Beta(a, b), means, variances, and what follows from them."""

    a: Array
    b: Array
    means: Array
    variances: Array
    log_weights: Array
    bound: float

    def shares(self) -> Array:
        broken = self.b / (self.a + self.b)
        shares = self.a / (self.a + self.b) * np.concatenate([[1.0], broken[:-1].cumprod()])
        return np.asarray(shares / shares.sum())


def _maximize(values: Array, weights: Array, responsible: Array, prior_mean: float, prior_variance: float) -> _State:
    """Posterior of the parameters given who is responsible for which value; `bound` lacks the entropy of the latter."""
    weighted = responsible * weights[:, None]
    mass = weighted.sum(0) + 10 * np.finfo("float64").eps  # a mode without values keeps a mean
    center = values @ weighted / mass
    spread = (weighted * (values[:, None] - center) ** 2).sum(0) / mass + _RIDGE
    a = 1 + mass
    b = _CONCENTRATION + np.concatenate([mass[:0:-1].cumsum()[::-1], [0.0]])
    precision = _MEAN_PRECISION + mass
    means = (_MEAN_PRECISION * prior_mean + mass * center) / precision
    freedom = _DEGREES_OF_FREEDOM + mass
    shrinkage = mass * _MEAN_PRECISION / precision * (center - prior_mean) ** 2
    variances = (prior_variance + mass * spread + shrinkage) / freedom
    log_left = digamma(b) - digamma(a + b)
    log_share = digamma(a) - digamma(a + b) + np.concatenate([[0.0], log_left[:-1].cumsum()])
    log_precision = np.log(2.0) + digamma(freedom / 2) - np.log(variances * freedom)
    log_weights = log_share + 0.5 * (log_precision - np.log(2 * np.pi) - 1 / precision)
    log_determinant = -0.5 * np.log(variances * freedom)
    log_wishart = -(freedom * log_determinant + freedom * 0.5 * np.log(2.0) + gammaln(freedom / 2))
    bound = betaln(a, b).sum() - log_wishart.sum() - 0.5 * np.log(precision).sum()
    return _State(a, b, means, variances, log_weights, float(bound))
