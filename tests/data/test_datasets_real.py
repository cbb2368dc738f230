"""The loaders on the official files: sizes and encoded widths of TabLeak Table 8, fractions of ProVFL Table IV."""

from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from lightleak.data.datasets import load_dataset
from lightleak.data.table import Table

PROVFL_ADULT = {"missing": "category", "final_weight": False, "duplicates": "drop"}


@cache
def load(data_dir: Path, name: str, *options: tuple[str, object]) -> Table:
    return load_dataset(name, data_dir, **dict(options))


def facts(table: Table) -> tuple[int, int, int, int, int]:
    schema = table.schema
    width = sum(column.width for column in schema.columns)
    return len(table.train) + len(table.test), len(schema.columns), len(schema.categorical), width, schema.n_classes


def fraction(table: Table, column: str, value: str) -> float:
    return float((pd.concat([table.train[column], table.test[column]]) == value).mean())


@pytest.mark.parametrize(
    ("name", "options", "rows", "features", "discrete", "width", "classes"),
    [
        # TabLeak Table 8 (p. 17)
        ("adult", {}, 45_222, 14, 8, 105, 2),
        ("german", {}, 1_000, 20, 13, 63, 2),
        # TabLeak has 96,584 rows: this file is cut at 65,536 lines
        ("lawschool", {}, 56_117, 7, 5, 39, 2),
        # ProVFL Table III; its Adult has width 111, four empty categories more (see the card)
        ("adult", PROVFL_ADULT, 44_355, 13, 8, 107, 2),
        ("bank", {}, 45_211, 16, 9, 51, 2),
        # ProVFL has 299,285 rows: this is the test part alone
        ("census", {"part": "test"}, 99_762, 41, 33, 511, 2),
        ("census", {"part": "test", "instance_weight": False}, 99_762, 40, 33, 510, 2),
        ("diabetes130", {}, 101_766, 44, 36, 242, 3),
        ("diabetes130", {"label": "diagnosis"}, 101_745, 43, 35, 232, 9),
    ],
)
def test_sizes_and_encoded_widths(data_dir, name, options, rows, features, discrete, width, classes) -> None:
    table = load(data_dir, name, *options.items())
    assert facts(table) == (rows, features, discrete, width, classes)


def test_adult_keeps_the_official_split(data_dir) -> None:
    table = load(data_dir, "adult")
    assert (len(table.train), len(table.test)) == (30_162, 15_060)  # adult.names
    assert fraction(table, "salary", ">50K") == pytest.approx(0.2478, abs=5e-5)  # adult.names, without unknowns
    assert load(data_dir, "adult", ("missing", "category")).train.shape == (32_561, 15)


def test_german_has_the_class_counts_and_the_empty_categories_of_the_codebook(data_dir) -> None:
    words, codes = load(data_dir, "german"), load(data_dir, "german", ("codes", True))
    assert fraction(words, "credit", "bad") == 0.3
    assert "A47" in codes.schema.column("purpose").categories
    assert "A95" in codes.schema.column("personal_status_and_sex").categories
    assert fraction(codes, "purpose", "A47") == fraction(words, "purpose", "vacation") == 0
    for coded, worded in zip(codes.schema.columns, words.schema.columns, strict=True):
        pairs = zip(coded.categories, worded.categories, strict=True)
        assert all(fraction(codes, coded.name, a) == fraction(words, coded.name, b) for a, b in pairs)


@pytest.mark.parametrize(
    ("name", "options", "column", "value", "paper", "tolerance"),
    [
        # ProVFL Table IV: fractions are given to four digits.
        ("adult", PROVFL_ADULT, "sex", "Male", 0.6621, 5e-5),
        ("adult", PROVFL_ADULT, "race", "White", 0.8427, 5e-5),
        ("adult", PROVFL_ADULT, "workclass", "Private", 0.6752, 5e-5),
        ("bank", {}, "month", "may", 0.3045, 5e-5),
        ("bank", {}, "marital", "married", 0.6019, 5e-5),
        ("bank", {}, "contact", "telephone", 0.0643, 5e-5),
        # A third of the rows (the test part) differs from the whole by sampling: 3 standard errors of a third.
        ("census", {"part": "test"}, "sex", "Female", 0.5205, 0.0048),
        ("census", {"part": "test"}, "race", "Black", 0.1020, 0.0029),
        ("census", {"part": "test"}, "education", "Bachelors degree(BA AB BS)", 0.0994, 0.0029),
    ],
)
def test_property_fractions_of_provfl(data_dir, name, options, column, value, paper, tolerance) -> None:
    assert fraction(load(data_dir, name, *options.items()), column, value) == pytest.approx(paper, abs=tolerance)


def test_the_cut_law_school_file_deviates_as_its_card_says(data_dir) -> None:
    table = load(data_dir, "lawschool")
    assert fraction(table, "race", "Black") == pytest.approx(0.0972, abs=5e-5)
    assert fraction(table, "resident", "0") == pytest.approx(0.6761, abs=5e-5)
    assert fraction(table, "gender", "0") == pytest.approx(0.4393, abs=5e-5)
    assert set(table.schema.column("year").categories) == {"2005", "2006", "2007", "2008", "200x"}
    assert pd.concat([table.train, table.test])["college"].nunique() == 13


def test_no_patient_stands_on_both_sides(data_dir) -> None:
    table = load(data_dir, "diabetes130", ("groups", True))
    train, test = set(table.train["patient_nbr"]), set(table.test["patient_nbr"])
    assert not train & test
    assert len(train | test) == 71_518  # Strack et al. 2014
    assert len(table.test) / 101_766 == pytest.approx(0.2, abs=0.001)
    assert "patient_nbr" not in table.schema.names
    by_row = load(data_dir, "diabetes130", ("groups", True), ("split", "row"))
    assert set(by_row.train["patient_nbr"]) & set(by_row.test["patient_nbr"])


def test_diabetes_cohort_codes_and_groups(data_dir) -> None:
    first = load(data_dir, "diabetes130", ("cohort", "strack"), ("groups", True))
    patients = pd.concat([first.train, first.test])["patient_nbr"]
    assert patients.is_unique
    assert len(patients) == 69_973  # the paper has 69,984 and does not list the dispositions it leaves out
    codes = load(data_dir, "diabetes130", ("diagnoses", "codes"))
    assert codes.schema.column("diag_1").width == 717  # 716 codes and 'missing'
    assert "250.02" in codes.schema.column("diag_1").categories
    grouped = load(data_dir, "diabetes130")
    assert fraction(grouped, "diag_1", "diabetes") == pytest.approx(
        sum(fraction(codes, "diag_1", c) for c in codes.schema.column("diag_1").categories if c.startswith("250"))
    )


@pytest.mark.parametrize("name", ["adult", "german", "lawschool", "bank"])
def test_frames_are_in_canonical_form_and_inside_the_bounds(data_dir, name) -> None:
    table = load(data_dir, name)
    for part in (table.train, table.test):
        pd.testing.assert_frame_equal(part, table.schema.validate(part))
        for column in table.schema.numerical:
            assert part[column.name].between(column.lower, column.upper).all()
