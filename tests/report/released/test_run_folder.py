"""Reading run folders of audits of released models."""

import json

import pytest

from lightleak.core.errors import UsageError
from lightleak.report.released.run_folder import load_released_run


def test_a_run_holds_rows_entries_and_settings(make_released) -> None:
    run = load_released_run(make_released(attacks=("plgmi",), evaluations=2, classes=("428", "414")), "mine")
    assert [(one.run, one.class_name, one.evaluation_index) for one in run.results] == [
        ("mine", name, index) for index in (0, 1) for name in ("all", "428", "414")
    ]
    assert [entry.run for entry in run.entries] == ["mine"]
    assert run.folder.title == "What a diagnosis model gives away"


def test_a_row_without_an_attack_is_named(make_released) -> None:
    folder = make_released(evaluations=1)
    raw = json.loads((folder / "results.json").read_text())
    raw["rows"][3].pop("attack")
    (folder / "results.json").write_text(json.dumps(raw))
    with pytest.raises(UsageError, match=r"results\.json, row 3"):
        load_released_run(folder)
