import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lightleak.report.frontier.comparison import Point
from lightleak.report.frontier.pareto import dominates, standings
from lightleak.report.frontier.result import FrontierResult, Setting, Strength

FEW = st.sampled_from([0.5, 0.6, 0.7, 0.8])


def point(name: str, accuracies, cells) -> Point:
    """A point with these accuracies by seed and these shares of cells by client, where guessing gets none."""
    strength = Strength(name, name)
    trained = [
        FrontierResult("run", Setting(), strength, None, seed, accuracy=value) for seed, value in enumerate(accuracies)
    ]
    attacked = [
        FrontierResult("run", Setting(), strength, "tableak", 0, client, cell_accuracy=value)
        for client, value in enumerate(cells)
    ]
    return Point(strength, (*trained, *attacked), {one.key: 0.0 for one in attacked})


@given(st.lists(st.tuples(FEW, FEW), min_size=1, max_size=8))
def test_the_best_are_those_that_no_other_dominates(values) -> None:
    found = standings([point(str(i), [accuracy], [cells]) for i, (accuracy, cells) in enumerate(values)])
    for one, (accuracy, cells) in zip(found, values, strict=True):
        beaten = any(a >= accuracy and c <= cells and (a > accuracy or c < cells) for a, c in values)
        assert one.is_best is not beaten
    assert any(one.is_best for one in found)


@given(st.tuples(FEW, FEW), st.tuples(FEW, FEW), st.tuples(FEW, FEW))
def test_domination_is_a_strict_order(a, b, c) -> None:
    assert not dominates(a, a)
    assert not (dominates(a, b) and dominates(b, a))
    assert dominates(a, c) or not (dominates(a, b) and dominates(b, c))


def test_a_measurable_difference_beats() -> None:
    good, bad = point("good", [0.80, 0.81, 0.82], [0.5, 0.6]), point("bad", [0.70, 0.71, 0.72], [0.6, 0.5])
    first, second = standings([good, bad])
    assert (first.is_best, first.verdict, first.rivals) == (True, "best", ())
    assert (second.is_best, second.verdict) == (False, "beaten")
    assert [rival.strength.label for rival in second.rivals] == ["good"]


def test_a_difference_within_the_interval_does_not_tell_apart() -> None:
    good, bad = point("good", [0.80, 0.70, 0.78], [0.5, 0.6]), point("bad", [0.70, 0.79, 0.76], [0.6, 0.5])
    first, second = standings([good, bad])
    # By mean the first wins; neither is measurably worse than the other.
    assert (first.is_best, second.is_best) == (True, False)
    assert first.verdict == second.verdict == "not distinguishable"
    assert [one.rivals[0].strength.label for one in (first, second)] == ["bad", "good"]


def test_a_best_point_that_is_best_by_chance_says_so() -> None:
    """More accurate by chance, and measurably leakier."""
    none = point("none", [0.81, 0.80, 0.79], [0.80, 0.81, 0.79])
    noise = point("noise", [0.79, 0.81, 0.79], [0.50, 0.51, 0.49])
    first, second = standings([none, noise])
    assert first.is_best and first.verdict == "not distinguishable" and first.rivals == (noise,)
    assert second.is_best and second.verdict == "best" and second.rivals == ()


def test_one_seed_and_one_client_tell_nothing_apart() -> None:
    found = standings([point("a", [0.9], [0.1]), point("b", [0.5], [0.9])])
    assert {one.verdict for one in found} == {"not distinguishable"}


def test_points_that_leak_nothing_are_compared_by_accuracy_alone() -> None:
    """Below guessing an attacker guesses: how far below is no merit."""
    strong = point("strong", [0.70, 0.71, 0.72], [-0.3, -0.31, -0.32])
    weak = point("weak", [0.80, 0.81, 0.82], [-0.01, -0.02, -0.01])
    first, second = standings([strong, weak])
    assert (first.is_best, first.verdict) == (False, "beaten")
    assert (second.is_best, second.verdict) == (True, "best")


VALUES = st.lists(st.floats(0.4, 0.9).map(lambda value: round(value, 3)), min_size=3, max_size=3)


@given(st.tuples(VALUES, VALUES), st.tuples(VALUES, VALUES))
def test_beaten_needs_a_paired_interval_that_excludes_0(one, other) -> None:
    """Against an interval computed by the standard library and scipy alone."""

    def exceeds(first, second) -> bool:
        differences = [a - b for a, b in zip(first, second, strict=True)]
        half = stats.t.ppf(0.975, 2) * statistics.stdev(differences) / 3**0.5
        return statistics.fmean(differences) - half > 1e-12

    found, _ = standings([point("one", *one), point("other", *other)])
    if found.verdict == "beaten":
        means = [(statistics.fmean(accuracies), statistics.fmean(cells)) for accuracies, cells in (other, one)]
        assert dominates(*means)
        assert exceeds(other[0], one[0]) or exceeds(one[1], other[1])
    if found.verdict == "best":
        assert exceeds(one[0], other[0]) or exceeds(other[1], one[1])


@pytest.mark.parametrize(("first", "second"), [((0.5, 0.5), (0.5, 0.5)), ((0.6, 0.6), (0.5, 0.5))])
def test_equal_points_and_trade_offs_do_not_dominate(first, second) -> None:
    assert not dominates(first, second) and not dominates(second, first)
