"""How much privacy a DP-SGD training spends: epsilon from noise, sampling rate and steps, and noise from epsilon."""

import math
import warnings
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from lightleak.core.bounds import bounded, check_settings
from lightleak.core.errors import UsageError
from lightleak.defenses.horizontal.optional_opacus import import_opacus

Accountant = Literal["rdp", "prv"]

MOST_COMPOSED = 50.0
"""Epsilon of RDP above which PRV is not asked: its grid grows with epsilon, to gigabytes at 1,000, and a tighter figure
would promise nobody anything either."""

MOST_NOISE = 1e6
"""Largest noise multiplier that a search tries, as opacus has it."""


def gaussian_epsilon(noise: float, delta: float) -> float:
    """Epsilon at ``delta`` of one Gaussian release, exact (Balle and Wang 2018, Theorem 8); infinite without noise.

    Args:
        noise: standard deviation of the noise, relative to the largest Euclidean distance between neighbors.
        delta: of the guarantee.

    >>> round(gaussian_epsilon(1.0, 1e-5), 2)
    4.38
    """
    if noise == 0:
        return math.inf

    def excess(epsilon: float) -> float:
        below = np.exp(epsilon + log_ndtr(-1 / (2 * noise) - epsilon * noise))
        return float(ndtr(1 / (2 * noise) - epsilon * noise) - below) - delta

    if excess(0.0) <= 0:
        return 0.0
    enough = (1 / noise + math.sqrt(2 * math.log(1 / delta))) ** 2  # above Mironov's bound by Rényi orders
    return float(brentq(excess, 0.0, enough))


@dataclass(frozen=True)
class PrivacyAccounting:
    """The settings of DP-SGD (see `DPSGD`) and the epsilon that follows from them.

    Raises:
        UsageError: a value out of range, or not exactly one of noise multiplier and target epsilon.
    """

    noise_multiplier: float | None = bounded(None, ge=0)
    target_epsilon: float | None = bounded(None, gt=0)
    max_grad_norm: float = bounded(1.0, gt=0)
    delta: float = bounded(1e-5, gt=0, le=0.5)
    accountant: Accountant = "rdp"

    def __post_init__(self) -> None:
        if (self.noise_multiplier is None) == (self.target_epsilon is None):
            raise UsageError(
                "dp_sgd: give either noise_multiplier or target_epsilon, "
                f"got {self.noise_multiplier!r} and {self.target_epsilon!r}"
            )
        check_settings(self, "dp_sgd: ")

    def epsilon(self, sample_rate: float, steps: int) -> float:
        """Epsilon at `delta` that ``steps`` steps spend, an upper bound; 0 for no step, infinite without noise.

        Args:
            sample_rate: probability of a row to enter a step's batch.
            steps: optimizer steps.

        Raises:
            UsageError: the noise multiplier is not decided yet (see `resolved`).
            UnsupportedError: opacus is not installed.
        """
        return self.spent(sample_rate, steps)[0]

    def spent(self, sample_rate: float, steps: int) -> tuple[float, Accountant]:
        """Return `epsilon` and the accountant whose figure it is.

        Both bound the privacy loss from above, so that the smaller figure holds. That of RDP stands where it is
        above 50, and where PRV finds none.
        """
        noise = self.noise()
        if steps == 0 or noise == 0:
            return (0.0 if steps == 0 else math.inf), self.accountant
        rdp = self._counted("rdp", noise, sample_rate, steps)
        if self.accountant == "rdp" or rdp > MOST_COMPOSED:
            return rdp, "rdp"
        try:
            prv = self._counted("prv", noise, sample_rate, steps)
        except (RuntimeError, ValueError):  # its grid is too coarse for delta
            return rdp, "rdp"
        return (prv, "prv") if prv <= rdp else (rdp, "rdp")

    def _counted(self, by: Accountant, noise: float, sample_rate: float, steps: int) -> float:
        accountant = import_opacus().accountants.create_accountant(by)
        accountant.history = [(noise, sample_rate, steps)]
        with warnings.catch_warnings():
            # At an end of its range of orders the bound holds, but could be tighter.
            warnings.filterwarnings("ignore", message="Optimal order")
            return float(accountant.get_epsilon(delta=self.delta))

    def release_epsilon(self, steps: int = 1) -> float:
        """Epsilon at `delta` of what a server sees that knows which rows each step was computed from.

        Nothing is sampled from its point of view, so that this may exceed the epsilon of a whole training, which counts
        on random batches. It is exact for the Gaussian mechanism (Balle and Wang 2018, Theorem 8), whose noise over
        several steps counts as that of one step divided by the root of their number (Dong et al. 2019, Corollary 3.3).
        Of one step it holds for a row added to the batch or removed from it; of several for a row whose gradient is
        left out of all of them while the batches stay as they are: without a row the others would be divided anew.

        Args:
            steps: that a row takes part in; 0 spends nothing.

        Raises:
            UsageError: the noise multiplier is not decided yet (see `resolved`).

        >>> round(PrivacyAccounting(noise_multiplier=1.0).release_epsilon(), 2)
        4.38
        """
        noise = self.noise()
        return gaussian_epsilon(noise / math.sqrt(steps), self.delta) if steps else 0.0

    def resolved_for(self, steps: int) -> Self:
        """The same with its noise multiplier decided: the smallest with which `release_epsilon` is ``target_epsilon``.

        Args:
            steps: that a row takes part in, at least 1.
        """
        if self.noise_multiplier is not None or self.target_epsilon is None:
            return self
        target = self.target_epsilon
        low = high = 1.0
        while gaussian_epsilon(low, self.delta) < target:
            low /= 2
        while gaussian_epsilon(high, self.delta) > target:
            high *= 2
        one = low if low == high else brentq(lambda noise: gaussian_epsilon(noise, self.delta) - target, low, high)
        return replace(self, noise_multiplier=float(one) * math.sqrt(steps), target_epsilon=None)

    def resolved(self, sample_rate: float, steps: int) -> Self:
        """The same with its noise multiplier decided: the smallest with which `epsilon` is at most ``target_epsilon``.

        It is found by opacus' bisection, to 0.01 or a hundredth of the target.

        Args:
            sample_rate: probability of a row to enter a step's batch.
            steps: optimizer steps that are planned.

        Raises:
            UsageError: no noise is strong enough.
            UnsupportedError: opacus is not installed.
        """
        if self.noise_multiplier is not None or self.target_epsilon is None:
            return self
        target = self.target_epsilon

        def epsilon_with(noise: float) -> float:
            return replace(self, noise_multiplier=noise, target_epsilon=None).epsilon(sample_rate, steps)

        low, high, spent = 0.0, 10.0, math.inf
        while spent > target:
            high *= 2
            if high > MOST_NOISE:
                raise UsageError(
                    f"dp_sgd: no noise gives target_epsilon {target} at delta {self.delta} in {steps} steps of sample "
                    f"rate {sample_rate:g}; the lowest that {self.accountant} finds is {spent:.3g}"
                )
            spent = epsilon_with(high)
        # Epsilon jumps where PRV is no longer asked: there the noise decides that the search has ended.
        while target - spent > min(0.01, 0.01 * target) and high - low > 1e-9 * high:
            middle = (low + high) / 2
            of_middle = epsilon_with(middle)
            if of_middle < target:
                high, spent = middle, of_middle
            else:
                low = middle
        return replace(self, noise_multiplier=high, target_epsilon=None)

    def noise(self) -> float:
        """The noise multiplier.

        Raises:
            UsageError: it is not decided yet (see `resolved`).
        """
        if self.noise_multiplier is None:
            raise UsageError(
                "dp_sgd: target_epsilon decides the noise only once sample rate and steps are known; "
                "call resolved(sample_rate, steps) first"
            )
        return self.noise_multiplier
