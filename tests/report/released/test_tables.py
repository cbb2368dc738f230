"""Attacks beside baselines, and latent searches beside each other."""

from typing import Any

import pytest

from lightleak.report.released.comparison import compare
from lightleak.report.released.result import parse_result
from lightleak.report.released.tables import attack_panels, search_tables


def rows(attack: str, *accuracies: float, **fields: Any) -> list[dict[str, Any]]:
    """One training for each accuracy, evaluated once."""
    common = {"attack": attack, "evaluation_index": 0, "real_rows_accuracy": 0.4, "setting": "2"}
    return [common | {"seed": k, "attack_accuracy": value} | fields for k, value in enumerate(accuracies)]


def scenarios(*found: dict[str, Any]):
    return compare([parse_result(row, "run", "row") for row in found])


def test_a_panel_holds_what_one_setting_has() -> None:
    panels = attack_panels(
        scenarios(
            *rows("plgmi", 0.8, 0.9, latent_search="random"), *rows("plgmi", 0.7, 0.8, latent_search="gradient"),
            *rows("public_random", 0.1, 0.2), *rows("plgmi", 0.5, setting="3"),
        )
    )  # fmt: skip
    assert [panel.title for panel in panels] == ["setting 2", "setting 3"]
    first, second = panels
    assert [row.title for row in first.rows] == [
        "PLG-MI · random\u00a0z",
        "PLG-MI · gradient search",
        "Public rows at random",
    ]
    assert [row.gain is None for row in first.rows] == [False, False, True]
    assert "seed 1, evaluation 0: 90.0%" in first.drawing and "real rows 40.0%" in first.drawing
    assert [row.title for row in second.rows] == ["PLG-MI"] and "evaluation" not in second.drawing
    assert second.chance is None and "chance" not in second.drawing


def searched(name: str, shift: float, loss: float, **fields: Any) -> list[dict[str, Any]]:
    """Three trainings, whose changes are alike and not equal."""
    values = [value + change * shift for value, change in zip((0.60, 0.64, 0.70), (0.98, 1.0, 1.02), strict=True)]
    return rows("plgmi", *values, latent_search=name, inversion_loss=loss, **fields)


@pytest.mark.parametrize(
    ("shift", "loss", "words"),
    [
        (0.05, 6.84, "Gradient search lowered the inversion loss (13.05 to 6.84) and raised attack accuracy by 5.0 p"),
        (-0.05, 6.84, "Gradient search lowered the inversion loss (13.05 to 6.84) and lowered attack accuracy by 5.0"),
        (0.0, 13.051, "Gradient search left the inversion loss at 13.05 and did not measurably change attack accuracy"),
        (0.0, 14.0, "did not lower the inversion loss (13.05 to 14.00) and did not measurably change attack accuracy"),
    ],
)  # fmt: skip
def test_searches_are_compared_training_by_training(shift: float, loss: float, words: str) -> None:
    (table,) = search_tables(scenarios(*searched("random", 0.0, 13.05), *searched("gradient", shift, loss)))
    assert words in table.line
    assert table.searches == ("gradient search", "random\u00a0z")
    assert dict(table.rows)["Inversion loss of the rows, nats"] == (f"{loss:.2f} ± 0.00", "13.05 ± 0.00")
    assert "Inversion loss at z*, nats" not in dict(table.rows)  # nor this
    assert dict(table.rows)["Attack accuracy, %"][1] == "64.7 ± 5.0"
    assert "Column shapes, %" not in dict(table.rows)  # not measured


def test_changes_are_measured_from_where_the_searches_start() -> None:
    found = [*searched("random", 0.0, 13.0), *searched("softmax", 0.1, 10.0), *searched("tpe", 0.15, 9.0, samples=40)]
    (table,) = search_tables(scenarios(*found))
    assert table.searches == ("Bayesian search (TPE)", "random\u00a0z", "random\u00a0z, likeliest categories")
    assert table.line == (
        "Bayesian search (TPE) lowered the inversion loss (10.00 to 9.00) and raised attack accuracy by 5.0 points."
    )
    assert dict(table.rows)["Rows of each"] == ("40", "–", "–")


def test_there_is_a_table_for_each_attack_with_several_searches() -> None:
    assert search_tables(scenarios(*searched("random", 0, 1), *rows("public_random", 0.1))) == ()
    both = [
        *searched("random", 0, 1, bridge="exact"), *searched("gradient", 0, 1, bridge="exact"),
        *searched("random", 0, 1, bridge="shared"), *searched("gradient", 0, 1, bridge="shared"),
        *searched("odd", 0, 1, setting="3"), *searched("gradient", 0, 1, setting="3"),
    ]  # fmt: skip
    tables = search_tables(scenarios(*both))
    assert [table.title for table in tables] == [
        "PLG-MI · exact bridge · setting 2", "PLG-MI · shared transform · setting 2", "PLG-MI · setting 3",
    ]  # fmt: skip
    assert tables[-1].searches == ("gradient search", "odd") and tables[-1].line == ""
