"""A mean over batches with its 95% interval, as a report shows it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from lightleak.metrics.summary import summarize


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


def estimate(values: Iterable[float | None]) -> Estimate | None:
    """Mean and interval of the finite values (`lightleak.metrics.summary.summarize`); None when there are none.

    >>> found = estimate([0.7, 0.8, 0.9, None])
    >>> found.n, round(found.mean, 3), round(found.low, 3), round(found.high, 3)
    (3, 0.8, 0.552, 1.048)
    """
    found = summarize(values)
    if found.n == 0:
        return None
    return Estimate(found.mean, found.n, _known(found.low), _known(found.high))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
