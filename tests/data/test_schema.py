"""Schemas: what is written comes back, what is inferred accepts its table, and bad input is refused by name."""

import math
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightleak.core.errors import DataError
from lightleak.data.cells import category_strings, in_order
from lightleak.data.column import MISSING_CATEGORY, Column, ColumnKind
from lightleak.data.schema import TableSchema

WORDS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=6).map(str.strip).filter(bool)
BOUNDS = st.integers(-(10**9), 10**9) | st.none()


@st.composite
def columns(draw: st.DrawFn, name: str) -> Column:
    """Any valid column."""
    kind = draw(st.sampled_from(list(ColumnKind)))
    if kind is ColumnKind.CATEGORICAL:
        missing = draw(st.sampled_from(["refuse", "category", "impute"]))
        return Column.categorical(name, draw(st.lists(WORDS, min_size=2, max_size=5, unique=True)), missing)
    lower, width = draw(BOUNDS), draw(st.integers(1, 10**6))
    upper = draw(BOUNDS) if lower is None else lower + width
    return Column(name, kind, (), lower, upper, draw(st.sampled_from(["refuse", "impute"])))


@st.composite
def schemas(draw: st.DrawFn) -> TableSchema:
    """Any valid schema."""
    names = draw(st.lists(WORDS, min_size=2, max_size=5, unique=True))
    label = Column.categorical(names[0], draw(st.lists(WORDS, min_size=2, max_size=4, unique=True)))
    sensitive = tuple(draw(st.lists(st.sampled_from(names), unique=True)))
    return TableSchema(tuple(draw(columns(name)) for name in names[1:]), label, sensitive)


@settings(max_examples=60)
@given(schemas())
def test_a_schema_comes_back_from_a_dict_and_from_yaml(
    tmp_path_factory: pytest.TempPathFactory, schema: TableSchema
) -> None:
    assert TableSchema.from_dict(schema.to_dict()) == schema
    path = tmp_path_factory.mktemp("schema") / "schema.yaml"
    schema.to_yaml(path)
    assert TableSchema.from_yaml(path) == schema


def test_words_in_a_yaml_schema_stay_words(tmp_path: Path) -> None:
    path = tmp_path / "schema.yaml"
    path.write_text(
        "columns:\n"
        "- {name: smoker, kind: categorical, categories: [no, yes]}\n"
        "- {name: area, kind: categorical, categories: [007, 1e3, null]}\n"
        "- {name: age, kind: integer, lower: 0, upper: 1.2e2}\n"
        "label: {name: ill, kind: categorical, categories: [0, 1]}\n"
    )
    schema = TableSchema.from_yaml(path)
    assert schema.column("smoker").categories == ("no", "yes")
    assert schema.column("area").categories == ("007", "1e3", "null")
    assert (schema.column("age").lower, schema.column("age").upper) == (0.0, 120.0)


def test_parts_of_a_schema() -> None:
    schema = small_schema()
    assert schema.names == ("age", "weight", "sex")
    assert [column.name for column in schema.numerical] == ["age", "weight"]
    assert [column.name for column in schema.categorical] == ["sex"]
    assert (schema.n_classes, schema.column("sex").width, schema.column("age").width) == (2, 2, 1)
    assert ColumnKind.INTEGER.is_numerical and not ColumnKind.CATEGORICAL.is_numerical


def small_schema(**missing: str) -> TableSchema:
    """Age, weight, sex and the label ill."""
    return TableSchema(
        (
            Column.integer("age", 0, 120, missing=missing.get("age", "refuse")),
            Column.continuous("weight", missing=missing.get("weight", "refuse")),
            Column.categorical("sex", ["F", "M"], missing=missing.get("sex", "refuse")),
        ),
        Column.categorical("ill", ["no", "yes"]),
    )


def small_frame(**changes: object) -> pd.DataFrame:
    """Four rows that fit `small_schema`."""
    cells = {
        "age": [30, 41, 41, 9],
        "weight": [70.5, 60.25, 80.0, 30.125],
        "sex": list("FMMF"),
        "ill": ["no", "yes"] * 2,
    }
    return pd.DataFrame(cells | changes)


def test_validation_gives_canonical_types_and_keeps_only_the_schema() -> None:
    given_frame = pd.DataFrame(
        {
            "extra": [1, 2],
            "ill": pd.Categorical([" yes", "no"]),
            "sex": np.array(["M ", "F"], dtype=object),
            "weight": ["70.5", "3"],
            "age": [30.0, 41.0],
        },
        index=[7, 7],
    )
    frame = small_schema().validate(given_frame)
    assert list(frame.columns) == ["age", "weight", "sex", "ill"]
    assert frame["age"].dtype == "int64" and frame["weight"].dtype == "float64"
    assert frame.to_numpy().tolist() == [[30, 70.5, "M", "yes"], [41, 3.0, "F", "no"]]
    assert frame.index.tolist() == [7, 7]  # rows drawn with replacement
    assert (
        list(small_schema().validate(given_frame.drop(columns="ill"), require_label=False).columns) == list(frame)[:3]
    )


@pytest.mark.parametrize(
    ("cells", "texts"),
    [
        ([1.0, 2.0, np.nan], ["1", "2", None]),
        (np.array([1.0, 1.5], dtype="float32"), ["1", "1.5"]),
        ([1, 2], ["1", "2"]),
        ([True, False], ["True", "False"]),
        ([True, 1, "1 ", 1.0, None], ["True", "1", "1", "1", None]),
        (pd.array([1, None], dtype="Int64"), ["1", None]),
        (pd.array([True, None], dtype="boolean"), ["True", None]),
        (pd.Categorical(["b", "a", None]), ["b", "a", None]),
        ([], []),
    ],
)
def test_categories_are_the_same_text_whatever_type_held_them(cells: object, texts: list[str | None]) -> None:
    column = pd.Series(cells, name="code")
    assert category_strings(column).tolist() == texts
    # ... and whatever other cells stand beside them.
    assert [category_strings(column.iloc[[i]]).iloc[0] for i in range(len(column))] == texts


@pytest.mark.parametrize(
    ("categories", "ordered"),
    [
        (["10", "9", "1e1"], ["9", "10", "1e1"]),
        (["2", "01", "1", "1.0"], ["01", "1", "1.0", "2"]),
        (["b", "10", "9"], ["10", "9", "b"]),
        (["9", "nan", "10"], ["10", "9", "nan"]),
    ],
)
def test_the_order_of_categories_does_not_depend_on_the_rows(categories: list[str], ordered: list[str]) -> None:
    for turned in permutations(categories):
        assert in_order(turned) == ordered


def test_infer_reads_kinds_categories_and_bounds() -> None:
    frame = pd.DataFrame(
        {
            "whole": [3.0, -1.0, 10.0, 3.0],
            "real": [0.5, 1.0, 2.0, 1e6],
            "flag": [True, False, True, True],
            "grade": ["10", "9", "100", "9"],
            "word": ["b", "a", "b", "10"],
            "y": [1, 0, 0, 1],
        }
    )
    schema = TableSchema.infer(frame, "y", sensitive=["flag"])
    assert schema.columns == (
        Column.integer("whole", -1, 10),
        Column.continuous("real", 0.5, 1e6),
        Column.categorical("flag", ["False", "True"]),
        Column.categorical("grade", ["9", "10", "100"]),
        Column.categorical("word", ["10", "a", "b"]),
    )
    assert schema.label == Column.categorical("y", ["0", "1"])
    assert schema.sensitive == ("flag",)


@settings(max_examples=30)
@given(st.data())
def test_an_inferred_schema_accepts_every_part_of_its_table(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 8))
    cells = {
        "a": st.integers(-(2**53), 2**53),
        "b": st.floats(allow_nan=False, allow_infinity=False),
        "c": WORDS,
        "d": st.booleans(),
        "y": st.sampled_from([0.0, 0.5, 1.0]),
    }
    frame = pd.DataFrame(
        {
            name: data.draw(st.lists(v, min_size=n, max_size=n).filter(lambda x: len(set(x)) > 1))
            for name, v in cells.items()
        }
    )
    schema = TableSchema.infer(frame, "y")
    whole = schema.validate(frame)
    for rows in ([0], list(range(n))[::-1], [n - 1, n - 1]):
        pd.testing.assert_frame_equal(schema.validate(frame.iloc[rows]), whole.iloc[rows])
    shuffled = frame.sample(frac=1, random_state=0)
    assert TableSchema.infer(shuffled, "y") == schema


def test_missing_values_are_refused_by_default() -> None:
    with pytest.raises(DataError, match=r"column 'age' has 2 missing values; expected none \(missing: category or"):
        small_schema().validate(small_frame(age=[30, None, 41, None]))
    with pytest.raises(DataError, match="column 'sex' has 1 missing values"):
        small_schema().validate(small_frame(sex=["F", None, "M", "F"]))
    with pytest.raises(DataError, match="column 'ill' has 1 missing values"):
        small_schema().validate(small_frame(ill=["no", "yes", np.nan, "yes"]))


def test_missing_values_can_be_imputed() -> None:
    schema = small_schema(age="impute", weight="impute", sex="impute")
    frame = schema.validate(
        small_frame(age=[30, None, 41, None], weight=[1.0, 2.0, None, 5.0], sex=["M", None, "M", "F"])
    )
    assert frame["age"].tolist() == [30, 30, 41, 30]  # the lower median, a whole number
    assert frame["weight"].tolist() == [1.0, 2.0, 2.0, 5.0]
    assert frame["sex"].tolist() == ["M", "M", "M", "F"]
    with pytest.raises(DataError, match="column 'age' has no value at all; nothing to impute from"):
        schema.validate(small_frame(age=[None] * 4))


def test_missing_values_can_be_a_category_of_their_own(tmp_path: Path) -> None:
    schema = small_schema(sex="category")
    assert schema.column("sex").categories == ("F", "M", MISSING_CATEGORY)
    assert schema.validate(small_frame(sex=["M", None, "M", "F"]))["sex"].tolist() == ["M", MISSING_CATEGORY, "M", "F"]
    state = {"name": "sex", "kind": "categorical", "categories": ["F", "M"], "missing": "category"}
    assert Column.from_dict(state) == schema.column("sex")


BAD_CELLS = {
    "unknown category": ({"sex": list("FMXF")}, r"column 'sex': expected one of \['F', 'M'\], got \['X'\]"),
    "unknown class": ({"ill": ["no", "yes", "perhaps", "no"]}, r"column 'ill': expected one of .* got \['perhaps'\]"),
    "text in a number": (
        {"weight": [1, "heavy", 2, 3]},
        r"column 'weight': expected a number \(continuous\), got 'heavy'",
    ),
    "word nan in a number": ({"age": ["nan", 1, 2, 3]}, r"column 'age': expected a number \(integer\), got 'nan'"),
    "fractional integer": (
        {"age": [1, 2.5, 3, 4]},
        r"column 'age': expected whole numbers of at most 2\*\*53, got 2.5",
    ),
    "integer past float64": ({"age": [1, 2**60, 3, 4]}, r"column 'age': expected whole numbers of at most 2\*\*53"),
    "infinity": ({"weight": [1, math.inf, 2, 3]}, "column 'weight': expected finite numbers, got infinity"),
    "infinite integer": ({"age": [1, -math.inf, 2, 3]}, "column 'age': expected finite numbers, got infinity"),
    "NaN": ({"weight": [1, math.nan, 2, 3]}, "column 'weight' has 1 missing values; expected none"),
    "list in a number": ({"age": [[1], 2, 3, 4]}, r"column 'age': expected a number \(integer\), got \[1\]"),
    "list in a category": ({"sex": [["F"], ["M"], ["M"], ["F"]]}, "column 'sex'"),
}


@pytest.mark.parametrize("case", BAD_CELLS)
def test_a_bad_cell_is_refused_with_column_expected_and_got(case: str) -> None:
    changes, message = BAD_CELLS[case]
    with pytest.raises(DataError, match=message):
        small_schema().validate(small_frame(**changes))


def test_tables_with_wrong_columns_are_refused() -> None:
    with pytest.raises(DataError, match=r"columns \['weight', 'ill'\] are missing; the table has \['age', 'sex'\]"):
        small_schema().validate(small_frame()[["age", "sex"]])
    twice = small_frame().rename(columns={"weight": "age"})
    for refuse in (small_schema().validate, lambda frame: TableSchema.infer(frame, "ill")):
        with pytest.raises(DataError, match=r"must differ from each other; repeated: \['age'\]"):
            refuse(twice)


BAD_TABLES = {
    "no label": ({}, "disease", r"label 'disease' is not a column of the table; columns: \['age'"),
    "one class": ({"ill": ["no"] * 4}, "ill", r"label 'ill' must have at least 2 classes, got \['no'\]"),
    "no class": ({"ill": [None] * 4}, "ill", r"label 'ill' must have at least 2 classes, got \[\]"),
    "constant number": ({"age": [5] * 4}, "ill", r"column 'age' is constant \(only \[5\]\)"),
    "constant string": ({"sex": ["F"] * 4}, "ill", r"column 'sex' is constant \(only \['F'\]\)"),
    "empty column": ({"weight": [None] * 4}, "ill", r"column 'weight' is constant \(only \[\]\)"),
    "infinity": ({"weight": [1, 2, 3, math.inf]}, "ill", "column 'weight': expected finite numbers, got infinity"),
    "lists": ({"sex": [["F"], ["M"], ["M"], ["F"]]}, "ill", r"column 'sex': expected numbers or strings, got \['F'\]"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_tables_no_schema_can_be_inferred_from_are_refused(case: str) -> None:
    changes, label, message = BAD_TABLES[case]
    with pytest.raises(DataError, match=message):
        TableSchema.infer(small_frame(**changes), label)


def test_a_column_of_100_000_distinct_strings_is_refused() -> None:
    n = 100_000
    frame = pd.DataFrame({"id": [f"patient-{i}" for i in range(n)], "age": range(n), "ill": ["no", "yes"] * (n // 2)})
    with pytest.raises(DataError, match="column 'id' has 100000 distinct strings; at most 100 categories are inferred"):
        TableSchema.infer(frame, "ill")
    with pytest.raises(DataError, match="label 'id' has 100000 distinct values; at most 100 classes are allowed"):
        TableSchema.infer(frame, "id")
    with pytest.raises(DataError, match=r"column 'id': expected one of .* got"):
        TableSchema(
            (Column.categorical("id", ["patient-1", "patient-2"]),), Column.categorical("ill", ["no", "yes"])
        ).validate(frame)


BAD_COLUMNS = {
    "one category": (lambda: Column.categorical("sex", ["F"]), "column 'sex': a categorical column needs at least 2"),
    "repeated category": (
        lambda: Column.categorical("sex", ["F", "F"]),
        "'sex': categories must differ from each other",
    ),
    "number as category": (
        lambda: Column.categorical("sex", [0, 1]),
        r"'sex': categories must be strings .* got \[0, 1\]",
    ),
    "space in category": (lambda: Column.categorical("sex", ["F", " M"]), r"without surrounding space, got \[' M'\]"),
    "bounds of categories": (lambda: Column("sex", ColumnKind.CATEGORICAL, ("F", "M"), lower=0), "has no bounds"),
    "categories of numbers": (
        lambda: Column("age", ColumnKind.INTEGER, ("1", "2")),
        "'age': integer columns have no categ",
    ),
    "category for a number": (
        lambda: Column.integer("age", missing="category"),
        "missing='category' needs a categorical",
    ),
    "no missing category": (
        lambda: Column("sex", ColumnKind.CATEGORICAL, ("F", "M"), missing="category"),
        "'sex': missing='category' needs 'missing' among the categories",
    ),
    "unknown policy": (
        lambda: Column.integer("age", missing="drop"),
        "'age': missing must be refuse, category or impute",
    ),
    "bounds crossed": (lambda: Column.integer("age", 5, 5), "'age': lower bound must be below the upper, got 5 and 5"),
    "infinite bound": (
        lambda: Column.continuous("x", upper=math.inf),
        "'x': upper bound must be a finite number, got inf",
    ),
    "NaN bound": (lambda: Column.continuous("x", lower=math.nan), "'x': lower bound must be a finite number, got nan"),
    "fractional bound": (lambda: Column.integer("age", 0.5), "'age': lower bound must be a whole number, got 0.5"),
    "no features": (lambda: TableSchema((), Column.categorical("y", ["0", "1"])), "at least one feature column"),
    "numerical label": (
        lambda: TableSchema((Column.integer("a"),), Column.integer("y")),
        "label 'y' must be categorical",
    ),
    "repeated name": (
        lambda: TableSchema((Column.integer("y"),), Column.categorical("y", ["0", "1"])),
        r"must differ from each other; repeated: \['y'\]",
    ),
    "unknown sensitive": (
        lambda: TableSchema((Column.integer("a"),), Column.categorical("y", ["0", "1"]), ("b",)),
        r"sensitive columns \['b'\] are not in the table; columns: \['a', 'y'\]",
    ),
    "unknown column": (lambda: small_schema().column("height"), r"no column 'height'; columns: \['age'"),
}


@pytest.mark.parametrize("case", BAD_COLUMNS)
def test_schemas_that_describe_no_table_are_refused(case: str) -> None:
    make, message = BAD_COLUMNS[case]
    with pytest.raises(DataError, match=message):
        make()


LABEL = {"name": "y", "kind": "categorical", "categories": ["0", "1"]}
AGE = {"name": "age", "kind": "integer"}
BAD_STATES = {
    "unknown key": ({"columns": [AGE], "label": LABEL, "rows": 5}, r"a schema is a mapping with columns, label"),
    "no label": ({"columns": [AGE]}, r"got \['columns'\]"),
    "no mapping": ([AGE], "a schema is a mapping"),
    "nothing": (None, "a schema is a mapping"),
    "columns no list": ({"columns": {"age": AGE}, "label": LABEL}, "columns of a schema must be a list"),
    "sensitive no list": (
        {"columns": [AGE], "label": LABEL, "sensitive": "age"},
        "sensitive of a schema must be a list",
    ),
    "column no mapping": ({"columns": ["age"], "label": LABEL}, "a column is a mapping with name"),
    "unknown column key": (
        {"columns": [AGE | {"max": 3}], "label": LABEL},
        "a column is a mapping with name and any of kind",
    ),
    "no name": ({"columns": [{"kind": "integer"}], "label": LABEL}, "a column is a mapping with name"),
    "unknown kind": (
        {"columns": [{"name": "age", "kind": "int"}], "label": LABEL},
        "'age': kind must be one of continuous",
    ),
    "no kind": ({"columns": [{"name": "age"}], "label": LABEL}, "kind must be one of .* got None"),
    "categories no list": (
        {"columns": [LABEL | {"name": "a", "categories": "xy"}], "label": LABEL},
        "must be a list, got 'xy'",
    ),
    "bound no number": (
        {"columns": [AGE | {"lower": "low"}], "label": LABEL},
        "'age': lower bound must be a number, got 'low'",
    ),
    "unknown policy": (
        {"columns": [AGE | {"missing": "drop"}], "label": LABEL},
        "missing must be refuse, category or impute",
    ),
}


@pytest.mark.parametrize("case", BAD_STATES)
def test_states_that_are_no_schema_are_refused(case: str) -> None:
    state, message = BAD_STATES[case]
    with pytest.raises(DataError, match=message):
        TableSchema.from_dict(state)


def test_files_that_are_no_schema_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"schema file .*none.yaml does not exist"):
        TableSchema.from_yaml(tmp_path / "none.yaml")
    path = tmp_path / "schema.yaml"
    for text, message in (
        (b"a: [", "is not YAML"),
        (b"\xff\xfe\x00\xff", "is not YAML"),
        (b"- 1", "schema.yaml: a schema is a"),
    ):
        path.write_bytes(text)
        with pytest.raises(DataError, match=message):
            TableSchema.from_yaml(path)
