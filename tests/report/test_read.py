"""Reading a run folder, finished or interrupted."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from lightleak.core.errors import UsageError
from lightleak.report.read import Run, load_cells, load_run


def test_a_whole_run_is_read(make_run) -> None:
    run = load_run(make_run(n_batches=2, batch_sizes=(8,), epochs=3))
    assert (run.name, run.kind) == ("run", "updates")
    assert len(run.rows) == 3 * 2 + 2 * 2 * 3
    assert {row.run for row in run.rows} == {"run"}
    assert any("val/accuracy" in line for line in run.metrics)
    assert run.config is not None and "tableak" in run.config
    assert run.environment["versions"]["torch"] == "2.13.0"


def test_only_results_are_needed(make_run) -> None:
    run = load_run(make_run(n_batches=1, keep_rows=False, without=("config.yaml", "environment.json")))
    assert (run.config, run.environment, run.title, run.trained) == (None, {}, None, {})
    assert run.metrics == ()


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"nowhere is no run folder: expected a folder with results\.json, got no folder"
    ):
        load_run(tmp_path / "nowhere")


def test_a_folder_that_is_no_run_names_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"results\.json is missing, got an empty folder"):
        load_run(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UsageError, match=r"results\.json is missing, got notes\.txt"):
        load_run(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected JSON"),
        ("[]", "expected a mapping with a list 'rows'"),
        ('{"schema_version": 1, "rows": 3}', "expected a mapping with a list 'rows'"),
        ('{"rows": []}', "schema_version must be 1, got None"),
        ('{"schema_version": 2, "rows": []}', "schema_version must be 1, got 2"),
        ('{"schema_version": 1, "rows": [{}]}', "row 0, key 'attack': expected text, got nothing"),
        ('{"schema_version": 1, "rows": [], "left_out": [1]}', "expected a mapping 'left_out', got list"),
    ],
)
def test_damaged_results_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(UsageError, match=message):
        load_run(tmp_path)


@pytest.mark.parametrize(
    ("config", "title"),
    [
        ("title: Our audit", "Our audit"),
        ("seed: 0", None),
        ("title: [1]", None),
        ("[", None),
        ("a list", None),
        ("", None),
    ],
)
def test_the_title_is_that_of_the_config(make_run, config: str, title: str | None) -> None:
    folder = make_run(n_batches=1, keep_rows=False)
    (folder / "config.yaml").write_text(config)
    assert load_run(folder).title == title


@pytest.mark.parametrize("text", ["", "epoch,step\n1,2\n3,4,5\n"])
def test_an_unfinished_log_is_no_log(make_run, text: str) -> None:
    folder = make_run(n_batches=1, keep_rows=False)
    (folder / "metrics.csv").write_text(text)
    assert load_run(folder).metrics == ()


def test_environment_that_is_no_mapping_is_left_out(make_run) -> None:
    folder = make_run(n_batches=1, keep_rows=False)
    (folder / "environment.json").write_text("[1]")
    assert load_run(folder).environment == {}


@dataclass(frozen=True)
class Entry:
    name: str
    run: str


def test_other_files_of_a_run_are_read_as_records(tmp_path: Path) -> None:
    run = Run("mine", tmp_path)
    file = tmp_path / "known.json"
    assert run.entries("known.json", Entry, run="mine") == ()
    file.write_text(json.dumps({"schema_version": 1, "entries": [{"name": "a"}, {"name": "b"}]}))
    assert run.entries("known.json", Entry, run="mine") == (Entry("a", "mine"), Entry("b", "mine"))
    for content, message in (
        ({"schema_version": 2, "entries": []}, "schema_version must be 1, got 2"),
        ({"schema_version": 1}, "a list 'entries'"),
        ({"schema_version": 1, "entries": [{}]}, "entry 0, key 'name': expected text, got nothing"),
    ):
        file.write_text(json.dumps(content))
        with pytest.raises(UsageError, match=message):
            run.entries("known.json", Entry, run="mine")


def test_values_of_cells_stay_text(make_run) -> None:
    folder = make_run(n_batches=1, batch_sizes=(8,))
    run = load_run(folder)
    (folder / run.rows[0].reconstruction).write_text("row,column,true,reconstructed,correct,entropy\n0,zip,007,NA,0,\n")
    cells = load_cells(run, run.rows[0].reconstruction)
    assert cells is not None
    assert cells[0] == {
        "row": "0", "column": "zip", "true": "007", "reconstructed": "NA", "correct": "0", "entropy": "", "status": "",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "row,column\n0,age\n", "row,column,true,reconstructed,correct,entropy\n", '"'])
def test_unreadable_cells_are_none(make_run, text: str) -> None:
    folder = make_run(n_batches=1, batch_sizes=(8,))
    run = load_run(folder)
    (folder / run.rows[0].reconstruction).write_text(text)
    assert load_cells(run, run.rows[0].reconstruction) is None


def test_no_file_outside_the_run_is_read(make_run, tmp_path: Path) -> None:
    folder = make_run(n_batches=1, batch_sizes=(8,))
    inside = folder / "reconstructions" / "tableak-8-0.csv"
    (tmp_path / "other.csv").write_text(inside.read_text())
    run = load_run(folder)
    assert load_cells(run, "reconstructions/tableak-8-0.csv") is not None
    assert [load_cells(run, path) for path in ("../other.csv", str(tmp_path / "other.csv"), None)] == [None] * 3
