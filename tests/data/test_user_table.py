"""A user's own table: what is read, and one clear error for each kind of bad input."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lightleak.core.errors import DataError
from lightleak.data.schema import Column, ColumnKind, TableSchema
from lightleak.data.user_table import load_table


def patients(n_rows: int = 100) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n_rows),
            "weight": rng.normal(75, 12, n_rows).round(2),
            "ward": rng.choice(["north", "south, upper", "été"], n_rows),
            "smoker": rng.choice([True, False], n_rows),
            "ill": rng.choice(["no", "yes"], n_rows),
        }
    )


def whole(table) -> pd.DataFrame:
    return pd.concat([table.train, table.test]).sort_values(["weight", "age"]).reset_index(drop=True)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.tsv", "semicolon.csv", "t.parquet", "T.CSV"])
def test_every_format_gives_the_table_of_the_frame(tmp_path: Path, name: str) -> None:
    frame = patients()
    path = tmp_path / name
    if name.endswith("parquet"):
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if "tsv" in name else ";" if "semicolon" in name else ",")
    table, expected = load_table(path, "ill"), load_table(frame, "ill")
    assert table.schema == expected.schema
    pd.testing.assert_frame_equal(table.train, expected.train)
    pd.testing.assert_frame_equal(table.test, expected.test)
    assert table.card.files == (name,)
    assert str(tmp_path) not in repr(table.card)


@pytest.mark.parametrize(("separator", "name"), [(";", "t.csv"), ("\t", "t.tsv")])
def test_decimal_commas_are_read_where_cells_are_separated_otherwise(tmp_path: Path, separator: str, name: str) -> None:
    frame = patients()
    frame.loc[:4, "weight"] = None
    frame.to_csv(tmp_path / name, index=False, sep=separator, decimal=",")
    table, expected = load_table(tmp_path / name, "ill", missing="impute"), load_table(frame, "ill", missing="impute")
    assert table.schema == expected.schema
    pd.testing.assert_frame_equal(table.train, expected.train)


def test_decimal_commas_of_a_declared_category_stay_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("code;dose;ill\n" + "1,5;2,5;no\n2;3;yes\n" * 20)
    schema = TableSchema(
        (Column.categorical("code", ["1,5", "2"]), Column.continuous("dose")), Column.categorical("ill", ["no", "yes"])
    )
    table = load_table(tmp_path / "t.csv", "ill", schema)
    assert set(table.train["code"]) == {"1,5", "2"} and set(table.train["dose"]) == {2.5, 3.0}


def test_quoted_commas_between_commas_are_named_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("dose,ill\n" + '"1,234",no\n"2,5",yes\n' * 20)
    with pytest.raises(DataError, match=r"'dose' holds numbers with decimal commas \('1,234'\)"):
        load_table(tmp_path / "t.csv", "ill")


def test_kinds_are_inferred_and_bounds_are_those_of_the_table() -> None:
    frame = patients()
    table = load_table(frame, "ill", sensitive=["smoker"])
    assert [column.kind for column in table.schema.columns] == [
        ColumnKind.INTEGER,
        ColumnKind.CONTINUOUS,
        ColumnKind.CATEGORICAL,
        ColumnKind.CATEGORICAL,
    ]
    age = table.schema.column("age")
    assert (age.lower, age.upper) == (frame["age"].min(), frame["age"].max())
    assert table.schema.sensitive == ("smoker",)
    assert len(table.test) == 20
    assert whole(table)["weight"].tolist() == sorted(frame["weight"])


def test_a_schema_from_yaml_or_by_hand_wins(tmp_path: Path) -> None:
    frame = patients().drop(columns="smoker").assign(unused="x")
    frame.loc[:9, "ward"] = None
    schema = TableSchema(
        (
            Column.integer("age", 0, 120),
            Column.continuous("weight"),
            Column.categorical("ward", ["north", "south, upper", "été", "west"], missing="category"),
        ),
        Column.categorical("ill", ["yes", "no"]),
    )
    path = tmp_path / "schema.yaml"
    schema.to_yaml(path)
    by_hand, by_yaml = load_table(frame, "ill", schema), load_table(frame, "ill", path)
    pd.testing.assert_frame_equal(by_hand.train, by_yaml.train)
    assert by_hand.schema.label.categories == ("yes", "no")
    assert (by_hand.schema.column("age").lower, by_hand.schema.column("age").upper) == (0, 120)
    assert (whole(by_hand)["ward"] == "missing").sum() == 10
    assert "unused" not in by_hand.train
    assert load_table(frame, "ill", schema, sensitive=["ward"]).schema.sensitive == ("ward",)


def test_the_split_depends_on_seed_and_fraction() -> None:
    frame = patients()
    assert load_table(frame, "ill", seed=0).test.equals(load_table(frame, "ill", seed=0).test)
    assert not load_table(frame, "ill", seed=0).test.equals(load_table(frame, "ill", seed=1).test)
    assert len(load_table(frame, "ill", test_fraction=0.5).test) == 50
    with pytest.raises(DataError, match=r"above 0 and below 1, got 1\.5"):
        load_table(frame, "ill", test_fraction=1.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": np.where(np.arange(100) < 3, np.nan, 70.5 + np.arange(100))}, "'weight' has 3 missing values"),
        ({"ward": ["north", None] * 50}, "'ward' is constant .only .'north'."),
        ({"ward": "north"}, r"'ward' is constant \(only \['north'\]\)"),
        ({"weight": 1.0}, r"'weight' is constant \(only \[1.0\]\)"),
        ({"weight": pd.array([2] * 100, dtype="Int64")}, r"'weight' is constant \(only \[2\]\)"),
        ({"smoker": True}, r"'smoker' is constant \(only \[True\]\)"),
        ({"weight": np.arange(100) * (1 + 1j)}, r"'weight' holds complex numbers .*: put real and imaginary parts in"),
        ({"ward": ["a", "b", None, "a"] * 25}, "'ward' has 25 missing values"),
        ({"ill": "no"}, r"'ill' must have at least 2 classes, got \['no'\]"),
        ({"ill": ["no", "yes", None, "no"] * 25}, "'ill' has 25 missing values"),
        (
            {"weight": np.where(np.arange(100) < 1, np.inf, 70.5 + np.arange(100))},
            "column 'weight' holds infinity: put a number",
        ),
        ({"name": [f"person {i}" for i in range(100)]}, "'name' has 100 distinct strings in 100 rows, too many"),
        ({"ill": np.arange(100) / 7}, "label 'ill' must be a class that repeats, got 100 distinct values in 100 rows"),
        ({"ill": pd.date_range("2024-01-01", periods=5).repeat(20)}, "'ill' must be a class that repeats, got 5"),
    ],
)
def test_bad_columns_are_named(change, message) -> None:
    frame = patients().assign(**change)
    with pytest.raises(DataError, match=message):
        load_table(frame, "ill")


def test_complex_numbers_are_no_numbers_of_a_schema() -> None:
    frame = patients()
    schema = load_table(frame, "ill").schema
    with pytest.raises(DataError, match=r"'weight'.*: expected a number \(continuous\), got complex numbers"):
        load_table(frame.assign(weight=frame["weight"] * 1j), "ill", schema)


def test_strings_that_repeat_are_a_category_up_to_100() -> None:
    frame = patients(300).assign(name=[f"person {i % 100}" for i in range(300)])
    assert load_table(frame, "ill").schema.column("name").width == 100
    with pytest.raises(DataError, match="'name' has 101 distinct strings; at most 100 categories"):
        load_table(frame.assign(name=[f"person {i % 101}" for i in range(300)]), "ill")


def test_a_small_table_may_have_a_category_per_row() -> None:
    frame = patients(20).assign(profession=[f"profession {i}" for i in range(20)])
    assert load_table(frame, "ill").schema.column("profession").width == 20


def test_a_column_of_100000_distinct_strings_is_named_with_its_count() -> None:
    frame = pd.DataFrame({"id": [f"patient {i}" for i in range(100_000)], "ill": ["no", "yes"] * 50_000})
    with pytest.raises(DataError, match="column 'id' has 100000 distinct strings; at most 100 categories"):
        load_table(frame, "ill")


def test_one_class_is_refused_under_a_given_schema_too() -> None:
    schema = TableSchema((Column.integer("age"),), Column.categorical("ill", ["no", "yes"]))
    with pytest.raises(DataError, match=r"label 'ill' must have rows of at least 2 classes, got only \['no'\]"):
        load_table(patients().assign(ill="no"), "ill", schema)
    with pytest.raises(DataError, match="label 'age' differs from the label of the schema, 'ill'"):
        load_table(patients(), "age", schema)
    with pytest.raises(DataError, match=r"column 'ill': expected one of \['no', 'yes'\], got \['maybe'\]"):
        load_table(patients().assign(ill=["no", "maybe"] * 50), "ill", schema)


def test_a_label_that_is_no_column_is_refused_with_the_columns() -> None:
    with pytest.raises(DataError, match=r"label 'sick' is not a column of the table; columns: \['age'"):
        load_table(patients(), "sick")


def test_columns_may_be_named_by_numbers_as_pandas_does_without_a_line_of_names() -> None:
    frame = patients().assign(weight=[1, 2, 3, 4] * 25).set_axis(range(5), axis=1)
    table = load_table(frame, label=4, drop=[0], categorical=[1], sensitive=[3])
    assert [(column.name, column.is_numerical) for column in table.schema.columns] == [
        ("1", False),
        ("2", False),
        ("3", False),
    ]
    assert (table.schema.label.name, table.schema.sensitive) == ("4", ("3",))
    assert load_table(frame, label=4, group=0).schema.names == ("1", "2", "3")
    with pytest.raises(DataError, match=r"label '9' is not a column of the table; columns: \['0', '1'"):
        load_table(frame, label=9)


def test_repeated_column_names_and_too_few_rows_are_refused() -> None:
    frame = patients()
    with pytest.raises(DataError, match=r"must differ from each other; repeated: \['age'\]"):
        load_table(pd.concat([frame, frame[["age"]]], axis=1), "ill")
    with pytest.raises(DataError, match="'table' must have at least 2 rows below its column names, got 1"):
        load_table(frame.head(1), "ill")


def test_repeated_names_in_a_file_are_refused_though_pandas_numbers_them(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,sex,age,ill\n1,f,2,no\n3,m,4,yes\n")
    with pytest.raises(DataError, match=r"'t\.csv' must differ from each other; repeated: \['age'\]; rename them"):
        load_table(tmp_path / "t.csv", "ill")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("broken.parquet", b"not parquet at all", r"broken\.parquet cannot be read"),
        ("empty.csv", b"", r"empty\.csv cannot be read: it is empty; it needs a line of column names"),
        (
            "binary.csv",
            b"a,b\n\xff\xfe\x00,1\n",
            r"binary\.csv cannot be read: it is not UTF-8 text .*save it as UTF-8",
        ),
        ("ragged.csv", b"a,b\n1,2\n1,2,3,4\n", r"ragged\.csv cannot be read: .*quote cells that hold the separator"),
        ("fake.csv.gz", b"a,b\n1,2\n", r"fake\.csv\.gz cannot be read: BadGzipFile"),
        ("table.xlsx", b"PK", r"table\.xlsx must be one of \.csv, .*\.parquet, \.pq, got '\.xlsx'"),
        ("table", b"a,b\n", "got 'no suffix'"),
    ],
)
def test_unreadable_files_are_named_with_the_reason(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_table(tmp_path / name, "b")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.csv does not exist"):
        load_table(tmp_path / "nowhere.csv", "ill")
    with pytest.raises(DataError, match=r"schema file .*nowhere\.yaml does not exist"):
        load_table(patients(), "ill", tmp_path / "nowhere.yaml")


def written(path: Path, **cells: list) -> Path:
    """A CSV file of those columns, with an age and a label."""
    n = max(map(len, cells.values()))
    ages = {"age": [20 + i % 50 for i in range(n)]} if "age" not in cells else {}
    pd.DataFrame({**ages, **cells, "ill": ["no", "yes"] * (n // 2)}).to_csv(path, index=False)
    return path


CODES = {"zip": ["01234", "1234", "00501"], "icd": ["250", "250.1", "250.10"], "code": ["100000", "1E5", "2E3"]}


@pytest.mark.parametrize("name", list(CODES))
def test_declared_codes_keep_the_text_of_the_file(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / "t.csv", **{name: CODES[name] * 20})
    schema = TableSchema(
        (Column.integer("age"), Column.categorical(name, CODES[name])), Column.categorical("ill", ["no", "yes"])
    )
    for table in (load_table(path, "ill", schema), load_table(path, "ill", categorical=[name])):
        assert set(table.schema.column(name).categories) == set(CODES[name])
        assert pd.concat([table.train, table.test])[name].value_counts().tolist() == [20, 20, 20]


def test_declared_whole_numbers_may_be_written_with_a_zero_behind_the_point(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", ward=[1.0, 2.0, None, 10.0] * 20)
    assert "1.0" in path.read_text()
    table = load_table(path, "ill", categorical=["ward"], missing="impute")
    assert table.schema.column("ward").categories == ("1", "2", "10")


def test_whole_numbers_with_leading_zeros_are_named_as_codes(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", zip=[f"{i * 37 % 4000:05}" for i in range(200)], dose=[7, 250] * 100)
    table = load_table(path, "ill")
    assert table.schema.column("zip").kind is ColumnKind.INTEGER
    assert table.possible_codes == ("zip",)
    assert load_table(path, "ill", categorical=["dose"]).possible_codes == ("zip",)
    gaps = written(tmp_path / "u.csv", ward=["007", "7", None, "8"] * 20)
    assert "ward" in load_table(gaps, "ill", missing="impute").possible_codes


def test_codes_of_a_long_file_are_one_text_each(tmp_path: Path) -> None:
    codes = ["01", "02", "10"] * 200_000
    codes[-1] = "X9"
    (tmp_path / "t.csv").write_text("code,ill\n" + "".join(f"{code},{i % 2}\n" for i, code in enumerate(codes)))
    table = load_table(tmp_path / "t.csv", "ill")
    assert table.schema.column("code").categories == ("01", "02", "10", "X9")


DRINKS = {"alcohol": ["None", "Social", "Heavy", "NA"] * 15}


def test_declared_words_are_categories_and_no_missing_cells(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", **DRINKS)
    drinks = Column.categorical("alcohol", ["None", "Social", "Heavy", "NA"])
    schema = TableSchema((Column.integer("age"), drinks), Column.categorical("ill", ["no", "yes"]))
    for table in (load_table(path, "ill", schema), load_table(path, "ill", categorical=["alcohol"])):
        assert pd.concat([table.train, table.test])["alcohol"].value_counts().to_dict() == {
            "None": 15,
            "Social": 15,
            "Heavy": 15,
            "NA": 15,
        }
    sleep = written(tmp_path / "u.csv", dose=[1.5, 2, 4] * 20).read_text().replace("no\n", "None\n")
    (tmp_path / "u.csv").write_text(sleep)
    schema = TableSchema((Column.continuous("dose"),), Column.categorical("ill", ["None", "yes"]))
    assert set(load_table(tmp_path / "u.csv", "ill", schema).train["ill"]) == {"None", "yes"}
    with pytest.raises(DataError, match=r"'ill' has 30 missing values \('None' was read as missing\).*in a schema"):
        load_table(tmp_path / "u.csv", "ill")


def test_only_the_empty_cell_of_a_declared_category_is_missing(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", alcohol=["null", "n/a", None] * 20)
    table = load_table(path, "ill", categorical=["alcohol"], missing="category")
    assert table.schema.column("alcohol").categories == ("n/a", "null", "missing")


def test_words_that_were_read_as_missing_are_named_with_the_line_that_keeps_them(tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        load_table(written(tmp_path / "t.csv", **DRINKS, **{"smoker: ever": ["None", "yes", None] * 20}), "ill")
    said = str(refused.value)
    assert "'alcohol' has 30 missing values ('NA', 'None' were read as missing): fill them in" in said
    assert "to keep 'NA', 'None' as a category, write data.categorical: [alcohol]" in said
    assert "'smoker: ever' is constant (only ['yes']) ('None' was read as missing)" in said
    assert "write data.categorical: ['smoker: ever']" in said


@pytest.mark.parametrize("nested", [[1, 2], {"a": 1}])
def test_a_column_of_lists_or_mappings_is_named(tmp_path: Path, nested: object) -> None:
    frame = patients().assign(tags=[nested] * 100)
    frame.to_parquet(tmp_path / "t.parquet")
    for source in (frame, tmp_path / "t.parquet"):
        with pytest.raises(
            DataError, match=r"column 'tags' holds cells of type (list|dict|ndarray): (.|\n)*data.drop: \[tags"
        ):
            load_table(source, "ill")
        with pytest.raises(DataError, match="column 'tags': expected numbers or strings"):
            load_table(source, "tags")
        for column in (Column.continuous("tags"), Column.categorical("tags", ["a", "b"])):
            schema = TableSchema((column,), Column.categorical("ill", ["no", "yes"]))
            with pytest.raises(DataError, match="column 'tags': expected"):
                load_table(source, "ill", schema)
        schema = TableSchema((Column.integer("age"),), Column.categorical("tags", ["a", "b"]))
        with pytest.raises(DataError, match="column 'tags': expected"):
            load_table(source, "tags", schema)


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("1,1.0,ill", ("1", "1.0")),
        ("01,1,ill", ("01", "1")),
        ('"age, in years, full";dose;ill', ("age, in years, full", "dose")),
        ("\n  \nage;dose;ill", ("age", "dose")),
        ('"say ""a,b,c"", please"\tdose\till', ('say "a,b,c", please', "dose")),
    ],
)
def test_the_line_of_column_names_is_read_as_text(tmp_path: Path, header: str, names: tuple[str, ...]) -> None:
    separator = next(sign for sign in "\t;," if sign in header)
    rows = [f"{20 + i % 9}{separator}{i % 7}{separator}{'no' if i % 2 else 'yes'}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join([header, *rows]))
    assert load_table(tmp_path / "t.csv", "ill").schema.names == names


def test_bounds_that_no_schema_declares_are_those_of_all_rows() -> None:
    frame = pd.DataFrame({"age": range(20, 60), "sex": ["f", "m"] * 20, "ill": ["no", "yes"] * 20})
    table = load_table(frame, label="ill")
    assert table.seen_bounds == ("age",)
    assert load_table(frame, label="ill", schema=table.schema).seen_bounds == ()
