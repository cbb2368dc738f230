from collections.abc import Iterable
from dataclasses import replace

import pytest

from lightleak.report.frontier.comparison import compare, paired
from lightleak.report.frontier.result import FrontierResult, Setting, Strength
from lightleak.report.frontier.run_folder import load_frontier_run

NOISE = Strength("noise", "gaussian_noise", 0.1, "scale")
AT = Setting("adult")


def attacked(strength: Strength, attack: str, cells: Iterable[float]) -> list[FrontierResult]:
    return [
        FrontierResult("run", AT, strength, attack, 0, index, cell_accuracy=value) for index, value in enumerate(cells)
    ]


def trained(strength: Strength, accuracies: Iterable[float]) -> list[FrontierResult]:
    return [FrontierResult("run", AT, strength, None, seed, accuracy=value) for seed, value in enumerate(accuracies)]


GUESSES = attacked(Strength(), "random", (0.5, 0.6))


def test_leakage_is_paired_with_guessing_on_the_same_client_under_every_defence() -> None:
    (frontier,) = compare(
        GUESSES + attacked(Strength(), "tableak", (0.7, 0.9)) + attacked(NOISE, "tableak", (0.6, 0.8))
    )
    assert frontier.guess.mean == pytest.approx(0.55)
    assert [point.leakage.mean for point in frontier.points] == pytest.approx([0.25, 0.15])
    assert frontier.points[1].gains == pytest.approx({("run", "0", "0"): 0.1, ("run", "0", "1"): 0.2})


def test_an_attacker_that_does_better_by_guessing_guesses() -> None:
    (frontier,) = compare(GUESSES + attacked(NOISE, "tableak", (0.3, 0.65)) + trained(NOISE, (0.8,)))
    (noise,) = frontier.measured
    assert noise.leakage.mean == pytest.approx(-0.075)
    assert noise.gain == 0 and set(noise.gains.values()) == {0.0}


def test_each_point_is_judged_by_the_attack_that_recovers_most_there() -> None:
    rows = [
        *GUESSES,
        *attacked(Strength(), "tableak", (0.9, 0.9)),
        *attacked(Strength(), "inverting_gradients", (0.7, 0.7)),
        *attacked(NOISE, "tableak", (0.6, 0.6)),
        *attacked(NOISE, "inverting_gradients", (0.7, 0.65)),
    ]
    (frontier,) = compare(rows)
    assert [point.attack for point in frontier.points] == ["tableak", "inverting_gradients"]
    assert [point.cells.mean for point in frontier.points] == pytest.approx([0.9, 0.675])


def test_one_attack_with_two_settings_is_two_attacks() -> None:
    weak = [replace(one, options={"steps": "10"}, run="other") for one in attacked(NOISE, "tableak", (0.3, 0.2))]
    (frontier,) = compare(GUESSES + attacked(NOISE, "tableak", (0.7, 0.8)) + weak)
    assert frontier.points[1].cells.mean == pytest.approx(0.75) and frontier.points[1].attack == "tableak"


def test_cost_is_paired_by_seed() -> None:
    (frontier,) = compare(trained(NOISE, (0.80, 0.70)) + trained(Strength(), (0.82, 0.71)))
    none, noise = frontier.points
    cost = frontier.cost(noise)
    # The two accuracies are 10 points apart, their differences to no defence are 1 and 2.
    assert cost.mean == pytest.approx(0.015)
    assert cost.high - cost.low < 0.14 < noise.accuracy.high - noise.accuracy.low
    assert frontier.cost(none) is None


def test_points_stand_with_no_defence_first_and_by_strength(make_frontier) -> None:
    rows = list(load_frontier_run(make_frontier(trainings=1, clients=1)).results)
    (frontier,) = compare(reversed(rows))
    assert frontier.points[0] is frontier.none
    for curve in frontier.curves.values():
        values = [point.strength.value or 0.0 for point in curve]
        assert values == sorted(values)
    assert {point.strength.label: point.epsilon for point in frontier.points if point.epsilon} == {"dp_sgd": 1.02}


def test_runs_are_pooled_and_settings_stay_apart() -> None:
    rows = trained(Strength(), (0.8, 0.9))
    again = [replace(one, run="other") for one in rows]
    elsewhere = [replace(one, setting=Setting("german")) for one in rows]
    first, second = compare(rows + again + elsewhere)
    assert (first.points[0].accuracy.n, second.points[0].accuracy.n) == (4, 2)
    assert (first.setting.dataset, second.setting.dataset) == ("adult", "german")


def test_what_is_not_finished_is_not_measured() -> None:
    (frontier,) = compare(trained(NOISE, (0.8,)) + attacked(Strength(), "tableak", (0.7,)))
    assert frontier.measured == () and frontier.guess is None
    assert [point.gains for point in frontier.points] == [{}, {}]
    assert paired({("a", "0", "0"): 1.0}, {}) is None
