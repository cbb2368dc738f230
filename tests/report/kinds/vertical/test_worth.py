"""What an estimate is worth, as the size of a random labelled sample."""

import math

import numpy as np
import pytest

from lightleak.report.intervals import Estimate
from lightleak.report.kinds.vertical_worth import worth_of, worth_words


def test_a_random_sample_is_worth_its_own_size() -> None:
    """Shares of samples of 50 rows, drawn: solved for, they are worth 50 rows."""
    draw = np.random.default_rng(0)
    shares = draw.uniform(0.1, 0.9, 4000)
    errors = np.abs(draw.binomial(50, shares) / 50 - shares)
    found = worth_of(zip(shares, errors, strict=True))
    assert found and found.low and found.high
    assert found.mean == pytest.approx(50, rel=0.06) and found.low < 50 < found.high


def test_no_error_is_worth_more_than_any_sample() -> None:
    exact = worth_of([(0.3, 0.0), (0.4, 0.0)])
    assert exact == Estimate(math.inf, 2, math.inf, math.inf)
    assert worth_words(exact) == "any number (every estimate was exact)"


def test_one_seed_has_no_interval_and_the_unknown_no_worth() -> None:
    assert worth_of([(0.5, 0.05)]) == Estimate(pytest.approx(100.0))
    assert worth_words(worth_of([(0.5, 0.05)])) == "100"
    assert worth_of([]) is worth_of([(None, 0.1)]) is worth_of([(0.5, None)]) is worth_of([(1.0, 0.1)]) is None


def test_the_interval_is_that_of_the_mean_squared_error() -> None:
    # Squared errors .0001, .0009: mean .0005, deviation .000566, t(1) = 12.706: half .00508, above the mean.
    found = worth_of([(0.5, 0.01), (0.5, 0.03)])
    assert found and found.mean == pytest.approx(500) and math.isinf(found.high or 0)
    assert found.low == pytest.approx(0.25 / 0.005582, rel=1e-3)
    assert worth_words(found) == "500 (at least 45)"
