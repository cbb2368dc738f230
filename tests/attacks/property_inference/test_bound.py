import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.attacks.property_inference.bound import distinguishing_accuracy_bound
from lightleak.core.errors import UsageError

inside = st.floats(0.01, 0.99)


@given(prior=inside, gap=st.floats(0, 1), low=st.floats(0, 1), high=st.floats(0, 1), n=st.integers(1, 100_000))
def test_the_bound_grows_with_the_posterior(prior, gap, low, high, n):
    """Corollary 1."""
    low, high = sorted((low, high))
    posteriors = [prior + (1 - prior) * share for share in (low, high)]
    first, second = (distinguishing_accuracy_bound(min(c, 1.0), prior, gap, n) for c in posteriors)
    assert 0.5 <= first <= second <= 1


@given(prior=inside, share=inside, gap=inside, n=st.integers(1, 5000))
def test_the_bound_grows_with_gap_and_results(prior, share, gap, n):
    posterior = prior + (1 - prior) * share
    bound = distinguishing_accuracy_bound(posterior, prior, gap, n)
    assert distinguishing_accuracy_bound(posterior, prior, gap, 2 * n) >= bound
    assert distinguishing_accuracy_bound(posterior, prior, min(1.0, 1.5 * gap), n) >= bound


@given(prior=st.floats(0.1, 0.9), share=st.floats(0.1, 0.9), gap=st.floats(0.1, 1), n=st.integers(1, 50))
def test_equals_equation_3_as_printed(prior, share, gap, n):
    c = prior + (1 - prior) * share
    printed = (1 + math.sqrt(1 - (1 + gap * (c - prior) / (prior * (1 - c))) ** -n)) / 2
    assert distinguishing_accuracy_bound(c, prior, gap, n) == pytest.approx(printed, abs=1e-9)


def test_the_ends():
    assert distinguishing_accuracy_bound(0.3, 0.3, 1, 10**6) == 0.5
    assert distinguishing_accuracy_bound(0.9, 0.3, 0, 10**6) == 0.5
    assert distinguishing_accuracy_bound(1, 0.3, 0.01, 1) == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"posterior": 0.4}, "between the prior 0.5 and 1"),
        ({"posterior": 1.1}, "between the prior 0.5 and 1"),
        ({"prior": 0.0}, "prior must lie strictly"),
        ({"prior": 1.0, "posterior": 1.0}, "prior must lie strictly"),
        ({"gap": 1.5}, "gap must lie"),
        ({"gap": -0.1}, "gap must lie"),
        ({"n_results": 0}, "n_results must be at least 1"),
        ({"posterior": math.nan}, "between the prior"),
    ],
)
def test_outside_the_domain(changed, message):
    with pytest.raises(UsageError, match=message):
        distinguishing_accuracy_bound(**{"posterior": 0.6, "prior": 0.5, "gap": 0.1, "n_results": 10, **changed})
