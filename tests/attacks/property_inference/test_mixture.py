import numpy as np
import pytest

from lightleak.attacks.property_inference.calibration import SampleSizes
from lightleak.attacks.property_inference.estimation import KindValues
from lightleak.attacks.property_inference.mixture import estimate_by_mixture, mixture_scores


def kind_values(rng, n=400, records=5000, fraction=0.7, shift=1.0):
    has = np.arange(records) < fraction * records
    values = rng.gamma(2.0, size=records) + shift * has
    rows = rng.choice(np.flatnonzero(has), n, False), rng.choice(np.flatnonzero(~has), n, False)
    return KindValues(values[rows[0]], values[rows[1]], values)


def test_equals_least_squares_over_distribution_functions():
    values = kind_values(np.random.default_rng(0))
    grid = np.quantile(np.concatenate([values.with_property, values.without]), np.arange(1, 50) / 50)
    one, zero, mixed = (
        np.array([(v <= point).mean() for point in grid])
        for v in (values.with_property, values.without, values.records)
    )
    (fraction,), *_ = np.linalg.lstsq((one - zero)[:, None], mixed - zero, rcond=None)
    assert mixture_scores(values, 49).fraction == pytest.approx(fraction)


def test_scores_are_centerd_on_the_classes():
    scores = mixture_scores(kind_values(np.random.default_rng(1)))
    assert scores.with_property.mean() == pytest.approx(1)
    assert scores.without.mean() == pytest.approx(0, abs=1e-12)


def test_an_exact_mixture_is_solved_exactly():
    rng = np.random.default_rng(2)
    one, zero = rng.normal(1, 1, 100), rng.normal(0, 1, 100)
    scores = mixture_scores(KindValues(one, zero, np.concatenate([one, one, one, zero])))
    assert scores.fraction == pytest.approx(0.75)


def test_a_monotone_change_of_the_values_changes_nothing():
    values = kind_values(np.random.default_rng(3))
    cubed = KindValues(values.with_property**3, values.without**3, values.records**3)
    assert mixture_scores(cubed, 9).fraction == pytest.approx(mixture_scores(values, 9).fraction, abs=0.01)


def test_exchanging_the_classes_gives_the_other_share():
    values = kind_values(np.random.default_rng(4))
    exchanged = KindValues(values.without, values.with_property, values.records)
    assert mixture_scores(exchanged).fraction == pytest.approx(1 - mixture_scores(values).fraction)


def test_classes_that_are_the_same_answer_the_prior():
    values = KindValues(np.zeros(20), np.zeros(30), np.zeros(100))
    assert mixture_scores(values) is None
    outcome = estimate_by_mixture({"AO": values}, SampleSizes(20, 30, 100), 0.4, True, 49)
    assert outcome.fraction == 0.4 and outcome.by_kind == {"AO": 0.4} and not outcome.response.informative


def test_noise_is_the_bootstrap_variance():
    rng = np.random.default_rng(5)
    values = kind_values(rng, n=300)
    sizes = SampleSizes(300, 300, 5000)
    noise = estimate_by_mixture({"AO": values}, sizes, 0.5, False, 49).noise
    fraction = mixture_scores(values).fraction

    def resampled():
        rows = [v[rng.integers(0, 300, 300)] for v in (values.with_property, values.without)]
        return mixture_scores(KindValues(rows[0], rows[1], values.records)).fraction

    deviation = np.std([resampled() for _ in range(600)])
    expected = np.sqrt(fraction**2 * noise.with_property + (1 - fraction) ** 2 * noise.without)
    # The deviation of 600 values is known to 3%; to first order only, hence 10%.
    assert deviation == pytest.approx(expected, rel=0.1)


def test_weights_lower_the_error_where_kinds_differ_in_worth():
    errors = {False: [], True: []}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        kinds = {"VO": kind_values(rng, shift=2.0), "AO": kind_values(rng, shift=0.15)}
        for weighted, found in errors.items():
            outcome = estimate_by_mixture(kinds, SampleSizes(400, 400, 5000), 0.5, weighted, 49)
            found.append(outcome.fraction - 0.7)
            assert sum(outcome.details["weights"].values()) == pytest.approx(1)
    assert np.abs(errors[True]).mean() < 0.5 * np.abs(errors[False]).mean()


def test_the_plain_ensemble_is_the_mean_of_what_lies_in_range():
    rng = np.random.default_rng(6)
    one, zero = rng.normal(1, 1, 100), rng.normal(0, 1, 100)
    inside = KindValues(one, zero, np.concatenate([one, one, one, zero]))
    beyond = KindValues(one, zero, one + 1.0)
    outcome = estimate_by_mixture({"VO": inside, "AO": beyond}, SampleSizes(100, 100, 400), 0.5, False, 49)
    assert outcome.by_kind["AO"] > 1
    assert outcome.fraction == pytest.approx((0.75 + 1) / 2)
