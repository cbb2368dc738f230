"""A mean over batches with its 95% interval."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from scipy import stats

CONFIDENCE = 0.95
"""Coverage of every interval in a report; what TabLeak and its successors state."""


@dataclass(frozen=True)
class Estimate:
    """A mean and how far it can be trusted.

    Attributes:
        mean: arithmetic mean of the values.
        std: sample standard deviation; None for a single value.
        n: number of values.
        low: lower end of the 95% confidence interval of the mean; None where there is none.
        high: upper end.
    """

    mean: float
    std: float | None = None
    n: int = 1
    low: float | None = None
    high: float | None = None

    @property
    def has_interval(self) -> bool:
        """Whether both ends of the interval are known."""
        return self.low is not None and self.high is not None


def estimate(values: Iterable[float]) -> Estimate | None:
    """Mean and Student-t interval (``n - 1`` degrees of freedom) of the finite values; None when there are none.

    >>> found = estimate([0.7, 0.8, 0.9, float("nan")])
    >>> found.n, round(found.mean, 3), round(found.low, 3), round(found.high, 3)
    (3, 0.8, 0.552, 1.048)
    """
    finite = [float(value) for value in values if math.isfinite(value)]
    n = len(finite)
    if n == 0:
        return None
    mean = math.fsum(finite) / n
    if n == 1:
        return Estimate(mean)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in finite) / (n - 1))
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1)) * std / math.sqrt(n)
    return Estimate(mean, std, n, mean - half, mean + half)
