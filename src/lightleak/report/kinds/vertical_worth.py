"""What an estimate of a share is worth: the size of a random labeled sample that estimates it as well."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from lightleak.core.summary import summarize


@dataclass(frozen=True)
class Worth:
    """Rows of a random sample, whose property is known, that estimates a share as well as an attack.

    Attributes:
        rows: p (1 - p) / MSE, the mean squared error being over seeds; infinite where every estimate was exact.
        low: lower end of its 95% interval, from Student's of the mean squared error; None with one seed.
        high: upper end.
    """

    rows: float
    low: float | None = None
    high: float | None = None

    @property
    def words(self) -> str:
        """The number of rows with its interval.

        >>> Worth(312.4, 120.2, math.inf).words, Worth(0.4).words, Worth(math.inf, math.inf, math.inf).words
        ('312 (at least 120)', 'under 1', 'any number (every estimate was exact)')
        >>> Worth(2134.0, 870.0, 5210.0).words, Worth(2.0, 0.8, math.inf).words
        ('2,134 (870 to 5,210)', '2 (may be any number)')
        """
        if math.isinf(self.rows):
            return "any number (every estimate was exact)"
        if self.low is None or self.high is None:
            return _count(self.rows)
        if math.isinf(self.high):
            return f"{_count(self.rows)} ({f'at least {_count(self.low)}' if self.low >= 1 else 'may be any number'})"
        return f"{_count(self.rows)} ({_count(self.low)} to {_count(self.high)})"


def worth_of(results: Iterable[tuple[float | None, float | None]]) -> Worth | None:
    """Solve p (1 - p) / n, the variance of a random sample's share, for n at the error that was measured.

    Args:
        results: by seed the true share p and the absolute error; None where unknown.

    Returns:
        None where nothing is known, or no record or every record has the property.

    >>> found = worth_of([(0.5, 0.05), (0.5, 0.05)])
    >>> round(found.rows), worth_of([(0.3, 0.0)]).rows, worth_of([(None, 0.1)])
    (100, inf, None)
    """
    known = [(true, error) for true, error in results if true is not None and error is not None]
    spread = math.fsum(true * (1 - true) for true, _ in known) / len(known) if known else 0.0
    if spread <= 0:
        return None
    squared = summarize(error**2 for _, error in known)
    ends = (None, None) if squared.n < 2 else (_divided(spread, squared.high), _divided(spread, squared.low))
    return Worth(_divided(spread, squared.mean), *ends)


def _divided(spread: float, squared_error: float) -> float:
    return spread / squared_error if squared_error > 0 else math.inf


def _count(rows: float) -> str:
    return "under 1" if rows < 1 else f"{rows:,.0f}"
