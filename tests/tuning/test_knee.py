"""The knee is where geometry puts it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lightleak.tuning.study import knee

POINTS = arrays(float, st.tuples(st.integers(1, 12), st.integers(1, 3)), elements=st.integers(0, 4).map(float))


@given(POINTS)
def test_scaling_does_not_move_the_knee(front: np.ndarray) -> None:
    scale, shift = np.array([2.0, 8.0, 0.5])[: front.shape[1]], np.array([4.0, -2.0, 16.0])[: front.shape[1]]
    assert knee(front * scale + shift) == knee(front)


@pytest.mark.parametrize(
    ("front", "at"),
    [
        ([[0.0, 10.0], [1.0, 2.0], [5.0, 1.0], [10.0, 0.0]], 1),
        ([[0.0, 1.0], [1.0, 0.0]], 0),
        ([[3.0, 3.0]], 0),
        ([[0.0, 1.0, 1.0], [0.2, 0.2, 0.2], [1.0, 0.0, 0.0]], 1),
    ],
)
def test_the_knee_is_where_the_front_bends_most(front: list[list[float]], at: int) -> None:
    assert knee(front) == at
