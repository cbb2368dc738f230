"""Groups over seeds, and which of them comes closest."""

import math
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.report.vertical.comparison import compare, most_telling, properties, undefended
from lightleak.report.vertical.result import PropertyResult, Setting

SHARES = st.floats(0, 1)


def result(seed: int = 0, **changes: Any) -> PropertyResult:
    values = {
        "run": "run", "setting": Setting("adult"), "attack": "provfl_b", "variant": "passive", "adversary": "C1",
        "property_name": "sex=Male", "true": 0.66, "estimated": 0.65, "prior": 0.5,
    }  # fmt: skip
    return PropertyResult(seed=seed, **(values | changes))


@given(st.lists(st.tuples(SHARES, SHARES, SHARES), min_size=2, max_size=12))
def test_a_group_holds_means_over_seeds(shares) -> None:
    (group,) = compare(result(seed, true=t, estimated=e, prior=p) for seed, (t, e, p) in enumerate(shares))
    errors = [abs(e - t) for t, e, _ in shares]
    gains = [abs(p - t) - abs(e - t) for t, e, p in shares]
    assert group.error and group.gain and group.guess_error and group.estimated
    assert group.error.mean == pytest.approx(statistics.fmean(errors))
    assert group.gain.mean == pytest.approx(statistics.fmean(gains), abs=1e-12)
    assert group.estimated.mean == pytest.approx(statistics.fmean(e for _, e, _ in shares))
    assert group.guess_error.mean == pytest.approx(group.error.mean + group.gain.mean, abs=1e-12)
    assert group.error.n == len(shares)


def test_the_interval_is_students_over_seeds() -> None:
    (group,) = compare(result(seed, estimated=0.66 + error) for seed, error in enumerate((-0.01, 0.02, 0.03)))
    # Mean .02, deviation .01, t(2) = 4.303.
    assert group.error and group.error.high == pytest.approx(0.02 + 4.3027 * 0.01 / math.sqrt(3), abs=1e-5)


def test_coverage_counts_known_intervals() -> None:
    rows = [
        result(0, low=0.6, high=0.7), result(1, low=0.4, high=0.6), result(2), result(3, low=0.66, high=0.66),
        result(4, low=0, high=1, true=None),
    ]  # fmt: skip
    assert compare(rows)[0].coverage == (2, 3)
    assert compare([result()])[0].coverage is None


def test_one_seed_beats_nobody() -> None:
    assert compare([result()])[0].beats_guessing is False
    assert compare([result(0), result(1)])[0].beats_guessing is True
    assert compare([result(0, estimated=0.5), result(1, estimated=0.5)])[0].beats_guessing is False


def test_runs_pool_where_seeds_differ_and_stand_apart_where_they_do_not() -> None:
    pooled = compare([result(0), result(1, run="b")])
    assert [len(group.results) for group in pooled] == [2] and pooled[0].detail == ""
    apart = compare([result(0), result(0, run="b")])
    assert [group.detail for group in apart] == ["run run", "run b"]


def test_settings_tell_rows_of_one_seed_apart() -> None:
    rows = [result(seed, options={"queries": str(q), "aux": "9"}) for seed in (0, 1) for q in (10, 100)]
    groups = compare(rows)
    assert [(group.detail, len(group.results)) for group in groups] == [("queries 10", 2), ("queries 100", 2)]
    assert groups[1].title == "ProVFL-B (queries 100)"
    # A setting that differs by seed alone, such as a seed of its own, does not split a group.
    assert len(compare(result(seed, options={"seed": str(seed)}) for seed in (0, 1))) == 1


def test_the_closest_is_chosen_among_those_that_beat_guessing() -> None:
    sure = [result(seed, attack="aia", estimated=0.64 + 0.001 * seed) for seed in (0, 1, 2)]
    unsure = [
        result(seed, attack="lucky", estimated=0.655 + 0.004 * seed, prior=0.66 + 0.005 * seed) for seed in (0, 1, 2)
    ]
    groups = compare(sure + unsure)
    assert [group.beats_guessing for group in groups] == [True, False]
    assert groups[1].error and groups[0].error and groups[1].error.mean < groups[0].error.mean
    assert most_telling(groups) is groups[0]
    assert most_telling(groups[1:]) is groups[1]


def test_few_seeds_and_guesses_are_never_chosen() -> None:
    many = [result(seed, estimated=0.6, prior=0.6) for seed in range(4)]
    rows = [*many, result(0, attack="single", estimated=0.66), result(0, attack="prior", estimated=0.66)]
    chosen = most_telling(compare(rows))
    assert chosen is not None and chosen.attack == "provfl_b"
    assert most_telling(compare([result(attack="prior")])) is None
    assert most_telling(compare([result(true=None)])) is None


def test_properties_hold_what_was_measured_without_defence() -> None:
    defended = Setting("adult", defense="noise 0.1")
    rows = [
        result(), result(setting=defended), result(attack="prior", estimated=0.5), result(adversary="C2"),
        result(property_name="a=b", setting=defended), result(setting=Setting("bank")),
    ]  # fmt: skip
    found = properties(compare(rows))
    assert [(one.dataset, one.name, len(one.groups)) for one in found] == [
        ("adult", "sex=Male", 2), ("adult", "a=b", 1), ("bank", "sex=Male", 1),
    ]  # fmt: skip
    assert found[0].adversaries == ["C1", "C2"]
    assert found[0].guess_error and found[0].guess_error.mean == pytest.approx(0.16)
    assert found[0].guess_error.n == 1  # seed 0 once, though two adversaries ran on it
    assert found[1].groups[0].setting == defended
    assert len(undefended(compare(rows[1:2]))) == 1
