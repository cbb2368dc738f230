"""Grouping evaluations and setting them beside their baselines."""

import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.report.estimate import Estimate, estimate
from lightleak.report.released.comparison import Scenario, compare, most_telling
from lightleak.report.released.entries import Entry
from lightleak.report.released.group import Group, difference
from lightleak.report.released.result import parse_result


def scenarios(*rows: dict[str, Any], entries: tuple[Entry, ...] = ()) -> tuple[Scenario, ...]:
    return compare([parse_result(row, row.get("run", "run"), "row") for row in rows], entries)


def rows(attack: str, *accuracies: float | None, **fields: Any) -> list[dict[str, Any]]:
    """One row over all classes for each accuracy."""
    return [
        {"attack": attack, "evaluation_index": index, "seed": 0, "attack_accuracy": value, "class": "all", **fields}
        for index, value in enumerate(accuracies)
    ]


def group(*found: dict[str, Any]) -> Group:
    (scenario,) = scenarios(*found)
    (only,) = scenario.groups
    return only


def test_the_interval_is_over_evaluations_of_one_training() -> None:
    found = group(*rows("plgmi", 0.7, 0.8, 0.9, None))
    assert found.value() == estimate([0.7, 0.8, 0.9])
    assert (found.interval_over, found.n_seeds) == ("evaluations", 1)
    assert found.deviation() == pytest.approx(0.1)
    assert found.singles() == [("evaluation 0", 0.7), ("evaluation 1", 0.8), ("evaluation 2", 0.9)]


def test_evaluations_of_one_training_are_no_independent_trainings() -> None:
    found = group(*rows("plgmi", 0.7, 0.72), *rows("plgmi", 0.9, seed=1), *rows("plgmi", 0.8, seed=2))
    assert found.value() == estimate([0.71, 0.9, 0.8])
    assert (found.interval_over, found.n_seeds) == ("seeds", 3)
    assert found.deviation() == statistics.stdev([0.7, 0.72, 0.9, 0.8])
    assert found.singles()[-1] == ("seed 2, evaluation 0", 0.8)


def test_a_single_evaluation_has_the_interval_over_its_rows() -> None:
    found = group(*rows("plgmi", 0.7, attack_accuracy_low=0.6, attack_accuracy_high=0.8, shapes_score=0.9))
    assert found.value() == Estimate(0.7, 1, 0.6, 0.8)
    assert found.value("shapes_score") == Estimate(0.9, 1)
    assert (found.interval_over, found.deviation()) == ("samples", None)


def test_where_all_classes_together_are_unknown_their_mean_stands_in() -> None:
    one = rows("plgmi", 0.7, gower_distance=None, samples=300)
    classes = [one[0] | {"class": str(k), "gower_distance": 0.1 * k, "attack_accuracy": 0.2 * k} for k in (1, 2, 3)]
    found = group(*one, *classes)
    assert found.value("gower_distance").mean == pytest.approx(0.2)
    assert found.value().mean == 0.7
    assert found.samples == 300
    assert {name: value.mean for name, value in found.by_class("gower_distance").items()} == pytest.approx(
        {"1": 0.1, "2": 0.2, "3": 0.3}
    )
    assert group(*classes).value().mean == pytest.approx(0.4)


def test_a_group_is_one_attack_with_one_search_and_bridge() -> None:
    made = [
        *rows("plgmi", 0.7), *rows("plgmi", 0.7, label="b"), *rows("plgmi", 0.7, latent_search="tpe"),
        *rows("plgmi", 0.7, bridge="shared"), *rows("plgmi", 0.7, setting="3"), *rows("plgmi", 0.7, target="xgboost"),
        *rows("plgmi", 0.7, run="other", evaluation_index=1),
    ]  # fmt: skip
    found = scenarios(*made)
    assert [len(scenario.groups) for scenario in found] == [4, 1, 1]
    assert len(found[0].groups[0].evaluations) == 2  # another run of the same is pooled
    twice = scenarios(*rows("plgmi", 0.7), *rows("plgmi", 0.8, run="other"))
    assert [one.detail for one in twice[0].groups] == ["run other", "run run"]  # unless it is the same evaluation


def test_attacks_come_before_baselines_and_the_best_first() -> None:
    (scenario,) = scenarios(
        *rows("public_random", 0.05), *rows("plgmi", 0.5), *rows("public_pseudo_labelled", 0.6),
        *rows("plgmi", 0.9, label="b"), *rows("gan_without_target", 0.4, latent_search="random"),
        *rows("gan_without_target", 0.7, latent_search="gradient"), *rows("plgmi", None, label="c"),
        *rows("gan_without_target", None, latent_search="softmax"),
    )  # fmt: skip
    names = [(one.label, one.search) for one in scenario.groups]
    # A generator that was not led by the model is an attack once its latent vectors are.
    assert names == [
        ("b", None), ("gan_without_target", "gradient"), ("plgmi", None), ("c", None),
        ("public_pseudo_labelled", None), ("gan_without_target", "random"), ("public_random", None),
        ("gan_without_target", "softmax"),
    ]  # fmt: skip
    assert scenario.reference is not None and scenario.reference.attack == "public_pseudo_labelled"
    assert [len(part) for part in (scenario.attacks, scenario.baselines)] == [4, 4]
    assert scenario.gain(scenario.groups[0]) == Estimate(pytest.approx(0.3), 0)
    assert scenario.gain(scenario.reference) is None


def test_ceiling_and_chance() -> None:
    made = rows("plgmi", 0.5, 0.6, ceiling=0.4, setting="2", dataset="t")
    (scenario,) = scenarios(*made)
    assert (scenario.ceiling, scenario.chance) == (pytest.approx(0.4), None)
    (scenario,) = scenarios(*made, *(made[0] | {"class": name} for name in "abcd"))
    assert scenario.chance == 0.25
    entry = Entry("run", "plgmi", "plgmi", "t", "2", task={"classes": 20})
    (scenario,) = scenarios(*made, entries=(Entry("run", "x", "x", "u", "2", task={"classes": 3}), entry))
    assert scenario.chance == 0.05


def test_a_difference_without_intervals_has_none() -> None:
    assert difference(Estimate(0.8, 5, 0.7, 0.9), Estimate(0.5)) == Estimate(pytest.approx(0.3), 0)
    assert difference(None, Estimate(0.5)) is None and difference(Estimate(0.5), None) is None


@given(*[st.floats(0, 1)] * 2, *[st.floats(0, 0.5)] * 4)
def test_a_difference_turns_around_and_is_no_surer_than_its_parts(a, b, below, above, low, high) -> None:
    first, second = Estimate(a, 5, a - below, a + above), Estimate(b, 5, b - low, b + high)
    found, back = difference(first, second), difference(second, first)
    assert found is not None and back is not None
    assert (found.mean, found.low, found.high) == pytest.approx((-back.mean, -back.high, -back.low))
    assert found.mean - found.low >= max(below, high) - 1e-9
    assert found.high - found.mean >= max(above, low) - 1e-9


def test_the_interval_of_a_difference_covers_what_it_should() -> None:
    """Newcombe's interval from two t intervals, over simulated pairs of five evaluations each."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        first, second = rng.normal(0.8, 0.03, 5), rng.normal(0.6, 0.02, 5)
        found = difference(estimate(first), estimate(second))
        covered += found.low <= 0.2 <= found.high
    assert 0.93 <= covered / 400 <= 1.0


def test_changes_are_paired_where_evaluations_are_shared() -> None:
    plain = group(*rows("plgmi", 0.5, 0.7, 0.9))
    searched = group(*rows("plgmi", 0.6, 0.81, 0.99, latent_search="gradient"))
    assert searched.change(plain) == estimate([0.6 - 0.5, 0.81 - 0.7, 0.99 - 0.9])
    single = group(*rows("plgmi", 0.6, latent_search="gradient", attack_accuracy_low=0.5, attack_accuracy_high=0.7))
    assert single.change(plain) == difference(single.value(), plain.value())


def test_the_most_telling_attack_surely_exceeds_the_baseline() -> None:
    baseline = rows("public_random", 0.5, 0.5, 0.5)
    steady, lucky = rows("plgmi", 0.7, 0.71, 0.72, label="steady"), rows("plgmi", 0.3, 0.95, 0.96, label="lucky")
    found = most_telling(scenarios(*baseline, *steady, *lucky))
    assert found is not None and found[1].label == "steady"
    alone = rows("plgmi", 0.99, label="alone", setting="3")  # nothing says how much of it is known anyway
    found = most_telling(scenarios(*baseline, *steady, *alone))
    assert found is not None and found[1].label == "steady"
    found = most_telling(scenarios(*steady, *lucky))
    assert found is not None and found[1].label == "steady"
    assert most_telling(scenarios(*baseline, *rows("plgmi", None))) is None
