"""Whole numbers that may be codes are named with the setting that makes them categorical; counts are not."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lightleak.core.errors import DataError
from lightleak.data.codes import column_notices, possible_codes
from lightleak.data.datasets import load_dataset
from lightleak.data.schema import Column, ColumnKind, TableSchema
from lightleak.data.user_table import load_table


def credit() -> pd.DataFrame:
    """Columns like those of UCI's table of credit card clients, whose categories are numbers."""
    rng, n = np.random.default_rng(0), 400
    return pd.DataFrame(
        {
            "SEX": rng.choice([1, 2], n, p=[0.4, 0.6]),
            "EDUCATION": rng.choice(7, n, p=[0.02, 0.34, 0.44, 0.15, 0.01, 0.03, 0.01]),
            "MARRIAGE": rng.choice(4, n, p=[0.02, 0.45, 0.5, 0.03]),
            "ANSWER": rng.choice([1, 2, 9], n),
            "AGE": rng.integers(21, 40, n),
            "dependents": rng.choice(4, n),
            "nKids": rng.choice([0, 1, 2], n),
            "claims": np.repeat([0, 1, 2, 3], [200, 100, 80, 20]),
            "severity": np.repeat(range(3, 13), [5, 15, 30, 60, 90, 80, 60, 30, 20, 10]),
            "dose": rng.choice([0, 50, 100], n),
            "bill": rng.integers(0, 100_000, n),
            "default": rng.choice(["no", "yes"], n),
        }
    )


def named(values: list[int] | np.ndarray, name: str = "x") -> bool:
    """Whether a single column of these values is named."""
    frame = pd.DataFrame({name: values, "y": ["0", "1"] * (len(values) // 2)})
    return bool(possible_codes(frame, TableSchema.infer(frame, "y")))


def test_codes_are_named_and_counts_and_measurements_are_not() -> None:
    assert load_table(credit(), "default").possible_codes == ("SEX", "EDUCATION", "MARRIAGE", "ANSWER")


def test_columns_of_the_survey_that_are_coded() -> None:
    """The ratings of the bundled survey as the published file has them, beside its years and children."""
    table = load_dataset("fair")
    frame = pd.concat([table.train, table.test])
    coded = ("rate_marriage", "religious", "occupation", "occupation_husb")
    for column in coded:
        frame[column] = frame[column].map(list(table.schema.column(column).categories).index) + 1
    assert set(coded) <= set(load_table(frame, "affair").possible_codes)
    assert not {"age", "yrs_married", "children"} & set(load_table(frame, "affair").possible_codes)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2] * 10, True),
        ([1, 2] * 9, False),  # fewer than 10 rows per value
        ([3, 1, 2] * 20, True),
        ([1, 20] * 20, False),  # too far apart for codes
        (list(range(31)) * 20, False),  # more values than a codebook lists
        ([0] * 30 + [1] * 20 + [2] * 10, False),  # each value rarer than the one before: a count
        ([1] * 30 + [2] * 20 + [3] * 10, False),
        ([5] * 30 + [6] * 20 + [7] * 10, True),  # does not start at 0 or 1
        ([0] * 30 + [1] * 20, True),  # of two values a falling frequency says nothing
    ],
)
def test_rule(values: list[int], expected: bool) -> None:
    assert named(values) is expected


def test_missing_cells_and_words_in_names() -> None:
    frame = pd.DataFrame({"sex": [1.0, 2.0, None] * 20, "y": ["0", "1"] * 30})
    assert load_table(frame, "y", missing="impute").possible_codes == ("sex",)
    assert [named([1, 2] * 20, name) for name in ("numVisits", "n_people", "AGE", "income", "manager")] == [
        False,
        False,
        False,
        True,
        True,
    ]


def test_a_given_schema_is_not_questioned() -> None:
    schema = TableSchema((Column.integer("SEX", 1, 2),), Column.categorical("default", ["no", "yes"]))
    assert load_table(credit(), "default", schema).possible_codes == ()


def test_the_setting_makes_them_categorical(tmp_path: Path) -> None:
    credit().to_csv(tmp_path / "t.csv", index=False)
    table = load_table(tmp_path / "t.csv", "default", categorical=["SEX", "EDUCATION", "MARRIAGE", "ANSWER"])
    assert table.possible_codes == ()
    assert table.schema.column("EDUCATION") == Column.categorical("EDUCATION", [str(i) for i in range(7)])
    assert set(table.train["SEX"]) == {"1", "2"}
    assert table.schema.column("AGE").kind is ColumnKind.INTEGER


def test_codes_with_gaps_are_categories_too() -> None:
    frame = pd.DataFrame({"sex": [1.0, 2.0, None] * 20, "y": ["0", "1"] * 30})
    table = load_table(frame, "y", missing="category", categorical=["sex"])
    assert table.schema.column("sex").categories == ("1", "2", "missing")


def test_notices_hold_the_line_of_a_config() -> None:
    """Of numbers of people too, whether they repeat or are drawn at random; not of a measurement or of few codes."""
    rows = pd.Series(range(120))
    frame = pd.DataFrame({"sex": 1 + rows % 2, "patient_id": rows // 2 * 7919 % 99991, "record": rows * 7919 % 99991})
    frame["cost"], frame["weight"] = rows // 2 * 17, rows * 1.5
    frame["admission_type_id"], frame["y"] = rows % 9 * 100, rows % 2
    table = load_table(frame, "y")
    assert table.possible_identifiers == ("patient_id", "record")
    codes, identifiers = column_notices(table.possible_codes, table.possible_identifiers)
    assert "data.categorical: [sex]" in codes
    assert "data.drop: [patient_id, record]" in identifiers
    assert load_table(frame, "y", table.schema).possible_identifiers == ()


@pytest.mark.parametrize("wrong", [["absent"], ["default"], "SEX"])
def test_wrong_columns(wrong: list[str] | str) -> None:
    with pytest.raises(DataError, match="categorical"):
        load_table(credit(), "default", categorical=wrong)


def test_a_schema_says_it_itself() -> None:
    schema = TableSchema((Column.integer("SEX", 1, 2),), Column.categorical("default", ["no", "yes"]))
    with pytest.raises(DataError, match="kind: categorical"):
        load_table(credit(), "default", schema, categorical=["SEX"])
