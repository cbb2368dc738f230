"""The game of two worlds: who is right how often, within which bounds."""

import pytest

from lightleak.attacks.property_inference.two_worlds import check_worlds, nearest_world, two_world_accuracy
from lightleak.core.errors import UsageError


def test_the_nearest_world_is_named() -> None:
    assert [nearest_world(t, (0.3, 0.5)) for t in (0.0, 0.39, 0.41, 0.9)] == [0, 0, 1, 1]
    assert [nearest_world(t, (0.5, 0.3)) for t in (0.0, 0.39, 0.41, 0.9)] == [1, 1, 0, 0]


@pytest.mark.parametrize("worlds", [(0.3, 0.3), (0.0, 0.5), (0.5, 1.0), (0.5,), (float("nan"), 0.5)])
def test_worlds_that_are_no_two_fractions_are_refused(worlds: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="two different fractions above 0 and below 1"):
        check_worlds(worlds)


def test_accuracy_counts_both_worlds() -> None:
    score = two_world_accuracy(lambda seen: int(seen > 0), [-1, -2, 3], [1, 2, 3, -4])
    assert (score.accuracy, score.n) == (5 / 7, 7)
    # One that always names the same world is at chance.
    assert two_world_accuracy(lambda seen: 1, [1, 2], [3, 4]).accuracy == 0.5


def test_the_interval_is_wilsons() -> None:
    score = two_world_accuracy(lambda seen: seen, [0] * 9 + [1], [1] * 9 + [0])
    # scipy.stats.binomtest(18, 20).proportion_ci(method="wilson"): 0.6990, 0.9721
    assert (score.low, score.high) == pytest.approx((0.6990, 0.9721), abs=1e-4)
    certain = two_world_accuracy(lambda seen: seen, [0], [1])
    assert certain.high == 1.0 and certain.low < 0.4


def test_a_world_without_trainings_is_refused() -> None:
    with pytest.raises(UsageError, match="each world needs a training, got 0 and 1"):
        two_world_accuracy(lambda seen: 0, [], [1])
