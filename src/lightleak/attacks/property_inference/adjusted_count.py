"""From the share of records a classifier calls positive to the share that is (Forman, 2008: adjusted count).

Forman, Quantifying counts and costs via classification, Data Mining and Knowledge Discovery 17(2), 2008, Sec. 2.2.
"""

import math
from dataclasses import dataclass

import numpy as np

from lightleak.core.summary import Z95

Z95_ONE_SIDED = 1.645


@dataclass(frozen=True)
class HeldOutRates:
    """How a classifier did on rows it was not trained on.

    Attributes:
        hits: of the rows with the property, those it called positive.
        n_with: rows with the property.
        false_alarms: of the rows without it, those it called positive.
        n_without: rows without it.
    """

    hits: int
    n_with: int
    false_alarms: int
    n_without: int

    @property
    def true_positive(self) -> float:
        """True-positive rate."""
        return self.hits / self.n_with

    @property
    def false_positive(self) -> float:
        """False-positive rate."""
        return self.false_alarms / self.n_without

    @property
    def accuracy(self) -> float:
        """Mean of the accuracies on rows with and without the property; 0.5 is chance."""
        return (self.true_positive + 1 - self.false_positive) / 2

    @property
    def better_than_chance(self) -> bool:
        """Whether the true-positive rate exceeds the false-positive rate, one-sided at 95%."""
        spread = math.sqrt(_variance(self.hits, self.n_with) + _variance(self.false_alarms, self.n_without))
        return self.true_positive - self.false_positive > Z95_ONE_SIDED * spread


def adjusted_share(share: float, rates: HeldOutRates) -> float:
    """Share of rows that have the property, in [0, 1], where a classifier calls ``share`` of them positive.

    ``share = p * tpr + (1 - p) * fpr`` is solved for ``p``; the rates must differ.

    >>> adjusted_share(0.5, HeldOutRates(hits=90, n_with=100, false_alarms=10, n_without=100))
    0.5
    >>> adjusted_share(0.1, HeldOutRates(hits=90, n_with=100, false_alarms=10, n_without=100))
    0.0
    """
    raw = (share - rates.false_positive) / (rates.true_positive - rates.false_positive)
    return min(max(raw, 0.0), 1.0)


def share_interval(share: float, n: int, rates: HeldOutRates) -> tuple[float, float]:
    """The 95% interval of the true share of ``n`` rows: all ``p`` under which ``share`` is not a surprise.

    The errors are those of the two held-out rates and of the count (Fieller's construction): the interval grows to
    [0, 1] where the classifier cannot distinguish the rows, in place of dividing by a difference close to 0.

    >>> rates = HeldOutRates(hits=360, n_with=400, false_alarms=40, n_without=400)
    >>> [round(end, 3) for end in share_interval(0.5, 1000, rates)]
    [0.465, 0.535]
    """
    p = np.linspace(0.0, 1.0, 2001)
    hit, alarm = _smoothed(rates.hits, rates.n_with), _smoothed(rates.false_alarms, rates.n_without)
    expected = p * rates.true_positive + (1 - p) * rates.false_positive
    held_out = p**2 * _variance(rates.hits, rates.n_with) + (1 - p) ** 2 * _variance(
        rates.false_alarms, rates.n_without
    )
    counted = (p * hit * (1 - hit) + (1 - p) * alarm * (1 - alarm)) / n
    accepted = p[(share - expected) ** 2 <= Z95**2 * (held_out + counted)]
    if len(accepted) == 0:
        nearest = float(p[np.abs(share - expected).argmin()])
        return nearest, nearest
    return float(accepted[0]), float(accepted[-1])


def _smoothed(hits: int, n: int) -> float:
    """A rate that is never 0 or 1, whose variance would be 0."""
    return (hits + 1) / (n + 2)


def _variance(hits: int, n: int) -> float:
    rate = _smoothed(hits, n)
    return rate * (1 - rate) / n


@dataclass(frozen=True)
class Count:
    """A fraction estimated by counting calls.

    Attributes:
        fraction: estimated share of all records.
        low: lower end of its 95% interval.
        high: upper end.
        share: share of the counted records that were called positive.
        is_fallback: whether a share is assumed in place of counting.
    """

    fraction: float
    low: float
    high: float
    share: float
    is_fallback: bool = False


def plain_count(share: float, n: int, rates: HeldOutRates) -> Count:
    """Classify and count. The interval covers the share and all that the held-out rates make of it.

    The share is biased where the rates are not 1 and 0; no interval around it alone would be honest.

    >>> count = plain_count(0.5, 1000, HeldOutRates(hits=80, n_with=100, false_alarms=30, n_without=100))
    >>> count.fraction, round(count.low, 2), round(count.high, 2)
    (0.5, 0.25, 0.53)
    """
    low, high = share_interval(share, n, rates)
    return Count(share, min(low, share), max(high, share), share)


def adjusted_count(share: float, n: int, rates: HeldOutRates, known_with: int, n_known: int, fallback: float) -> Count:
    """Adjusted count of ``n`` unknown records and ``n_known`` records known to hold ``known_with`` positives.

    Args:
        share: share of the unknown records called positive.
        n: unknown records.
        rates: the classifier's held-out rates.
        known_with: known records with the property.
        n_known: known records.
        fallback: share assumed of the unknown records where the classifier is not better than chance.
    """
    if n == 0:
        return Count(known_with / n_known, known_with / n_known, known_with / n_known, share)
    counts = rates.better_than_chance
    p = adjusted_share(share, rates) if counts else fallback
    low, high = share_interval(share, n, rates)
    whole = [(part * n + known_with) / (n + n_known) for part in (p, min(low, p), max(high, p))]
    return Count(fraction=whole[0], low=whole[1], high=whole[2], share=share, is_fallback=not counts)
