"""A newcomer's table: every column that cannot be a feature is named at once, with the setting that mends it."""

import datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lightleak.core.errors import DataError
from lightleak.core.yaml_text import read_yaml
from lightleak.data.codes import column_notices
from lightleak.data.column_problems import holds_dates, numbers_its_rows
from lightleak.data.schema import Column, TableSchema
from lightleak.data.user_table import load_table


def hospital(n: int = 200) -> pd.DataFrame:
    """Twelve columns as a hospital exports them."""
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 700, n), unit="D")
    pressure = rng.normal(120, 15, n).round()
    pressure[rng.random(n) < 0.1] = np.nan
    return pd.DataFrame(
        {
            "age": rng.integers(18, 95, n),
            "sex": rng.choice(["f", "m"], n),
            "admitted": days,
            "discharged": (days + pd.Timedelta(days=3)).strftime("%d/%m/%Y"),
            "ward": rng.choice(["A", "B", "C", None], n),
            "weight": rng.normal(75, 12, n).round(1),
            "pressure": pressure,
            "smoker": rng.choice([True, False], n),
            "note": [f"patient {i} reports {word}" for i, word in enumerate(rng.choice(["pain", "none"], n))],
            "insurance": rng.choice(["public", "private"], n),
            "visits": rng.integers(0, 9, n),
            "ill": rng.choice(["no", "yes"], n),
        }
    )


def test_all_problems_come_at_once_with_one_line_that_mends_them() -> None:
    with pytest.raises(DataError) as refused:
        load_table(hospital(), "ill")
    said = str(refused.value)
    for column, what in (
        ("admitted", "holds dates"),
        ("discharged", "holds dates"),
        ("note", "has 200 distinct strings"),
        ("ward", "missing values"),
        ("pressure", "missing values"),
    ):
        (line,) = [line for line in said.splitlines() if f"column '{column}'" in line]
        assert what in line
    assert "column 'age'" not in said
    assert said.splitlines()[-1] == (
        "In a config: data.drop: [admitted, discharged, note] and data.missing: impute; "
        "in Python: drop=['admitted', 'discharged', 'note'], missing='impute'"
    )


@pytest.mark.parametrize("missing", ["impute", "category"])
def test_what_the_message_says_mends_it(missing: str) -> None:
    frame = hospital()
    table = load_table(frame, "ill", drop=["admitted", "discharged", "note"], missing=missing)
    assert table.schema.names == ("age", "sex", "ward", "weight", "pressure", "smoker", "insurance", "visits")
    both = pd.concat([table.train, table.test])
    assert not both.isna().any().any() and len(both) == len(frame)
    gaps = int(frame["ward"].isna().sum())
    assert (both["ward"] == "missing").sum() == (gaps if missing == "category" else 0)
    assert both["pressure"].median() == frame["pressure"].median()


def test_a_schema_decides_about_every_column_itself() -> None:
    schema = load_table(hospital()[["age", "sex", "ill"]], "ill").schema
    assert load_table(hospital(), "ill", schema).schema.names == ("age", "sex")
    with pytest.raises(DataError, match=r"in a schema write missing: \.\.\. for each column"):
        load_table(hospital(), "ill", schema, missing="impute")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"drop": ["nosuch"]}, r"drop names columns that are not in 'table': \['nosuch'\]; columns: \['age'"),
        ({"drop": ["ill"]}, "drop must leave the label"),
        ({"drop": "note"}, "drop must be a list of columns, got the string 'note'"),
        ({"missing": "median"}, "missing must be one of refuse, category, impute, got 'median'"),
    ],
)
def test_wrong_settings_are_named(change: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_table(hospital(), "ill", **change)


def test_a_column_without_values_and_a_label_with_gaps_are_named() -> None:
    with pytest.raises(DataError, match="column 'empty' has no value at all: drop it"):
        load_table(hospital()[["age", "ill"]].assign(empty=None), "ill")
    frame = hospital()[["age", "ill"]]
    frame.loc[:2, "ill"] = None
    with pytest.raises(DataError, match="label 'ill' has 3 missing values; leave out the rows"):
        load_table(frame, "ill", missing="impute")


@pytest.mark.parametrize(
    ("cells", "dates"),
    [
        (pd.date_range("2024-01-01", periods=3), True),
        (pd.period_range("2024-01", periods=3, freq="M"), True),
        ([datetime.date(2024, 1, 1), None], True),
        (["2024-01-01 10:30", "2024-01-02T11:00:00Z"], True),
        (["31.12.2023", "1.1.24"], True),
        (["3 Jan 2024", "12-FEB-2024", "March 5, 2024 10:30"], True),
        (["may 5", "June"], False),
        (["2024-01-01"] * 19 + ["unknown"], True),
        (["2024-01-01", "unknown"], False),
        (["10-20", "20-30"], False),
        (["1-2/3", "a"], False),
        ([20240101, 20240102], False),
        ([True, False], False),
        ([None, None], False),
        ([], False),
    ],
)
def test_dates_are_told_from_other_text(cells: list, dates: bool) -> None:
    assert holds_dates(pd.Series(cells)) is dates


def test_a_running_number_is_refused_with_dates_and_free_text_in_one_message() -> None:
    frame = hospital().assign(patient_id=np.random.default_rng(1).permutation(np.arange(70_001, 70_201)))
    with pytest.raises(DataError) as refused:
        load_table(frame, "ill", missing="impute")
    said = str(refused.value)
    assert "column 'patient_id' looks like an identifier (200 different whole numbers" in said
    assert ": drop it (data.drop), or declare it in a schema" in said
    assert said.endswith("drop=['admitted', 'discharged', 'note', 'patient_id']")


def test_a_declared_running_number_is_a_feature() -> None:
    frame = hospital()[["age", "ill"]].assign(patient_id=range(200))
    schema = TableSchema(
        (Column.integer("age"), Column.integer("patient_id")), Column.categorical("ill", ["no", "yes"])
    )
    assert load_table(frame, "ill", schema).schema.names == ("age", "patient_id")
    assert load_table(frame, "ill", group="patient_id").schema.names == ("age",)


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (range(5, 55), True),
        (range(5, 54), False),  # too few rows to tell
        ([*range(49), 97], True),
        ([*range(49), 100], False),  # 100 is twice the rows
        ([*range(50), None], True),  # which pandas holds as 0.0, 1.0, ...
        ([*range(50), 7], False),
        (np.arange(60) + 0.5, False),
        ([True, False] * 30, False),
        ([str(i) for i in range(60)], False),
    ],
)
def test_a_running_number_is_told_from_a_measurement(cells: list, found: bool) -> None:
    assert numbers_its_rows(pd.Series(cells)) is found


def test_decimal_commas_are_named_as_what_they_are() -> None:
    frame = hospital()[["age", "ill"]].assign(dose=["3,5", "-4", " 12,25 ", None] * 50)
    with pytest.raises(DataError) as refused:
        load_table(frame, "ill")
    said = str(refused.value)
    assert "column 'dose' holds numbers with decimal commas ('3,5'): write them with points" in said
    assert "data.missing" not in said and "identifier" not in said


def test_suggested_lines_are_yaml_whatever_a_column_is_called() -> None:
    names = ["Unnamed: 0", "no", "größe", "a, b", "#", "x" * 200]
    frame = pd.DataFrame({name: range(200) for name in names} | {"age": [30, 40] * 100, "ill": ["a", "b"] * 100})
    with pytest.raises(DataError) as refused:
        load_table(frame, "ill")
    suggested = str(refused.value).splitlines()[-1].removeprefix("In a config: ").partition("; in Python")[0]
    assert read_yaml(suggested) == {"data.drop": names}
    (notice,) = column_notices(names)
    assert read_yaml(notice.partition("write ")[2]) == {"data.categorical": names}


@pytest.mark.parametrize("kind", ["file", "frame"])
def test_blank_cells_among_numbers_are_missing(tmp_path: Path, kind: str) -> None:
    ages = [str(20 + i % 50) for i in range(200)]
    ages[7], ages[9] = " ", "  "
    frame = pd.DataFrame({"age": ages, "sex": ["f", " "] * 100, "ill": ["no", "yes"] * 100})
    source: pd.DataFrame | Path = frame
    if kind == "file":
        source = tmp_path / "t.csv"
        frame.to_csv(source, index=False)
    with pytest.raises(DataError, match=r"'age' has 2 missing values(.|\n)*'sex' is constant"):
        load_table(source, "ill")
    table = load_table(source, "ill", drop=["sex"], missing="impute")
    assert table.schema.column("age") == Column.integer("age", 20, 69, missing="impute")
    schema = TableSchema(
        (Column.integer("age", missing="impute"), Column.categorical("sex", ["f", "m"], missing="category")),
        Column.categorical("ill", ["no", "yes"]),
    )
    assert set(load_table(source, "ill", schema).train["sex"]) == {"f", "missing"}


def test_words_among_numbers_are_refused_in_the_report_of_all_problems() -> None:
    frame = hospital()[["age", "note", "ill"]].assign(age=lambda rows: rows["age"].astype(object))
    frame.loc[3, "age"], frame.loc[[5, 8], "age"] = "unknown", "?"
    with pytest.raises(DataError) as refused:
        load_table(frame, "ill")
    said = str(refused.value)
    assert "- column 'age' holds numbers, but for: '?' (2 cells), 'unknown' (1 cell): empty these cells" in said
    assert "write data.categorical: [age]" in said and "column 'note' has 200 distinct strings" in said
    assert load_table(frame, "ill", drop=["note"], categorical=["age"]).schema.column("age").width > 60
    as_categories = frame.assign(age=frame["age"].astype(str).astype("category"))
    assert load_table(as_categories, "ill", drop=["note"]).schema.column("age").width > 60


def test_text_of_which_a_tenth_is_no_number_holds_categories() -> None:
    frame = hospital()[["age", "ill"]].assign(children=["0", "1", "2", "3 or more"] * 50)
    assert load_table(frame, "ill").schema.column("children").width == 4


def test_decimal_numbers_of_parquet_are_numbers(tmp_path: Path) -> None:
    prices = [Decimal(f"{i % 60}.50") if i != 4 else None for i in range(200)]
    hospital()[["age", "ill"]].assign(price=prices).to_parquet(tmp_path / "t.parquet")
    column = load_table(tmp_path / "t.parquet", "ill", missing="impute").schema.column("price")
    assert column == Column.continuous("price", 0.5, 59.5, missing="impute")
