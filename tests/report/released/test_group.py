"""One attack over its evaluations, and how two differ."""

import statistics
from typing import Any

import pytest

from lightleak.report.estimate import Estimate
from lightleak.report.intervals import bounded
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


def test_evaluations_of_one_training_give_no_interval() -> None:
    found = group(*rows("plgmi", 0.7, 0.8, 0.9, None))
    assert found.value() == Estimate(pytest.approx(0.8), 1)
    assert found.n_seeds == 1
    assert found.deviation() == pytest.approx(0.1)
    assert found.singles() == [("evaluation 0", 0.7), ("evaluation 1", 0.8), ("evaluation 2", 0.9)]


def test_evaluations_of_one_training_are_no_independent_trainings() -> None:
    found = group(*rows("plgmi", 0.7, 0.72), *rows("plgmi", 0.9, seed=1), *rows("plgmi", 0.8, seed=2))
    assert found.value() == bounded([0.71, 0.9, 0.8])
    assert found.n_seeds == 3
    assert found.deviation() == pytest.approx(statistics.stdev([0.71, 0.9, 0.8]))
    assert found.singles()[-1] == ("seed 2, evaluation 0", 0.8)


def test_equal_trainings_are_no_surer_than_their_number_allows() -> None:
    both = [*rows("plgmi", 1.0), *rows("plgmi", 1.0, seed=1)]
    assert group(*both).value() == bounded([1.0, 1.0])
    loss = group(*(row | {"inversion_loss": 2.0} for row in both)).value("inversion_loss")
    assert loss == Estimate(2.0, 2)  # without bounds equal values say nothing of others


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


def test_changes_are_paired_by_training() -> None:
    def of(shift: float, **fields: Any) -> Group:
        made = [*rows("plgmi", 0.5, 0.6), *rows("plgmi", 0.7, seed=1), *rows("plgmi", 0.9, seed=2)]
        jitter = {0: 0.0, 1: 0.01, 2: -0.01}
        for row in made:
            row["attack_accuracy"] += shift and shift + jitter[row["seed"]]
        return group(*(row | fields for row in made))

    change = of(0.1, latent_search="gradient").change(of(0.0))
    assert change.mean == pytest.approx(0.1) and change.n == 3 and 0 < change.low < 0.1 < change.high < 0.2
    single = group(*rows("plgmi", 0.6, latent_search="gradient"))
    assert single.change(group(*rows("plgmi", 0.5))) == Estimate(pytest.approx(0.1))
    assert single.change(group(*rows("plgmi", 0.5, seed=7))) == Estimate(pytest.approx(0.1), 0)  # nothing is shared
