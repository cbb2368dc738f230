"""Setting attacks beside their baselines."""

from typing import Any

import pytest

from lightleak.report.estimate import Estimate
from lightleak.report.released.comparison import Scenario, compare, most_telling
from lightleak.report.released.entries import Entry
from lightleak.report.released.result import parse_result


def scenarios(*rows: dict[str, Any], entries: tuple[Entry, ...] = ()) -> tuple[Scenario, ...]:
    return compare([parse_result(row, row.get("run", "run"), "row") for row in rows], entries)


def rows(attack: str, *accuracies: float | None, **fields: Any) -> list[dict[str, Any]]:
    """One training, evaluated once, for each accuracy."""
    return [
        {"attack": attack, "evaluation_index": 0, "seed": index, "attack_accuracy": value, "class": "all", **fields}
        for index, value in enumerate(accuracies)
    ]


def test_a_group_is_one_attack_with_one_search_and_bridge() -> None:
    made = [
        *rows("plgmi", 0.7), *rows("plgmi", 0.7, label="b"), *rows("plgmi", 0.7, latent_search="tpe"),
        *rows("plgmi", 0.7, bridge="shared"), *rows("plgmi", 0.7, setting="3"), *rows("plgmi", 0.7, target="xgboost"),
        *rows("plgmi", 0.7, run="other", seed=1),
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
    assert scenario.gain(scenario.groups[0]) == Estimate(pytest.approx(0.3))
    assert scenario.gain(scenario.reference) is None


def test_real_rows_and_chance() -> None:
    made = rows("plgmi", 0.5, 0.6, real_rows_accuracy=0.4, setting="2", dataset="t")
    (scenario,) = scenarios(*made)
    assert (scenario.real_rows_accuracy, scenario.chance) == (pytest.approx(0.4), None)
    (scenario,) = scenarios(*made, *(made[0] | {"class": name} for name in "abcd"))
    assert scenario.chance == 0.25
    entry = Entry("run", "plgmi", "plgmi", "t", "2", task={"classes": 20})
    (scenario,) = scenarios(*made, entries=(Entry("run", "x", "x", "u", "2", task={"classes": 3}), entry))
    assert scenario.chance == 0.05


def test_the_most_telling_attack_surely_exceeds_the_baseline() -> None:
    baseline = rows("public_random", 0.49, 0.5, 0.51)
    steady, lucky = rows("plgmi", 0.7, 0.71, 0.72, label="steady"), rows("plgmi", 0.3, 0.95, 0.96, label="lucky")
    found = most_telling(scenarios(*baseline, *steady, *lucky))
    assert found is not None and found[1].label == "steady"
    alone = rows("plgmi", 0.99, label="alone", setting="3")  # nothing says how much of it is known anyway
    found = most_telling(scenarios(*baseline, *steady, *alone))
    assert found is not None and found[1].label == "steady"
    found = most_telling(scenarios(*steady, *lucky))
    assert found is not None and found[1].label == "steady"
    assert most_telling(scenarios(*baseline, *rows("plgmi", None))) is None
