"""Means with 95% intervals: clipped to what is possible, corrected for a choice, never of zero width by chance."""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lightleak.core.people import Rate
from lightleak.core.summary import CONFIDENCE, student, summarize, wilson

ALLOWED = 1 - CONFIDENCE
"""Chance of an interval that misses its mean."""

ROUNDING = 1e-12
"""Values that differ by less are equal: they are results of a few operations on numbers of about 1."""

ENOUGH_PAIRS = 5
"""Pairs from which a change from all to none on every one is measurable: (1 / 2) ** 5 is below `ALLOWED`."""

Values = Mapping[Any, float]
"""One value for each update that was attacked, by what names the update."""


@dataclass(frozen=True)
class Estimate:
    """A mean and how far it can be trusted.

    Attributes:
        mean: arithmetic mean of the values.
        n: number of values; 0 where the mean is a difference of two means over other batches.
        low: lower end of the 95% confidence interval of the mean; None where there is none.
        high: upper end.
    """

    mean: float
    n: int = 1
    low: float | None = None
    high: float | None = None

    @property
    def has_interval(self) -> bool:
        """Whether both ends of the interval are known."""
        return self.low is not None and self.high is not None

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """Both ends of the interval."""
        return self.low, self.high

    @property
    def unsigned(self) -> "Estimate":
        """The same turned around where the mean is negative, for words that say the direction: it loses, it gains."""
        if self.mean >= 0:
            return self
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return Estimate(-self.mean, self.n, low, high)

    @property
    def is_above(self) -> bool:
        """Whether the whole interval lies above 0."""
        return self.low is not None and self.low > 0

    @property
    def is_below(self) -> bool:
        """Whether the whole interval lies below 0."""
        return self.high is not None and self.high < 0


def estimate(values: Iterable[float | None]) -> Estimate | None:
    """Return mean and interval of the finite values (`lightleak.core.summary.summarize`); None when there are none.

    >>> found = estimate([0.7, 0.8, 0.9, None])
    >>> found.n, round(found.mean, 3), round(found.low, 3), round(found.high, 3)
    (3, 0.8, 0.552, 1.048)
    """
    found = summarize(values)
    if found.n == 0:
        return None
    ends = (None if math.isnan(end) else end for end in (found.low, found.high))
    return Estimate(found.mean, found.n, *ends)


def bounded(
    values: Iterable[float], lowest: float = 0.0, highest: float = 1.0, comparisons: int = 1
) -> Estimate | None:
    """Mean of bounded values with an interval that holds for all of several means at once.

    Student's t at ``1 - 0.05 / comparisons`` (Bonferroni), cut off at the bounds. Where all n values are equal, that
    interval has no width, which says too much: after n equal draws, the share of draws that would differ is below
    ``1 - alpha ** (1 / n)`` (the exact binomial bound, about 3 / n), and the interval is what that share could change.
    Nothing narrower holds without further assumptions, as the draws that differ may all lie at the far bound: four
    pairs that went from 1 to 0 leave open that the mean rises (-1 to 0.05), five do not (-1 to -0.10).

    Args:
        values: one for each update.
        lowest: what no value lies below.
        highest: what no value lies above.
        comparisons: means among which this one was picked.

    Returns:
        The mean without an interval where there is one value, or where all are equal and unbounded; None where there is
        none.

    >>> found = bounded([0.0] * 8)
    >>> found.mean, found.low, round(found.high, 3)
    (0.0, 0.0, 0.312)
    >>> bounded([0.7, 0.8, 0.9], comparisons=5).high
    1.0
    """
    known = list(values)
    n = len(known)
    if not known:
        return None
    mean = math.fsum(known) / n
    if n == 1:
        return Estimate(mean)
    alpha = ALLOWED / comparisons
    if max(known) - min(known) <= ROUNDING:
        if math.isinf(lowest) or math.isinf(highest):
            return Estimate(mean, n)
        differing = 1 - alpha ** (1 / n)
        low, high = (mean + differing * (end - mean) for end in (min(lowest, mean), max(highest, mean)))
        return Estimate(mean, n, low, high)
    variance = math.fsum((value - mean) ** 2 for value in known) / (n - 1)
    half = student(1 - alpha, n - 1) * math.sqrt(variance / n)
    return Estimate(mean, n, max(mean - half, min(lowest, mean)), min(mean + half, max(highest, mean)))


def paired_difference(before: Values, after: Values, largest: float = 1.0) -> Estimate | None:
    """Mean of ``after - before``, each at most ``largest``, over the updates that both have; None if they share none.

    >>> paired_difference({"a": 0.75, "b": 0.5}, {"a": 0.25}).mean
    -0.5
    """
    return bounded((after[key] - before[key] for key in before if key in after), -largest, largest)


def unpaired_difference(before: Values, after: Values, largest: float = 1.0) -> Estimate | None:
    """Difference of two means over different updates, at most ``largest``, with Welch's interval.

    Where the values of one side are all equal, Welch would take their mean as exact. The interval then reaches from
    end to end of two `bounded` ones that hold together.

    Returns:
        ``n`` is 0, as nothing was paired; no interval where either has one value; None where either has none.

    >>> found = unpaired_difference({0: 0.8, 1: 0.9, 2: 0.7}, {0: 0.2, 1: 0.3, 2: 0.1})
    >>> round(found.mean, 2), round(found.low, 2), round(found.high, 2), found.n
    (-0.6, -0.83, -0.37, 0)
    """
    first, second = list(before.values()), list(after.values())
    if not first or not second:
        return None
    mean = math.fsum(second) / len(second) - math.fsum(first) / len(first)
    if min(len(first), len(second)) == 1:
        return Estimate(mean, 0)
    parts = [(statistics.variance(values) / len(values), len(values)) for values in (first, second)]
    if any(variance <= ROUNDING**2 for variance, _ in parts):
        (low, high), (least, most) = (_ends(bounded(values, 0.0, largest, comparisons=2)) for values in (second, first))
        is_known = not any(map(math.isnan, (low, high, least, most)))
        return Estimate(mean, 0, low - most, high - least) if is_known else Estimate(mean, 0)
    total = sum(variance for variance, _ in parts)
    freedom = total**2 / sum(variance**2 / (n - 1) for variance, n in parts)
    half = student(CONFIDENCE, freedom) * math.sqrt(total)
    return Estimate(mean, 0, max(mean - half, -largest), min(mean + half, largest))


def _ends(found: Estimate | None) -> tuple[float, float]:
    """Both ends of an interval; NaN where there is none."""
    low, high = (None, None) if found is None else found.ends
    return (math.nan, math.nan) if low is None or high is None else (low, high)


def subtracted(before: Values, after: Values, is_paired: bool, largest: float = 1.0) -> Estimate | None:
    """Return the mean of after minus before: `paired_difference` where both are over the same rows, else unpaired."""
    return (paired_difference if is_paired else unpaired_difference)(before, after, largest)


def proportion(share: float, n: int) -> Estimate:
    """Return a share of n rows with Wilson's interval (1927), which stays within [0, 1].

    >>> found = proportion(0.75, 400)
    >>> round(found.low, 3), round(found.high, 3)
    (0.705, 0.79)
    """
    low, high = wilson(share, n)
    return Estimate(share, n, max(low, 0.0), min(high, 1.0))


def of_rate(rate: Rate | None) -> Estimate | None:
    """Return a share of people or rows as the report shows numbers; None where it is not known."""
    return Estimate(rate.share, rate.n, rate.low, rate.high) if rate else None


def difference(value: Estimate | None, other: Estimate | None) -> Estimate | None:
    """One mean minus another, taken for independent, with an interval from their two; None where either is unknown.

    The distances of the means from their ends are added in squares (Zou and Donner 2008; of two shares with Wilson's
    intervals that is Newcombe 1998, method 10). Two networks judged on the same rows agree on most of them, so that
    they are not independent and the true interval of their difference is narrower: this one is on the safe side.

    Returns:
        ``n`` is 0, as nothing was paired; no interval where either has none.

    >>> found = difference(proportion(0.70, 400), proportion(0.75, 400))
    >>> round(found.mean, 3), round(found.low, 3), round(found.high, 3)
    (-0.05, -0.111, 0.012)
    """
    if value is None or other is None:
        return None
    mean = value.mean - other.mean
    if value.low is None or value.high is None or other.low is None or other.high is None:
        return Estimate(mean, 0)
    below = math.hypot(value.mean - value.low, other.high - other.mean)
    above = math.hypot(value.high - value.mean, other.mean - other.low)
    return Estimate(mean, 0, mean - below, mean + above)
