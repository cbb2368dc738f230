"""Typed rows of results.json: every golden file is read, written back unchanged, and accepted by the schema."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lightleak.core.errors import UsageError
from lightleak.core.results import (
    FILE_NAME,
    FrontierRow,
    ReleasedRow,
    Row,
    TrialRow,
    UpdateRow,
    ValueRow,
    VerticalRow,
    flat,
    kind_name,
    load_results,
    read_file,
    read_results,
    read_row,
    read_rows,
    row_kinds,
)

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*.json"))
DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = runpy.run_path(str(DOCS / "site" / "results_schema.py"))
PAGE, results_schema = SCRIPT["PAGE"], SCRIPT["results_schema"]
KINDS = (UpdateRow, VerticalRow, ReleasedRow, FrontierRow, TrialRow, ValueRow)
EXAMPLES: dict[str, dict[str, Any]] = {
    "updates": {"attack": "tableak"},
    "vertical": {"attack": "aia", "property": "sex=Female"},
    "released-model": {"attack": "plgmi"},
    "defense-frontier": {"attack": "none"},
    "tuning": {"trial": 0, "state": "complete"},
    "value": {"metric": "rows", "value": 1000},
}


def golden(file: Path) -> dict[str, Any]:
    """What a run wrote; `tests/golden` has left out the times."""
    return json.loads(file.read_text())["results"]


def without_unknown(value: Any) -> Any:
    """Without keys that say nothing: null, an empty list, an empty mapping."""
    if isinstance(value, dict):
        found = {key: without_unknown(one) for key, one in value.items()}
        return {key: one for key, one in found.items() if one not in (None, [], {})}
    return [without_unknown(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_every_key_that_a_run_writes_is_in_the_schema(file: Path) -> None:
    schema = results_schema()["$defs"]
    for raw in golden(file)["rows"]:
        kind = kind_name(raw.get("kind", "value" if "metric" in raw and "attack" not in raw else None))
        assert set(raw) <= set(schema[kind]["properties"])


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_every_golden_row_is_read_and_written_back(file: Path) -> None:
    for index, raw in enumerate(golden(file)["rows"]):
        row = read_row(raw, f"row {index}")
        written = row.to_dict()
        # An option that is null was not set; that is kept. Elsewhere null says nothing.
        known = without_unknown(raw)
        assert {key: one for key, one in without_unknown(written).items() if key in known} == known, index
        assert read_row(written, "row") == row


def test_golden_files_hold_every_kind() -> None:
    assert {read_row(row, "row").KIND for file in GOLDEN for row in golden(file)["rows"]} == set(EXAMPLES)


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_the_schema_accepts_every_golden_file(file: Path) -> None:
    schema = results_schema()
    Draft202012Validator.check_schema(schema)
    assert [error.message for error in Draft202012Validator(schema).iter_errors(golden(file))] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_schema_accepts_what_rows_write(name: str) -> None:
    row = read_row(EXAMPLES[name] | {"kind": name}, "row").to_dict()
    Draft202012Validator(results_schema()).validate({"schema_version": 1, "rows": [row]})


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": []},
        {"schema_version": 2, "rows": []},
        {"schema_version": 1, "rows": [{"attack": "tableak", "cell_accuracy": 1.5}]},
        {"schema_version": 1, "rows": [{"attack": "tableak", "batch_size": "many"}]},
        {"schema_version": 1, "rows": [{"kind": "vertical", "attack": "aia", "property": "a", "true_fraction": 2}]},
        {"schema_version": 1, "rows": [{"kind": "tuning", "trial": 0, "state": "lost"}]},
        {"schema_version": 1, "rows": [{"kind": "unheard-of", "attack": "tableak"}]},
    ],
)
def test_schema_and_reader_refuse_the_same(wrong: dict[str, Any]) -> None:
    assert not Draft202012Validator(results_schema()).is_valid(wrong)
    with pytest.raises(UsageError):
        read_rows(wrong, FILE_NAME)


@pytest.mark.parametrize("kind", KINDS)
def test_every_declared_field_and_score_is_described_by_the_schema(kind: type[Row]) -> None:
    found = results_schema()["$defs"][kind.KIND]["properties"]
    assert set(kind.METRICS) <= set(found)
    undescribed = [name for name, entry in found.items() if "description" not in entry]
    assert set(undescribed) <= {"kind", *kind.METRICS}


def test_the_committed_schema_is_current() -> None:
    written = json.loads((DOCS / PAGE).read_text("utf-8"))
    assert written == json.loads(json.dumps(results_schema())), "run `python -m lightleak.cards`"


def test_kinds_are_found_by_their_names_and_earlier_names() -> None:
    expected = {kind.KIND: kind for kind in KINDS} | {
        "horizontal": UpdateRow,
        "gradient inversion": UpdateRow,
        "defence-frontier": FrontierRow,
    }
    assert row_kinds() == expected
    for name, kind in expected.items():
        row = read_row(EXAMPLES[kind.KIND] | {"kind": name}, "row")
        assert type(row) is kind
        assert row.to_dict()["kind"] == kind.KIND == kind_name(name)
    assert kind_name(["vertical"]) == kind_name("unheard-of") == kind_name(None) == "updates"


def test_a_row_without_a_kind_is_of_an_update_or_a_number_alone() -> None:
    assert type(read_row({"attack": "tableak", "metric": "cell_accuracy"}, "row")) is UpdateRow
    number = read_row({"metric": "rows", "value": 1000, "property": "sex=Female"}, "row")
    assert isinstance(number, ValueRow)
    assert (number.metric, number.value, number.property_name) == ("rows", 1000, "sex=Female")


def test_scores_of_earlier_versions_are_read() -> None:
    row = read_row({"kind": "released-model", "attack": "plgmi", "ceiling": 0.9}, "row")
    assert row.number("real_rows_accuracy") == 0.9


def test_unknown_keys_survive() -> None:
    row = read_row({"attack": "tableak", "newer": {"a": 1}, "cell_accuracy": 0.5}, "row")
    assert row.extra == {"newer": {"a": 1}}
    assert row.to_dict()["newer"] == {"a": 1}


@pytest.mark.parametrize("undefined", [None, float("nan"), float("inf")])
def test_an_undefined_score_is_unknown(undefined: float | None) -> None:
    row = read_row({"attack": "a", "cell_accuracy": undefined, "column_accuracy": {"age": undefined}}, "row")
    assert (row.metrics, row.number("cell_accuracy")) == ({}, None)
    assert isinstance(row, UpdateRow) and row.column_accuracy == {}


def test_a_number_is_a_score_or_a_field() -> None:
    row = read_row({"attack": "a", "cell_accuracy": 0, "seconds": 2, "batch_size": 8}, "row")
    assert [row.number(name) for name in ("cell_accuracy", "seconds", "batch_size", "unheard_of")] == [
        0.0,
        2.0,
        8,
        None,
    ]


def test_settings_of_stages_are_named_one_by_one() -> None:
    row = read_row({"attack": "audit_max", "options": {"labels": "true", "exact": {"chains": 5}}}, "row")
    assert row.settings == {"labels": "true", "exact.chains": "5"}
    assert flat({"a": True, "b": [], "c": [1, 2], "d": None}) == {"a": "yes", "b": "none", "c": "1, 2", "d": "default"}


@pytest.mark.parametrize(("defense", "holds"), [(None, True), ("none", True), ("noise", False)])
def test_a_row_is_undefended_where_no_defense_is_named(defense: str | None, holds: bool) -> None:
    assert UpdateRow(attack="a", defense=defense).is_undefended is holds


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (None, "row 7: expected a mapping, got None"),
        ([], r"row 7: expected a mapping, got \[\]"),
        ({}, "row 7, key 'attack': expected text, got nothing"),
        ({"attack": None}, "row 7, key 'attack': expected text, got nothing"),
        ({"attack": "a", "kind": "odd"}, "row 7, key 'kind': expected one of updates, .*vertical.*, got 'odd'"),
        ({"attack": "a", "cell_accuracy": "0.5"}, "row 7, key 'cell_accuracy': expected a number, got '0.5'"),
        ({"attack": "a", "cell_accuracy": True}, "row 7, key 'cell_accuracy': expected a number, got True"),
        ({"attack": "a", "cell_accuracy": 1.1}, "row 7, key 'cell_accuracy': expected at most 1, got 1.1"),
        ({"attack": "a", "cell_accuracy": 10**400}, "row 7, key 'cell_accuracy': expected a number, got 1000"),
        ({"attack": "a", "rmse": -0.1}, "row 7, key 'rmse': expected at least 0, got -0.1"),
        ({"attack": "a", "epsilon": -1}, "row 7, key 'epsilon': expected at least 0, got -1"),
        ({"kind": "vertical", "attack": "a"}, "row 7, key 'property': expected text, got nothing"),
        ({"kind": "tuning", "trial": 1}, "row 7, key 'state': expected a value, got nothing"),
    ],
)
def test_a_wrong_row_is_refused_with_its_place_and_key(raw: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_row(raw, "row 7")


CERTIFIED: dict[str, Any] = {
    "attack": "audit_max",
    "certified_rows": 1,
    "row_status": ["certified", "likely", "missing"],
    "certificate_residual": 0.3,
    "expected": "partial",
    "feasibility": {"ranks": [3], "row_constraints": [7], "unit_constraints": [9], "reason": "few"},
}


def test_a_certificate_is_read() -> None:
    row = read_row(CERTIFIED, "row 2")
    assert isinstance(row, UpdateRow)
    assert (row.certified_rows, row.is_fully_certified, row.certificate_residual) == (1, False, 0.3)
    plan = row.feasibility
    assert (plan.ranks, plan.row_constraints, plan.unit_constraints, plan.reason) == ((3,), (7,), (9,), "few")
    whole = read_row({"attack": "exact", "certified_rows": 2, "row_status": ["certified"] * 2}, "row 2")
    assert isinstance(whole, UpdateRow) and whole.is_fully_certified
    for without in ({"attack": "a"}, {"attack": "a", "row_status": None}):  # as earlier versions wrote it
        row = read_row(without, "row 2")
        assert isinstance(row, UpdateRow) and not row.row_status and not row.is_fully_certified


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"row_status": ["certified", "sure"]},
            "key 'row_status', entry 1: expected one of certified, likely, missing",
        ),
        ({"row_status": "certified"}, "key 'row_status': expected a list"),
        ({"certified_rows": 2}, "key 'certified_rows': expected 1, the certified of row_status, got 2"),
        ({"expected": "perhaps"}, "key 'expected': expected one of exact, partial, approximate, got 'perhaps'"),
    ],
)
def test_a_certificate_that_contradicts_itself_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"row 2, {message}"):
        read_row(CERTIFIED | change, "row 2")


def write(folder: Path, rows: list[Any]) -> Path:
    (folder / FILE_NAME).write_text(json.dumps({"schema_version": 1, "rows": rows}))
    return folder


def test_a_folder_is_read_with_the_name_of_its_run(tmp_path: Path) -> None:
    folder = write(tmp_path, [{"attack": "tableak"}])
    assert [row.run for row in read_results(folder)] == [tmp_path.name]
    assert [row.run for row in read_results(str(folder), "mine")] == ["mine"]
    assert "run" not in read_results(folder)[0].to_dict()


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_results_of_every_kind_load_as_a_table(tmp_path: Path, file: Path) -> None:
    rows = golden(file)["rows"]
    table = load_results(write(tmp_path, rows))
    assert len(table) == len(rows)
    for name in {key for row in rows for key, value in row.items() if isinstance(value, float)}:
        assert [None if value != value else value for value in table[name]] == [row.get(name) for row in rows]


@pytest.mark.parametrize("content", ["nonsense", "[]", "3"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    with pytest.raises(UsageError, match=r"results\.json: expected "):
        read_file(tmp_path)


@pytest.mark.parametrize("raw", [{"schema_version": 1}, {"schema_version": 1, "rows": 3}, {"schema_version": 2}])
def test_content_of_another_version_or_without_rows_is_refused(raw: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"schema_version must be 1|a list 'rows'"):
        read_rows(raw, FILE_NAME)
