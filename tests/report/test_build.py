"""From run folders to a file: where it is written, what it needs, which runs go together."""

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from lightleak.core.errors import UsageError
from lightleak.report import build_report
from lightleak.report.read import load_run, run_names

KINDS = ("updates", "vertical", "released-model")


def folder_of(path: Path, rows: list[dict[str, Any]], config: str | None = None) -> Path:
    path.mkdir()
    (path / "results.json").write_text(json.dumps({"schema_version": 1, "rows": rows, "summary": []}))
    if config is not None:
        (path / "config.yaml").write_text(config)
    return path


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (None, "updates"),
        ("updates", "updates"),
        ("horizontal", "updates"),
        ("vertical", "vertical"),
        ("released-model", "released-model"),
        ("defence-frontier", "defense-frontier"),
        ("defense-frontier", "defense-frontier"),
    ],
)
def test_rows_say_what_kind_a_run_is_and_without_rows_its_config(tmp_path: Path, named: Any, expected: str) -> None:
    row = {"attack": "a", "property": "p"} | ({} if named is None else {"kind": named})
    assert load_run(folder_of(tmp_path / "rows", [row], "kind: vertical")).kind == expected
    config = "" if named is None else f"kind: {json.dumps(named)}"
    assert load_run(folder_of(tmp_path / "config", [], config)).kind == expected


@pytest.mark.parametrize("config", [None, "", "[", "a list", "kind: [vertical]"])
def test_a_run_that_names_no_kind_is_one_of_updates(tmp_path: Path, config: str | None) -> None:
    assert load_run(folder_of(tmp_path / "run", [], config)).kind == "updates"


@pytest.mark.parametrize(("first", "second"), [(0, 1), (0, 2), (1, 2)])
def test_kinds_are_not_mixed(tmp_path: Path, first: int, second: int) -> None:
    rows = [{"attack": "a", "property": "p", "kind": KINDS[index]} for index in (first, second)]
    folders = [folder_of(tmp_path / name, [row]) for name, row in zip("ab", rows, strict=True)]
    with pytest.raises(UsageError, match=rf"same kind.*got .*a: {KINDS[first]}; .*b: {KINDS[second]}"):
        build_report(folders, tmp_path / "both.html")
    both = folder_of(tmp_path / "both", rows)
    with pytest.raises(UsageError, match=f"one kind, got {' and '.join(sorted((KINDS[first], KINDS[second])))}"):
        build_report(both)


def test_each_kind_has_its_page(make_run, tmp_path: Path) -> None:
    for kind, words in (
        ("updates", "favoring likely values as far as that recovers more"),
        ("vertical", "vertical federated learning"),
        ("released-model", "Model inversion"),
    ):
        row = {"attack": "a", "property": "p", "kind": kind}
        assert words in build_report(folder_of(tmp_path / kind, [row])).read_text()


def test_numbers_of_a_paper_alone_make_no_report(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "facts", [{"dataset": "femnist", "metric": "rows", "value": 3}])
    with pytest.raises(UsageError, match="a report needs rows of attacks"):
        build_report(folder)


def test_the_report_is_written_to_the_run_folder_for_its_owner_alone(make_run, tmp_path: Path) -> None:
    folder = make_run(batch_sizes=(8,), n_batches=1)
    report = build_report(folder)
    assert report == folder / "report.html"
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    report.chmod(0o644)
    assert stat.S_IMODE(build_report(folder).stat().st_mode) == 0o600
    assert build_report(folder, tmp_path / "other.html") == tmp_path / "other.html"
    assert not list(folder.glob(".report-*"))


def test_the_report_of_several_runs_leaves_that_of_the_first_alone(make_named_run) -> None:
    folders = [make_named_run(name)(batch_sizes=(8,), n_batches=1) for name in "ab"]
    alone = build_report(folders[0])
    before = alone.read_bytes()
    assert build_report(folders) == folders[0] / "combined.html"
    assert alone.read_bytes() == before


def test_the_report_is_the_same_each_time(make_run) -> None:
    folder = make_run(n_batches=2, epochs=2)
    assert build_report(folder).read_bytes() == build_report(folder).read_bytes()


def test_the_file_is_self_contained(outline, make_run) -> None:
    text = build_report(make_run(n_batches=2, epochs=2)).read_text(encoding="utf-8")
    page = outline(text)
    assert not {"script", "link", "img", "iframe", "object", "embed", "form", "base"} & set(page.tags)
    assert not re.search(r"url\(|@import|src=|https?://|\son\w+=", text)
    assert set(re.findall(r'href="(?!data:text/csv)([^"]*)"', text)) <= {f"#{name}" for name in page.ids}
    assert "default-src 'none'" in text


def test_wrong_use_is_named(make_run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one run folder"):
        build_report([])
    with pytest.raises(UsageError, match=r"results\.json is missing"):
        build_report(tmp_path)
    folder = make_run(batch_sizes=(8,), n_batches=1)
    with pytest.raises(UsageError, match=r"output must lie in an existing folder, got .*nowhere"):
        build_report(folder, tmp_path / "nowhere" / "report.html")
    with pytest.raises(UsageError, match="each run folder must be given once"):
        build_report([folder, folder], tmp_path / "both.html")


def test_a_failed_write_leaves_nothing_behind(make_run, tmp_path: Path) -> None:
    folder = make_run(batch_sizes=(8,), n_batches=1)
    target = tmp_path / "taken"
    target.mkdir()
    before = set(tmp_path.iterdir())
    with pytest.raises(OSError):
        build_report(folder, target)
    assert set(tmp_path.iterdir()) == before


def test_names_of_runs_tell_them_apart() -> None:
    assert run_names([Path("a/x"), Path("a/y")]) == ["x", "y"]
    assert run_names([Path("p/a/x"), Path("q/a/x")]) == ["p/a/x", "q/a/x"]
