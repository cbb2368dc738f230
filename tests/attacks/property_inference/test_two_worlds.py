"""The game of two worlds."""

import pytest

from lightleak.attacks.property_inference.two_worlds import check_worlds, nearest_world
from lightleak.core.errors import UsageError


def test_the_nearest_world_is_named() -> None:
    assert [nearest_world(t, (0.3, 0.5)) for t in (0.0, 0.39, 0.41, 0.9)] == [0, 0, 1, 1]
    assert [nearest_world(t, (0.5, 0.3)) for t in (0.0, 0.39, 0.41, 0.9)] == [1, 1, 0, 0]


@pytest.mark.parametrize("worlds", [(0.3, 0.3), (0.0, 0.5), (0.5, 1.0), (0.5,), (float("nan"), 0.5)])
def test_worlds_that_are_no_two_fractions_are_refused(worlds: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="two different fractions above 0 and below 1"):
        check_worlds(worlds)
