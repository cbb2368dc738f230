"""Points of a frontier, their verdicts, and which defense is recommended."""

import json
import statistics
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lightleak.core.results import FrontierRow
from lightleak.report.kinds.frontier_groups import Frontier, compare, compare_raw, fullest
from lightleak.report.kinds.frontier_points import Point, difference
from lightleak.report.kinds.frontier_standings import dominates, standings
from lightleak.report.read import load_run

NONE: dict[str, Any] = {"dataset": "adult"}
NOISE: dict[str, Any] = {
    "dataset": "adult", "defense": "gaussian_noise", "defense_label": "noise", "defense_strength": 0.1,
}  # fmt: skip
FEW = st.sampled_from([0.5, 0.6, 0.7, 0.8])


def attacked(of: dict[str, Any], attack: str, cells: Iterable[float], **more: Any) -> list[FrontierRow]:
    return [
        FrontierRow(attack=attack, run="run", seed=0, batch_index=index, metrics={"cell_accuracy": value}, **of, **more)
        for index, value in enumerate(cells)
    ]


def trained(of: dict[str, Any], accuracies: Iterable[float]) -> list[FrontierRow]:
    return [
        FrontierRow(attack="none", run="run", seed=seed, accuracy=value, **of) for seed, value in enumerate(accuracies)
    ]


def point(name: str, accuracies: Iterable[float], cells: Iterable[float]) -> Point:
    """A point with these accuracies by seed and these shares of cells by client, where guessing gets none."""
    rows = trained({"defense": name}, accuracies) + attacked({"defense": name}, "tableak", cells)
    return Point(tuple(rows), guesses={("run", "0", str(index)): 0.0 for index in range(9)})


def frontier_of(folder: Path) -> Frontier:
    (found,) = compare(load_run(folder).of(FrontierRow))
    return found


GUESSES = attacked(NONE, "random", (0.5, 0.6))


def test_leakage_is_paired_with_guessing_on_the_same_client_under_every_defense() -> None:
    (frontier,) = compare(GUESSES + attacked(NONE, "tableak", (0.7, 0.9)) + attacked(NOISE, "tableak", (0.6, 0.8)))
    assert frontier.guess.mean == pytest.approx(0.55)
    assert [point.leakage.mean for point in frontier.points] == pytest.approx([0.25, 0.15])
    assert frontier.points[1].gains == pytest.approx({("run", "0", "0"): 0.1, ("run", "0", "1"): 0.2})


def test_an_attacker_that_does_better_by_guessing_guesses() -> None:
    (frontier,) = compare(GUESSES + attacked(NOISE, "tableak", (0.3, 0.65)) + trained(NOISE, (0.8,)))
    (noise,) = frontier.measured
    assert noise.leakage.mean == pytest.approx(-0.075)
    assert noise.place == (0.8, 0.0) and set(noise.gains.values()) == {0.0}


def test_each_point_is_judged_by_the_attack_that_recovers_most_there() -> None:
    rows = [
        *GUESSES,
        *attacked(NONE, "tableak", (0.9, 0.9)),
        *attacked(NONE, "inverting_gradients", (0.7, 0.7)),
        *attacked(NOISE, "tableak", (0.6, 0.6)),
        *attacked(NOISE, "inverting_gradients", (0.7, 0.65)),
    ]
    (frontier,) = compare(rows)
    assert [point.strongest.attack for point in frontier.points] == ["tableak", "inverting_gradients"]
    assert [point.cells.mean for point in frontier.points] == pytest.approx([0.9, 0.675])


def test_one_attack_with_two_settings_is_two_attacks() -> None:
    weak = [replace(one, run="other") for one in attacked(NOISE, "tableak", (0.3, 0.2), options={"steps": 10})]
    (frontier,) = compare(GUESSES + attacked(NOISE, "tableak", (0.7, 0.8)) + weak)
    assert frontier.points[1].cells.mean == pytest.approx(0.75)
    assert frontier.points[1].strongest.attack == "tableak"


def test_cost_is_paired_by_seed() -> None:
    (frontier,) = compare(trained(NOISE, (0.80, 0.70)) + trained(NONE, (0.82, 0.71)))
    none, noise = frontier.points
    cost = noise.lost("accuracies")
    # The two accuracies are 10 points apart, their differences to no defense are 1 and 2.
    assert cost.mean == pytest.approx(0.015)
    assert cost.high - cost.low < 0.14 < noise.accuracy.high - noise.accuracy.low
    assert none.lost("accuracies") is None


def test_points_stand_with_no_defense_first_and_by_strength(make_frontier) -> None:
    (frontier,) = compare(reversed(load_run(make_frontier(trainings=1, clients=1)).of(FrontierRow)))
    assert frontier.points[0] is frontier.none
    curves = [point.first.curve for point in frontier.points]
    assert len(curves) == 19 and sum(a != b for a, b in pairwise(curves)) == 8
    for name in curves:
        values = [one.first.defense_strength or 0.0 for one in frontier.points if one.first.curve == name]
        assert values == sorted(values)
    granted = {one.first.curve: one.granted("epsilon") for one in frontier.points if one.granted("epsilon")}
    assert granted == {"dp_sgd": 1.02}
    assert [one.granted("epsilon") for one in frontier.guaranteed] == [9.83, 2.94, 1.02]


def test_points_are_compared_on_the_trainings_that_both_have() -> None:
    """The second lacks the trainings on which every point is less accurate, and is worse on those it has."""
    whole = point("whole", (0.84, 0.82, 0.80, 0.78), (0.3, 0.4))
    interrupted = point("interrupted", (0.835, 0.815), (0.3, 0.4))
    assert interrupted.place[0] > whole.place[0]
    first, second = standings([whole, interrupted])
    assert first.is_best and not second.is_best and second.rivals == (whole,)


def test_what_a_second_run_repeats_counts_once() -> None:
    """Runs with one seed and other defenses have the same undefended trainings, clients and guesses."""
    none = [*GUESSES, *attacked(NONE, "tableak", (0.7, 0.9)), *trained(NONE, (0.8, 0.9))]
    noise = [*attacked(NOISE, "tableak", (0.6, 0.8)), *trained(NOISE, (0.7, 0.85))]
    second = [replace(one, run="other") for one in none + noise]
    (frontier,), (once,) = compare([*none, *second]), compare(none + noise)
    assert frontier.none.rows == once.none.rows
    for point, expected in zip(frontier.points, once.points, strict=True):
        assert (point.accuracies, point.recovered) == (expected.accuracies, expected.recovered)
    assert frontier.points[1].lost("accuracies").mean == pytest.approx(0.075)


def test_runs_are_pooled_and_settings_stay_apart() -> None:
    rows = trained(NONE, (0.8, 0.9))
    again = [replace(one, run="other", accuracy=one.accuracy - 0.1) for one in rows]
    elsewhere = [replace(one, dataset="german") for one in rows]
    first, second = compare(rows + again + elsewhere)
    assert (first.points[0].accuracy.n, second.points[0].accuracy.n) == (4, 2)
    assert (first.first.dataset, second.first.dataset) == ("adult", "german")


@pytest.mark.parametrize("name", ["epsilon", "release_epsilon"])
def test_a_point_grants_what_its_least_private_training_does(name: str) -> None:
    """Under FedAvg with `clients_per_round` the rounds of a client, and so epsilon, depend on the seed."""
    rows = trained({"defense": "dp_sgd"}, (0.8, 0.7, 0.9))
    spent = [replace(row, **{name: epsilon}) for row, epsilon in zip(rows, (4.38, 4.98, 4.97), strict=True)]
    for order in (spent, spent[::-1]):
        assert Point((*order, *attacked({"defense": "dp_sgd"}, "tableak", (0.5,)))).granted(name) == 4.98
    assert Point((*spent, replace(rows[0], seed=3))).granted(name) is None
    filtered = attacked({"defense": "nvflare_svt"}, "tableak", (0.5,), **{name: 2.0})
    assert Point(tuple(filtered)).granted(name) == 2.0


def test_points_of_one_strength_are_told_apart_by_their_other_settings() -> None:
    def of(**options: float) -> list[FrontierRow]:
        settings = {"name": "dp_sgd", "options": {"noise_multiplier": 1.0, **options}, "point": "update"}
        same = {"defense": "dp_sgd", "defense_strength": 1.0, "defense_option": "noise_multiplier"}
        return [FrontierRow(attack="none", run=str(options), defense_settings=settings, **same)]

    (alone,) = compare(of())
    assert [point.name for point in alone.points] == ["DP-SGD 1"]
    (both,) = compare(of() + of(max_grad_norm=2.0))
    names = [point.name for point in both.points]
    assert names == ["DP-SGD 1 (other settings by default)", "DP-SGD 1 (max_grad_norm 2.0)"]


def test_what_is_not_finished_is_not_measured() -> None:
    (frontier,) = compare(trained(NOISE, (0.8,)) + attacked(NONE, "tableak", (0.7,)))
    assert frontier.measured == () and frontier.guess is None and frontier.protecting == ()
    assert [point.gains for point in frontier.points] == [{}, {}]
    assert difference({"a": 1.0}, {}) is None
    assert fullest([]) is None


def test_rows_as_the_file_holds_them_are_read() -> None:
    raw = {"kind": "defence-frontier", "attack": "none", "accuracy": 0.8, "seed": 3, "defense": "sign"}
    (frontier,) = compare_raw([raw, raw | {"accuracy": float("nan"), "seed": 4}], "run")
    (found,) = frontier.points
    assert (found.first.curve, found.first.is_undefended) == ("sign", False)  # a curve has the name of its defense
    assert found.accuracies == {("run", "3", ""): 0.8}


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


@pytest.mark.parametrize(("first", "second"), [((0.5, 0.5), (0.5, 0.5)), ((0.6, 0.6), (0.5, 0.5))])
def test_equal_points_and_trade_offs_do_not_dominate(first, second) -> None:
    assert not dominates(first, second) and not dominates(second, first)


def test_a_measurable_difference_beats() -> None:
    good, bad = point("good", [0.80, 0.81, 0.82], [0.5, 0.6]), point("bad", [0.70, 0.71, 0.72], [0.6, 0.5])
    first, second = standings([good, bad])
    assert (first.is_best, first.verdict, first.rivals) == (True, "best", ())
    assert (second.is_best, second.verdict) == (False, "beaten")
    assert [rival.first.curve for rival in second.rivals] == ["good"]


def test_a_difference_within_the_interval_does_not_separate_points() -> None:
    good, bad = point("good", [0.80, 0.70, 0.78], [0.5, 0.6]), point("bad", [0.70, 0.79, 0.76], [0.6, 0.5])
    first, second = standings([good, bad])
    # By mean the first wins; neither is measurably worse than the other.
    assert (first.is_best, second.is_best) == (True, False)
    assert first.verdict == second.verdict == "not distinguishable"
    assert [one.rivals[0].first.curve for one in (first, second)] == ["bad", "good"]


def test_a_best_point_that_is_best_by_chance_has_a_rival() -> None:
    """More accurate by chance, and measurably leakier."""
    none = point("none", [0.81, 0.80, 0.79], [0.80, 0.81, 0.79])
    noise = point("noise", [0.79, 0.81, 0.79], [0.50, 0.51, 0.49])
    first, second = standings([none, noise])
    assert first.is_best and first.verdict == "not distinguishable" and first.rivals[0] is noise
    assert second.is_best and second.verdict == "best" and second.rivals == ()


def test_one_seed_and_one_client_distinguish_nothing() -> None:
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


def test_the_cheapest_of_those_that_protect_comes_first(make_frontier) -> None:
    frontier = frontier_of(make_frontier())
    assert frontier.protecting[0].name == "Gaussian noise 0.1"
    assert {one.name for one in frontier.protecting} >= {"DP-SGD 1", "DP-SGD 2"}
    leaky = {"gaussian_noise": (0.6, 0.845)}
    assert not frontier_of(make_frontier(curves=("none", "gaussian_noise", "sign"), changed=leaky)).protecting


@pytest.mark.parametrize(
    ("changed", "helps"),
    [
        ({"quantization": (0.71, 0.845)}, True),
        ({"quantization": (0.60, 0.845)}, True),
        ({"quantization": (0.80, 0.84)}, False),
        ({"quantization": (0.79, 0.84)}, False),  # a difference that may be chance
        ({"none": (0.53, 0.84)}, False),
    ],
)
def test_a_defense_helps_only_where_it_measurably_does(make_frontier, changed, helps: bool) -> None:
    frontier = frontier_of(make_frontier(curves=("none", "quantization"), changed=changed))
    assert any(one.helps for one in frontier.tried) is helps


def test_an_erratic_defense_does_not_hide_a_steady_one() -> None:
    """One that leaks less in the mean, but not measurably, and is more accurate: it does not help."""

    def rows(label: str, cells: tuple[float, ...], accuracy: float) -> list[FrontierRow]:
        return attacked({"defense": label}, "tableak", cells) + trained({"defense": label}, [accuracy] * 3)

    (frontier,) = compare(
        attacked({}, "random", (0.5, 0.5, 0.5))
        + rows("none", (0.8, 0.81, 0.79), 0.84)
        + rows("steady", (0.6, 0.61, 0.6), 0.83)
        + rows("erratic", (0.3, 0.95, 0.5), 0.835)
    )
    assert [one.first.curve for one in frontier.tried if one.helps] == ["steady"]


def test_a_folder_is_read_with_its_settings(make_frontier) -> None:
    folder = make_frontier(curves=("none", "sign"), trainings=2, clients=3)
    rows = load_run(folder).of(FrontierRow)
    assert len(rows) == 2 * 2 + 2 * 3 + 3  # trainings, attacks, and guessing without a defense alone
    (frontier,) = compare(rows)
    first = frontier.first
    assert (first.dataset, first.target, first.protocol, first.batch_size) == ("adult", "mlp-100-100", "fedsgd", 32)
    assert (first.training, first.label_setting) == ("10 epochs, batches of 32, sgd at 0.01", "true")
    raw = json.loads((folder / "results.json").read_text())["rows"]
    (same,) = compare_raw(raw, "run")
    assert [one.accuracies for one in same.points] == [one.accuracies for one in frontier.points]
