"""Rows and the study are read strictly: a wrong type is an error that names file and field."""

import json
import re
from typing import Any

import pytest

from lightleak.core.errors import UsageError
from lightleak.report.tuning.result import parse_study, parse_trial
from lightleak.report.tuning.run_folder import load_tuning_run

OBJECTIVE = {"name": "loss", "direction": "minimize"}
HELD_OUT = {"metric": "loss", **{name: {"mean": 0.5} for name in ("default", "best", "difference")}}


def test_what_a_row_lacks_is_unknown() -> None:
    found = parse_trial({"trial": 3, "state": "running"}, "row 0")
    assert (found.values, found.parameters, found.intermediate) == ({}, {}, ())
    assert (found.seconds, found.worker, found.retry_of, found.error) == (None, None, None, None)
    assert not (found.is_default or found.is_best or found.on_front or found.is_knee)


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_what_is_not_finite_is_unknown(value: Any) -> None:
    row = {"trial": 0, "state": "complete", "seconds": value, "values": {"loss": value}, "intermediate": [[1, value]]}
    found = parse_trial(row, "row 0")
    assert (found.seconds, found.values, found.intermediate) == (None, {}, ())


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("trial", "3", "a whole number"),
        ("trial", None, "the number of the trial"),
        ("trial", -1, "the number of the trial"),
        ("trial", True, "a whole number"),
        ("state", "done", "one of complete, pruned, failed, running"),
        ("state", ["complete"], "one of complete, pruned, failed, running"),
        ("seconds", "12", "a number"),
        ("seconds", True, "a number"),
        ("worker", 4711, "text"),
        ("values", [0.5], "a mapping"),
        ("parameters", "x", "a mapping"),
        ("intermediate", {"1": 0.5}, "a list"),
        ("intermediate", [0.5], "pairs of step and value"),
        ("intermediate", [[1, 2, 3]], "pairs of step and value"),
        ("intermediate", [[1, "a"]], "a number"),
        ("is_default", "no", "true or false"),
        ("is_best", 1, "true or false"),
        ("retry_of", "2", "a whole number"),
        ("retry_of", 9, "the number of an earlier trial"),
        ("retry_of", 5, "the number of an earlier trial"),
        ("error", {}, "text"),
    ],
)
def test_a_wrong_type_in_a_row_names_file_row_and_field(make_study, field: str, value: Any, expected: str) -> None:
    folder = make_study(trials=8, change=lambda rows: rows[5].update({field: value}))
    with pytest.raises(UsageError, match=f"{re.escape(str(folder))}.*row 5, field '{field}': expected {expected}"):
        load_tuning_run(folder)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("objectives", [], "field 'objectives': expected at least one"),
        ("objectives", [{"name": "a"}], "entry 0, field 'direction': expected one of maximize, minimize"),
        ("objectives", [OBJECTIVE, 3], "field 'objectives', entry 1: expected a mapping"),
        ("objectives", [{"direction": "minimize"}], "entry 0, field 'name': expected a name"),
        ("parameters", [{"key": "a", "kind": "real"}], "entry 0, field 'kind': expected one of float, int, choice"),
        ("parameters", [{"kind": "int"}], "entry 0, field 'key': expected a name"),
        ("parameters", [{"key": "a", "kind": "int", "low": "1"}], "entry 0, field 'low': expected a number"),
        ("parameters", [{"key": "a", "kind": "int", "default": "x"}], "entry 0, field 'default': expected a number"),
        ("parameters", [{"key": "a", "kind": "choice", "of": "ab"}], "entry 0, field 'of': expected a list"),
        ("importance", {"loss": 0.5}, "field 'importance', field 'loss': expected a mapping"),
        ("importance", {"loss": {"a": "b"}}, "field 'loss', field 'a': expected a number"),
        ("asked", 4.5, "field 'asked': expected a whole number"),
        ("budget", 45000, "field 'budget': expected text"),
        ("held_out", "none", "field 'held_out': expected a mapping"),
        ("held_out", HELD_OUT | {"metric": "accuracy"}, "field 'metric': expected one of loss"),
        ("held_out", HELD_OUT | {"best": {"mean": None}}, "field 'best', field 'mean': expected a finite number"),
        ("held_out", HELD_OUT | {"difference": None}, "field 'difference', field 'mean': expected a finite number"),
    ],
)
def test_a_wrong_type_in_the_study_names_the_field(field: str, value: Any, expected: str) -> None:
    with pytest.raises(UsageError, match=re.escape(expected)):
        parse_study({"objectives": [OBJECTIVE], field: value}, "results.json, field 'study'")


def test_a_number_that_is_none_is_named_by_the_key_of_its_parameter(make_study) -> None:
    key = "attacks.tableak.restarts"
    folder = make_study(trials=3, change=lambda rows: rows[1]["parameters"].update({key: "many"}))
    with pytest.raises(UsageError, match=f"row 1, field 'parameters', field '{key}': expected a number, got 'many'"):
        load_tuning_run(folder)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("[]", "expected a mapping"),
        ("{", "expected JSON"),
        ('{"schema_version": 2, "rows": [], "study": {}}', "schema_version must be 1, got 2"),
        ('{"schema_version": 1, "rows": []}', "field 'study': expected a mapping"),
        (json.dumps({"schema_version": 1, "rows": 3, "study": {"objectives": [OBJECTIVE]}}), "'rows': expected a list"),
    ],
)
def test_a_file_that_is_no_study_is_refused_by_name(tmp_path, content: str, expected: str) -> None:
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(UsageError, match=f"results.json.*{re.escape(expected)}"):
        load_tuning_run(tmp_path)
    with pytest.raises(UsageError, match=r"results\.json is missing"):
        load_tuning_run(tmp_path / "nowhere")


def test_two_rows_of_one_trial_are_refused(make_study) -> None:
    folder = make_study(trials=4, change=lambda rows: rows.append(dict(rows[2])))
    with pytest.raises(UsageError, match="each trial must have one row, got several of trial 2"):
        load_tuning_run(folder)


def test_a_folder_is_read_whole_and_in_order(make_study) -> None:
    run = load_tuning_run(make_study(change=lambda rows: rows.reverse()))
    assert [trial.number for trial in run.trials] == list(range(41))
    assert run.folder.title == "Tuning TabLeak on Adult" and run.folder.environment["device"] == "cpu"
    assert run.study.parameters[4].when == "attacks.tableak.sign is true"
    assert run.study.held_out is not None and run.study.held_out.difference.n == 20
