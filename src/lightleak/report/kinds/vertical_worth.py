"""What an estimate of a share is worth: the size of a random labeled sample that estimates it as well."""

import math
from collections.abc import Iterable

from lightleak.core.summary import summarize
from lightleak.report.format import DASH
from lightleak.report.intervals import Estimate


def worth_words(worth: Estimate | None) -> str:
    """The number of rows with its interval.

    >>> worth_words(Estimate(312.4, 5, 120.2, math.inf)), worth_words(Estimate(0.4)), worth_words(Estimate(math.inf))
    ('312 (at least 120)', 'under 1', 'any number (every estimate was exact)')
    >>> worth_words(Estimate(2134.0, 5, 870.0, 5210.0)), worth_words(Estimate(2.0, 5, 0.8, math.inf)), worth_words(None)
    ('2,134 (870 to 5,210)', '2 (may be any number)', '–')
    """
    if worth is None:
        return DASH
    if math.isinf(worth.mean):
        return "any number (every estimate was exact)"
    if worth.low is None or worth.high is None:
        return _count(worth.mean)
    if math.isinf(worth.high):
        return f"{_count(worth.mean)} ({f'at least {_count(worth.low)}' if worth.low >= 1 else 'may be any number'})"
    return f"{_count(worth.mean)} ({_count(worth.low)} to {_count(worth.high)})"


def worth_of(results: Iterable[tuple[float | None, float | None]]) -> Estimate | None:
    """Solve p (1 - p) / n, the variance of a random sample's share, for n at the error that was measured.

    Args:
        results: by seed the true share p and the absolute error; None where unknown.

    Returns:
        p (1 - p) / MSE, the mean squared error being over seeds, infinite where every estimate was exact; its interval
        is from Student's of the mean squared error, none with one seed. None where nothing is known, or no record or
        every record has the property.

    >>> found = worth_of([(0.5, 0.05), (0.5, 0.05)])
    >>> round(found.mean), worth_of([(0.3, 0.0)]).mean, worth_of([(None, 0.1)])
    (100, inf, None)
    """
    known = [(true, error) for true, error in results if true is not None and error is not None]
    spread = math.fsum(true * (1 - true) for true, _ in known) / len(known) if known else 0.0
    if spread <= 0:
        return None
    squared = summarize(error**2 for _, error in known)
    ends = (None, None) if squared.n < 2 else (_divided(spread, squared.high), _divided(spread, squared.low))
    return Estimate(_divided(spread, squared.mean), squared.n, *ends)


def _divided(spread: float, squared_error: float) -> float:
    return spread / squared_error if squared_error > 0 else math.inf


def _count(rows: float) -> str:
    return "under 1" if rows < 1 else f"{rows:,.0f}"
