import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.attacks.property_inference.populations import (
    draw_populations,
    draw_queries,
    draw_resampled_pairs,
    fraction_grid,
    population_features,
)
from lightleak.core.errors import UsageError


@pytest.mark.parametrize(("step", "points"), [(0.1, 1001), (1, 101), (5, 21), (10, 11), (100, 2)])
def test_the_grid_runs_from_none_to_all(step, points):
    grid = fraction_grid(step)
    assert len(grid) == points
    assert grid[0] == 0 and grid[-1] == 1
    assert np.allclose(np.diff(grid), step / 100)


@pytest.mark.parametrize("step", [0, -1, 3, 101])
def test_a_step_that_does_not_divide_100_is_refused(step):
    with pytest.raises(UsageError, match="fraction_step must divide 100"):
        fraction_grid(step)


@given(
    n_with=st.integers(1, 30),
    n_without=st.integers(1, 30),
    m=st.integers(1, 25),
    share=st.floats(0, 1),
    seed=st.integers(0, 9),
)
def test_a_population_has_its_count_and_repeats_rows_only_where_it_must(n_with, n_without, m, share, seed):
    counts = np.array([0, round(share * m), m])
    rows = draw_populations(counts, (n_with, n_without), m, np.random.default_rng(seed))
    assert rows.shape == (3, m)
    for drawn, count in zip(rows, counts, strict=True):
        having, lacking = drawn[drawn < n_with], drawn[drawn >= n_with]
        assert len(having) == count and drawn.min() >= 0 and drawn.max() < n_with + n_without
        assert len(np.unique(having)) == count or count > n_with
        assert len(np.unique(lacking)) == m - count or m - count > n_without


def test_every_row_is_as_likely():
    rows = draw_populations(np.full(4000, 2), (5, 5), 4, np.random.default_rng(0))
    # 4000 populations draw each row with probability 2/5; five deviations of a binomial count are 155.
    assert np.abs(np.bincount(rows.ravel(), minlength=10) - 1600).max() < 155


def test_a_query_draws_no_record_twice():
    rows = draw_queries(50, 40, 30, np.random.default_rng(0))
    assert rows.shape == (40, 30)
    assert all(len(np.unique(row)) == 30 for row in rows)
    assert set(rows.ravel()) == set(range(50))


def test_a_pair_shares_its_bootstrap_copy_and_another_pair_does_not():
    counts = np.array([300, 0, 600, 300])
    with_rows, without_rows = np.arange(40), np.arange(100, 140)
    pairs = draw_resampled_pairs(counts, with_rows, without_rows, 600, np.random.default_rng(0))
    assert pairs.shape == (4, 2, 600)
    assert ((pairs < 100).sum(-1) == counts[:, None]).all()
    # 300 draws from a copy of 40 rows see nearly all of its distinct rows, about 25 of the 40.
    for of_class in (np.less, np.greater_equal):
        seen = [[set(sample[of_class(sample, 100)].tolist()) for sample in pair] for pair in pairs]
        assert len(seen[0][0] ^ seen[0][1]) <= 3
        assert len(seen[0][0] ^ seen[3][0]) > 6
    assert not np.array_equal(pairs[0, 0], pairs[0, 1])


@given(m=st.integers(1, 60), seed=st.integers(0, 9), data=st.data())
def test_quantiles_are_order_statistics_and_m_of_them_are_all(m, seed, data):
    values = np.random.default_rng(seed).normal(size=(3, m))
    n_quantiles = data.draw(st.integers(1, m))
    ordered = population_features(values, "sorted", 1)
    assert np.array_equal(ordered, np.array([sorted(row) for row in values]))
    assert np.array_equal(population_features(values, "quantiles", m), ordered)
    quantiles = population_features(values, "quantiles", n_quantiles)
    assert quantiles.shape == (3, n_quantiles)
    assert (np.diff(quantiles, axis=1) > 0).all()
    # Half a step of the quantiles lies below the first of them, half a step above the last.
    below = (values < quantiles[:, :1]).sum(1)
    above = (values > quantiles[:, -1:]).sum(1)
    assert (np.abs(below - above) <= 1).all()


def test_the_same_generator_gives_the_same_draws():
    first, second = (draw_populations(np.array([3, 4]), (9, 9), 8, np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(first, second)
