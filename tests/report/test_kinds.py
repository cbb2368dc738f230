"""Telling kinds of run apart."""

import json
from pathlib import Path
from typing import Any

import pytest

from lightleak.core.errors import UsageError
from lightleak.report import build_report
from lightleak.report.kinds import kind_of_runs

KINDS = ("gradient inversion", "vertical", "released-model")


def folder_of(path: Path, rows: list[dict[str, Any]], config: str | None = None) -> Path:
    path.mkdir()
    (path / "results.json").write_text(json.dumps({"schema_version": 1, "rows": rows, "summary": []}))
    if config is not None:
        (path / "config.yaml").write_text(config)
    return path


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (None, KINDS[0]),
        ("horizontal", KINDS[0]),
        (["vertical"], KINDS[0]),
        ("vertical", KINDS[1]),
        ("released-model", KINDS[2]),
    ],
)
def test_rows_say_what_kind_a_run_is_and_else_the_config(tmp_path: Path, named: Any, expected: str) -> None:
    row = {"attack": "a"} | ({} if named is None else {"kind": named})
    assert kind_of_runs([folder_of(tmp_path / "rows", [row], "kind: vertical")]) == expected
    config = "" if named is None else f"kind: {json.dumps(named)}"
    assert kind_of_runs([folder_of(tmp_path / "config", [], config)]) == expected
    assert kind_of_runs([folder_of(tmp_path / "nothing", [])]) == KINDS[0]


@pytest.mark.parametrize("content", ["nonsense", "[]", '{"rows": 3}', '{"rows": [3]}', '{"rows": null}'])
def test_what_cannot_be_read_is_left_to_its_reader(tmp_path: Path, content: str) -> None:
    (tmp_path / "results.json").write_text(content)
    assert kind_of_runs([tmp_path]) == KINDS[0]
    assert kind_of_runs([tmp_path / "nowhere"]) == KINDS[0]


@pytest.mark.parametrize(("first", "second"), [(0, 1), (0, 2), (1, 2)])
def test_kinds_are_not_mixed(tmp_path: Path, first: int, second: int) -> None:
    rows = [{"attack": "a", "property": "p", "kind": KINDS[index]} for index in (first, second)]
    folders = [folder_of(tmp_path / name, [row]) for name, row in zip("ab", rows, strict=True)]
    said = rf"one report of each; got .*a: {KINDS[first]}; .*b: {KINDS[second]}"
    with pytest.raises(UsageError, match=said):
        build_report(folders, tmp_path / "both.html")
    both = folder_of(tmp_path / "both", rows)
    with pytest.raises(UsageError, match=f"both: {' and '.join(sorted((KINDS[first], KINDS[second])))}"):
        build_report(both)


def test_each_kind_has_its_page(make_run, tmp_path: Path) -> None:
    pages = {}
    for kind in KINDS[1:]:
        row = {"attack": "a", "property": "p", "kind": kind}
        pages[kind] = build_report(folder_of(tmp_path / kind, [row])).read_text()
    pages[KINDS[0]] = build_report(make_run(batch_sizes=(8,), n_batches=1)).read_text()
    assert "vertical federated learning" in pages["vertical"]
    assert "Model inversion turns that around" in pages["released-model"]
    assert "Honest but curious" in pages["gradient inversion"]
