"""Adjusted count: the share comes back, the interval covers it, and a useless classifier is not divided by."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.attacks.property_inference.adjusted_count import (
    HeldOutRates,
    adjusted_count,
    adjusted_share,
    plain_count,
    share_interval,
)

GOOD = HeldOutRates(hits=350, n_with=500, false_alarms=100, n_without=500)
BLIND = HeldOutRates(hits=251, n_with=500, false_alarms=250, n_without=500)


@given(
    p=st.floats(0, 1),
    hits=st.integers(60, 100),
    false_alarms=st.integers(0, 50),
)
def test_the_share_that_was_mixed_comes_back(p: float, hits: int, false_alarms: int) -> None:
    rates = HeldOutRates(hits, 100, false_alarms, 100)
    share = p * hits / 100 + (1 - p) * false_alarms / 100
    assert adjusted_share(share, rates) == pytest.approx(p, abs=1e-9)
    low, high = share_interval(share, 1000, rates)
    assert low - 5e-4 <= p <= high + 5e-4


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
def test_the_interval_covers_the_truth_at_its_rate(p: float) -> None:
    draw, trials, n, tpr, fpr = np.random.default_rng(0), 600, 2000, 0.7, 0.2
    covered = 0
    for _ in range(trials):
        rates = HeldOutRates(draw.binomial(500, tpr), 500, draw.binomial(500, fpr), 500)
        n_with = round(p * n)
        share = (draw.binomial(n_with, tpr) + draw.binomial(n - n_with, fpr)) / n
        low, high = share_interval(share, n, rates)
        covered += low <= p <= high
    # 0.95 with three standard errors of 600 trials (0.027) on either side.
    assert 0.92 <= covered / trials <= 0.98


def test_a_blind_classifier_says_nothing() -> None:
    low, high = share_interval(0.5, 5000, BLIND)
    assert (low, high) == (0.0, 1.0)
    assert not BLIND.better_than_chance and GOOD.better_than_chance
    count = adjusted_count(0.5, 5000, BLIND, known_with=500, n_known=1000, fallback=0.3)
    assert count.is_fallback
    assert count.fraction == pytest.approx((0.3 * 5000 + 500) / 6000)
    assert (count.low, count.high) == pytest.approx((500 / 6000, 5500 / 6000))


def test_a_classifier_worse_than_chance_is_not_better_than_chance() -> None:
    assert not HeldOutRates(hits=100, n_with=500, false_alarms=350, n_without=500).better_than_chance


def test_known_records_count_as_what_they_are() -> None:
    count = adjusted_count(0.45, 900, GOOD, known_with=50, n_known=100, fallback=0.5)
    assert not count.is_fallback
    assert count.fraction == pytest.approx((0.5 * 900 + 50) / 1000)  # (0.45 - 0.2) / (0.7 - 0.2) is one half
    low, high = share_interval(0.45, 900, GOOD)
    assert (count.low, count.high) == pytest.approx(((low * 900 + 50) / 1000, (high * 900 + 50) / 1000))
    nothing_unknown = adjusted_count(0.0, 0, GOOD, known_with=30, n_known=100, fallback=0.5)
    assert (nothing_unknown.fraction, nothing_unknown.low, nothing_unknown.high) == (0.3, 0.3, 0.3)


def test_a_plain_count_is_the_share_and_its_interval_reaches_the_corrected_one() -> None:
    count = plain_count(0.6, 1000, GOOD)
    low, high = share_interval(0.6, 1000, GOOD)
    assert (count.fraction, count.low, count.high) == (0.6, 0.6, high)
    assert low > 0.6  # the true share is 0.8 by these rates


def test_a_share_no_fraction_explains_leaves_the_nearest_one() -> None:
    sharp = HeldOutRates(hits=900, n_with=1000, false_alarms=400, n_without=1000)
    assert share_interval(0.1, 10**6, sharp) == (0.0, 0.0)
    assert share_interval(0.99, 10**6, sharp) == (1.0, 1.0)


def test_accuracy_is_balanced() -> None:
    assert HeldOutRates(hits=90, n_with=100, false_alarms=600, n_without=1000).accuracy == pytest.approx(0.65)
