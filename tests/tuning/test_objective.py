"""Objectives are means over exactly the rows they name."""

from pathlib import Path
from typing import Any

import pytest

from lightleak.core.errors import UsageError
from lightleak.tuning.objective import ObjectiveConfig


def row(attack: str, index: int, accuracy: float | None, **more: Any) -> dict[str, Any]:
    facts = {"source": "initial", "epoch": 0, "batch_size": 4, "batch_index": index, "seed": 0}
    return {"unit": f"{attack}-{index}", "attack": attack, "cell_accuracy": accuracy, **facts, **more}


ROWS = [
    row("tableak", 0, 0.8),
    row("tableak", 1, 0.6),
    row("tableak", 2, None),
    row("inverting_gradients", 0, 0.1),
    row("random", 0, 0.5),
    row("random", 1, 0.4),
]


def test_a_mean_is_over_the_rows_that_match_and_hold_the_number() -> None:
    assert ObjectiveConfig("cell_accuracy", where={"attack": "tableak"}).of_rows(ROWS) == pytest.approx(0.7)
    assert ObjectiveConfig("cell_accuracy").of_rows(ROWS) == pytest.approx((0.8 + 0.6 + 0.1 + 0.5 + 0.4) / 5)
    assert ObjectiveConfig("cell_accuracy", where={"attack": "nobody"}).of_rows(ROWS) is None
    assert ObjectiveConfig("rmse").of_rows(ROWS) is None


def test_leakage_is_paired_with_guessing_on_the_same_update() -> None:
    leakage = ObjectiveConfig("leakage", "minimize", {"attack": "tableak"})
    assert leakage.by_observation(ROWS) == pytest.approx({"tableak-0": 0.3, "tableak-1": 0.2})
    assert leakage.of_rows(reversed(ROWS)) == pytest.approx(0.25)
    assert leakage.of_rows([row("tableak", 0, 0.3), row("random", 0, 0.5)]) == 0.0, "one who guesses better guesses"
    assert leakage.of_rows(ROWS[:3]) is None, "without the baseline there is no leakage"
    assert leakage.of_rows([row("tableak", 0, 0.8), row("random", 0, 0.5, seed=1)]) is None, "another update's guess"


@pytest.mark.parametrize(
    ("metric", "direction"),
    [
        ("rmse", "minimize"),
        ("val/loss", "minimize"),
        ("absolute_error", "minimize"),
        ("seconds", "minimize"),
        ("nearest_distance", "minimize"),
        ("cell_accuracy", "maximize"),
        ("leakage", "maximize"),
        ("val/auroc", "maximize"),
    ],
)
def test_errors_and_losses_are_minimized_unless_said_otherwise(metric: str, direction: str) -> None:
    assert ObjectiveConfig(metric).direction == direction
    assert ObjectiveConfig(metric, "maximize").direction == "maximize"


def test_all_classes_of_a_released_model_count_together_unless_one_is_named() -> None:
    rows = [row("plgmi", 0, value) | {"unit": name, "class": name} for name, value in (("all", 0.5), ("d0", 0.9))]
    assert ObjectiveConfig("cell_accuracy").by_observation(rows) == {"all": 0.5}
    assert ObjectiveConfig("cell_accuracy", where={"class": "d0"}).by_observation(rows) == {"d0": 0.9}


@pytest.mark.parametrize(
    ("metric", "where", "message"),
    [
        ("absolute_error", {}, r"of which attack\? add where: \{attack: NAME\}, one of aia_adjusted, provfl_b"),
        ("absolute_error", {"attack": "provfl_b"}, r"of which attack\? add where: \{label: NAME\}, one of deep, flat"),
        ("absolute_error", {"attack": "deep"}, "where.attack must be one of aia_adjusted, provfl_b"),
        ("absolute_error", {"label": "depe"}, "where.label must be one of aia_adjusted, deep, flat"),
        ("leakage", {"label": "deep"}, "measured against 'random'"),
    ],
)
def test_one_attack_is_named_where_there_are_several(metric: str, where: dict[str, Any], message: str) -> None:
    attacks = {"aia_adjusted": "aia_adjusted", "deep": "provfl_b", "flat": "provfl_b"}
    with pytest.raises(UsageError, match=message):
        ObjectiveConfig(metric, where=where).require(attacks, is_trained=False)
    ObjectiveConfig("absolute_error", where={"label": "deep"}).require(attacks, is_trained=False)
    ObjectiveConfig("leakage").require({"tableak": "tableak", "random": "random"}, is_trained=False)


def test_test_rows_choose_no_settings() -> None:
    with pytest.raises(UsageError, match=r"test/accuracy.*val/accuracy"):
        ObjectiveConfig("test/accuracy")


def test_a_training_is_judged_by_its_last_epoch(tmp_path: Path) -> None:
    assert ObjectiveConfig("val/accuracy").of_training(tmp_path) is None
    (tmp_path / "metrics.csv").write_text("epoch,val/accuracy,train/loss\n0,0.5,\n0,,1.0\n1,0.75,\n1,,0.9\n")
    assert ObjectiveConfig("val/accuracy").of_training(tmp_path) == 0.75
    assert ObjectiveConfig("val/auroc").of_training(tmp_path) is None
