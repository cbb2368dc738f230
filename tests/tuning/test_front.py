"""The front against its definition, point by point; the knee where geometry puts it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lightleak.tuning.front import knee, pareto_front

POINTS = arrays(float, st.tuples(st.integers(1, 12), st.integers(1, 3)), elements=st.integers(0, 4).map(float))


@given(POINTS)
def test_a_point_is_on_the_front_if_nothing_dominates_it(values: np.ndarray) -> None:
    expected = [
        not any(all(b <= a for a, b in zip(p, q, strict=True)) and tuple(p) != tuple(q) for q in values) for p in values
    ]
    assert pareto_front(values).tolist() == expected


@given(POINTS)
def test_some_point_is_on_the_front_and_scaling_moves_neither_front_nor_knee(values: np.ndarray) -> None:
    front = values[pareto_front(values)]
    assert len(front) >= 1
    scale, shift = np.array([2.0, 8.0, 0.5])[: values.shape[1]], np.array([4.0, -2.0, 16.0])[: values.shape[1]]
    assert pareto_front(values * scale + shift).tolist() == pareto_front(values).tolist()
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
