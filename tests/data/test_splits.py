"""Hold-outs of rows and of groups."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.core.errors import DataError
from lightleak.data.splits import group_holdout, holdout


@given(st.integers(2, 500), st.floats(0.001, 0.999), st.integers(0, 3))
def test_holdout_covers_every_row_once(n_rows, fraction, seed) -> None:
    stay, out = holdout(n_rows, fraction, seed)
    assert np.array_equal(np.sort(np.concatenate([stay, out])), np.arange(n_rows))
    assert len(stay) and len(out)
    assert abs(len(out) - n_rows * fraction) <= 1
    assert np.array_equal(stay, np.sort(stay)) and np.array_equal(out, np.sort(out))


@given(st.lists(st.integers(0, 20), min_size=2, max_size=200), st.floats(0.01, 0.99), st.integers(0, 3))
def test_groups_never_stand_on_both_sides(groups, fraction, seed) -> None:
    groups = np.asarray(groups)
    if len(set(groups)) < 2:
        with pytest.raises(DataError, match=r"at least 2 rows \(or groups of rows\), got 1"):
            group_holdout(groups, fraction, seed)
        return
    stay, out = group_holdout(groups, fraction, seed)
    assert np.array_equal(np.sort(np.concatenate([stay, out])), np.arange(len(groups)))
    assert len(stay) and len(out)
    assert not set(groups[stay]) & set(groups[out])
    assert abs(len(out) - len(groups) * fraction) <= np.bincount(groups).max()


def test_the_seed_decides() -> None:
    assert not np.array_equal(holdout(100, 0.2, 0)[1], holdout(100, 0.2, 1)[1])
    assert np.array_equal(holdout(100, 0.2, 0)[1], holdout(100, 0.2, 0)[1])


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_a_share_that_is_none_is_refused(fraction) -> None:
    with pytest.raises(DataError, match=f"above 0 and below 1, got {fraction}"):
        holdout(10, fraction, 0)
