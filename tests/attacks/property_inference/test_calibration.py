import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.attacks.property_inference.calibration import (
    Noise,
    Response,
    SampleSizes,
    effective_size,
    ensemble_weights,
    held_out_response,
    interval,
)
from lightleak.attacks.property_inference.estimation import KindValues, misfit, separation
from lightleak.attacks.property_inference.mixture import estimate_by_mixture

MANY = SampleSizes(100, 100, 10**9)


@given(estimate=st.floats(0.2, 0.8), variance=st.floats(1e-6, 1e-3))
def test_a_constant_noise_gives_the_textbook_interval(estimate, variance):
    low, high = interval(estimate, Response(), Noise(0, 0, variance), MANY)
    # The grid has steps of 0.0005.
    assert low == pytest.approx(estimate - 1.96 * variance**0.5, abs=6e-4)
    assert high == pytest.approx(estimate + 1.96 * variance**0.5, abs=6e-4)


def test_a_flat_response_widens_and_shifts_the_interval():
    noise = Noise(0, 0, 1e-4)
    low, high = interval(0.6, Response(0.5, 0.5), noise, MANY)
    # 0.5 + 0.5 (t - 0.5) = 0.6 at t = 0.7; the half width doubles.
    assert (low + high) / 2 == pytest.approx(0.7, abs=1e-3)
    assert (high - low) / 2 == pytest.approx(2 * 1.96 * 0.01, abs=1e-3)
    assert interval(0.6, Response(0.05, 0.5), noise, MANY) == (0.0, 1.0)


def test_rows_that_are_their_whole_class_leave_no_doubt():
    noise = Noise(0.01, 0.01)
    # Half of 200 records have the property, and all records are auxiliary rows.
    low, high = interval(0.5, Response(), noise, SampleSizes(100, 100, 200))
    assert 0.48 < low < 0.5 < high < 0.52
    low, high = interval(0.5, Response(), noise, SampleSizes(100, 100, 2000))
    assert high - low > 0.2


def test_an_estimate_that_no_fraction_explains_gives_the_end():
    low, high = interval(1.4, Response(), Noise(1e-4, 1e-4), MANY)
    assert high == 1 and low == pytest.approx(1 - 1.96 * 0.01, abs=1e-3)
    low, high = interval(-0.4, Response(), Noise(1e-4, 1e-4), MANY)
    assert low == 0 and high == pytest.approx(1.96 * 0.01, abs=1e-3)


def test_noise_without_end_excludes_nothing():
    assert interval(0.5, Response(), Noise(5.0, 5.0), MANY) == (0.0, 1.0)


def test_repeated_rows_count_for_less():
    assert effective_size(np.arange(50)) == 50
    assert effective_size(np.repeat(np.arange(50), 4)) == pytest.approx(50)
    assert effective_size(np.array([1] * 99 + [2])) < 1.1


def test_weights_are_those_of_inverse_variances():
    assert ensemble_weights(np.diag([1.0, 4.0])) == pytest.approx([0.8, 0.2])
    assert ensemble_weights(np.ones((2, 2))) == pytest.approx([0.5, 0.5])
    assert ensemble_weights(np.zeros((2, 2))).sum() == pytest.approx(1)


def test_the_response_of_all_rows_follows_from_that_of_halves():
    rng = np.random.default_rng(0)
    fractions = rng.random((2, 2000))
    common = np.sqrt(0.02 * fractions**2 + 0.005 * (1 - fractions) ** 2) * rng.standard_normal((2, 2000))
    own = 0.1 * rng.standard_normal((2, 2000, 2))
    response, noise = held_out_response(fractions, (0.2 + 0.6 * fractions + common)[..., None] + own)
    # Spearman-Brown: 2 * 0.6 / 1.6; the line has its fixed point at 0.2 / 0.4.
    assert response.slope == pytest.approx(0.75, abs=0.01)
    assert response.center == pytest.approx(0.5, abs=0.03)
    # Half of the variance that a pair has in common, on the scale of the steeper line; 4000 pairs tell it to 15%.
    assert noise.with_property == pytest.approx(0.01 * (0.75 / 0.6) ** 2, rel=0.15)
    assert noise.without == pytest.approx(0.0025 * (0.75 / 0.6) ** 2, rel=0.4)


def test_predictions_that_do_not_follow_the_fraction_are_uninformative():
    rng = np.random.default_rng(0)
    response, _ = held_out_response(rng.random((2, 100)), 0.5 + 0.01 * rng.standard_normal((2, 100, 2)))
    assert not response.informative


def simulated(rng, fraction, shift, n=300, records=8000):
    has = np.arange(records) < fraction * records
    common = rng.standard_normal(records)
    rows = rng.choice(np.flatnonzero(has), n, False), rng.choice(np.flatnonzero(~has), n, False)
    found = {}
    for kind, worth in (("VO", 1.0), ("AO", 0.4)):
        values = np.exp(0.8 * common + 0.6 * rng.standard_normal(records) + worth * shift * has)
        found[kind] = KindValues(values[rows[0]], values[rows[1]], values)
    return found


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("fraction", "shift"), [(0.66, 0.1), (0.66, 0.5), (0.1, 1.0), (0.9, 2.5)])
def test_the_interval_holds_the_truth(fraction, shift, weighted):
    rng = np.random.default_rng(0)
    sizes, hits = SampleSizes(300, 300, 8000), []
    for _ in range(100):
        outcome = estimate_by_mixture(simulated(rng, fraction, shift), sizes, 0.5, weighted, 49)
        low, high = interval(outcome.fraction, outcome.response, outcome.noise, sizes)
        hits.append(low <= fraction <= high)
    # 100 repetitions know a coverage of 95% to 2.2%.
    assert np.mean(hits) >= 0.89


def test_separation_finds_classes_that_differ_and_only_those():
    rng = np.random.default_rng(0)
    sizes = SampleSizes(300, 300, 1000)
    alike = [separation(KindValues(*rng.standard_normal((2, 300)), np.zeros(1)), sizes) for _ in range(200)]
    assert 0.01 < np.mean([p < 0.05 for _, p in alike]) < 0.1
    distance, p_value = separation(KindValues(rng.normal(1, 1, 300), rng.normal(0, 1, 300), np.zeros(1)), sizes)
    # Two normal distributions one deviation apart are 2 Phi(1/2) - 1 = 0.383 apart.
    assert distance == pytest.approx(0.383, abs=0.08) and p_value < 1e-9


def test_misfit_finds_records_that_are_no_mixture():
    rng = np.random.default_rng(0)
    one, zero = rng.normal(1, 1, 500), rng.normal(0, 1, 500)
    mixed = np.concatenate([rng.normal(1, 1, 6000), rng.normal(0, 1, 4000)])
    sizes = SampleSizes(500, 500, 10000)
    assert misfit(KindValues(one, zero, mixed), 0.6, sizes)[1] > 0.01
    assert misfit(KindValues(one, zero, mixed + 1.5), 1.0, sizes)[1] < 1e-6
