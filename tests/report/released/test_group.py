"""One attack over its evaluations, and how two differ."""

import statistics
from typing import Any

import pytest

from lightleak.report.estimate import Estimate, estimate
from lightleak.report.intervals import difference
from lightleak.report.released.comparison import compare
from lightleak.report.released.group import Group
from lightleak.report.released.result import parse_result


def rows(attack: str, *accuracies: float | None, **fields: Any) -> list[dict[str, Any]]:
    """One row over all classes for each accuracy."""
    return [
        {"attack": attack, "evaluation_index": index, "seed": 0, "attack_accuracy": value, "class": "all", **fields}
        for index, value in enumerate(accuracies)
    ]


def group(*found: dict[str, Any]) -> Group:
    ((only,),) = (scenario.groups for scenario in compare([parse_result(row, "run", "row") for row in found]))
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


def test_equal_evaluations_are_no_surer_than_their_rows_allow() -> None:
    bounds = ({"attack_accuracy_low": 0.95, "attack_accuracy_high": 1.0}, {"attack_accuracy_low": 0.96})
    found = group(*(row | more for row, more in zip(rows("plgmi", 1.0, 1.0), bounds, strict=True)))
    assert found.value() == Estimate(1.0, 2, 0.95, 1.0)
    assert group(*rows("plgmi", 1.0, 1.0)).value() == Estimate(1.0, 2)


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


def test_changes_are_paired_where_evaluations_are_shared() -> None:
    plain = group(*rows("plgmi", 0.5, 0.7, 0.9))
    searched = group(*rows("plgmi", 0.6, 0.81, 0.99, latent_search="gradient"))
    assert searched.change(plain) == estimate([0.6 - 0.5, 0.81 - 0.7, 0.99 - 0.9])
    single = group(*rows("plgmi", 0.6, latent_search="gradient", attack_accuracy_low=0.5, attack_accuracy_high=0.7))
    assert single.change(plain) == difference(single.value(), plain.value())
