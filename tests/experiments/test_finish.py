"""Results and report are written once, and again where their writer died or more was done."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lightleak.experiments import finish
from lightleak.experiments.finish import console_of_rank, leave_results

Rows = list[dict[str, Any]]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Rows:
    """What every report was built of."""
    seen: Rows = []

    def build(folder: Path, redact: bool) -> None:
        seen.append({"redact": redact, **json.loads((folder / "results.json").read_text())})
        (folder / "report.html").write_text("report</html>")

    monkeypatch.setattr(finish, "build_report", build)
    return seen


@pytest.fixture
def rows() -> Rows:
    return [{"attack": "tableak", "seconds": 1.5, "cell_accuracy": value} for value in (0.25, float("nan"))]


def test_who_comes_second_returns_what_the_first_wrote(tmp_path: Path, rows: Rows, written: Rows) -> None:
    first = leave_results(tmp_path, lambda: rows, redact=True)
    assert first == json.loads((tmp_path / "results.json").read_text())
    assert first["rows"][1]["cell_accuracy"] is None and written[0]["redact"] is True
    assert leave_results(tmp_path, lambda: rows, redact=True) == first
    assert len(written) == 1


def test_a_report_that_was_cut_is_built_anew(tmp_path: Path, rows: Rows, written: Rows) -> None:
    leave_results(tmp_path, lambda: rows, redact=False)
    (tmp_path / "report.html").write_text("rep")
    leave_results(tmp_path, lambda: rows, redact=False)
    assert len(written) == 2


@pytest.mark.parametrize("lost", ["report.html", "results.json"])
def test_what_a_dead_writer_left_out_is_written(tmp_path: Path, rows: Rows, written: Rows, lost: str) -> None:
    leave_results(tmp_path, lambda: rows, redact=False)
    (tmp_path / lost).unlink()
    beside: list[Rows] = []
    leave_results(tmp_path, lambda: rows, redact=False, beside=beside.append)
    assert len(written) == 2 and beside == [rows]
    assert (tmp_path / "report.html").is_file()


def test_a_report_from_before_its_results_is_built_anew(tmp_path: Path, rows: Rows, written: Rows) -> None:
    leave_results(tmp_path, lambda: rows, redact=False)
    report = tmp_path / "report.html"
    before = (tmp_path / "results.json").stat().st_mtime - 10
    os.utime(report, (before, before))
    leave_results(tmp_path, lambda: rows, redact=False)
    assert len(written) == 2


def test_more_rows_are_written(tmp_path: Path, rows: Rows, written: Rows) -> None:
    leave_results(tmp_path, lambda: rows[:1], redact=False)
    assert len(leave_results(tmp_path, lambda: rows, redact=False)["rows"]) == 2
    assert [len(report["rows"]) for report in written] == [1, 2]


def test_who_stops_while_others_go_on_writes_once(tmp_path: Path, rows: Rows, written: Rows) -> None:
    """Between two looks at the rows another process finishes one more, every time."""
    found: Rows = []

    def growing() -> Rows:
        found.append(rows[0])
        return list(found)

    leave_results(tmp_path, growing, redact=False)
    assert len(written) == 1


@pytest.mark.parametrize(("rank", "speaks"), [("0", True), ("1", False)])
def test_one_rank_speaks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: str, speaks: bool
) -> None:
    for name, value in {"WORLD_SIZE": "2", "LOCAL_RANK": rank, "RANK": rank, "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    given = Console(force_terminal=True)
    console = console_of_rank(given)
    assert (console is given) == speaks
    console_of_rank(None).print("hello")
    assert ("hello" in capsys.readouterr().out) == speaks
    assert console.is_interactive == speaks
