"""Reading vertical run folders."""

import json

import pytest

from lightleak.core.errors import UsageError
from lightleak.report.vertical.norms import load_norms
from lightleak.report.vertical.run_folder import load_vertical_run


def test_a_run_holds_rows_norms_and_settings(make_vertical) -> None:
    run = load_vertical_run(make_vertical(seeds=(0, 1), attacks=("aia",), properties=("sex=Male",)), "mine")
    assert [(one.adversary, one.seed, one.run) for one in run.results] == [
        ("C1", 0, "mine"), ("C2", 0, "mine"), ("C1", 1, "mine"), ("C2", 1, "mine"),
    ]  # fmt: skip
    assert run.folder.title == "What two insurers tell each other"
    assert {entry.kind for entry in run.norms} == {"AO", "AG", "VO", "VG"}
    entry = run.norms[0]
    assert len(entry.edges) == len(entry.having) + 1 == len(entry.lacking) + 1
    assert (entry.dataset, entry.property_name, entry.defense) == ("adult", "sex=Male", "none")


def test_damage_is_named(make_vertical) -> None:
    folder = make_vertical(seeds=(0,), norms=False)
    assert load_norms(folder, "run") == ()
    good = {"edges": [0, 1, 2], "with_property": [0.5, 0.5], "without_property": [0.2, 0.8]}
    for content, says in (
        ("nonsense", "expected JSON"),
        ("[]", "a list 'entries'"),
        (json.dumps({"schema_version": 2, "entries": []}), "schema_version must be 1, got 2"),
        (json.dumps({"schema_version": 1, "entries": [3]}), "entry 0: expected a mapping, got 3"),
        (json.dumps({"schema_version": 1, "entries": [good | {"edges": [0, 1]}]}), "got 2, 2 and 2"),
        (json.dumps({"schema_version": 1, "entries": [good | {"edges": [0, 0, 1]}]}), "edges must ascend"),
        (json.dumps({"schema_version": 1, "entries": [good | {"edges": [0, "a", 1]}]}), "a list of finite numbers"),
    ):
        (folder / "norms.json").write_text(content)
        with pytest.raises(UsageError, match=says):
            load_norms(folder, "run")
    (folder / "norms.json").write_text(
        json.dumps({"schema_version": 1, "entries": [good | {"distances": {"kl": None}}]})
    )
    (entry,) = load_norms(folder, "run")
    assert (entry.edges, entry.having, dict(entry.distances)) == ((0.0, 1.0, 2.0), (0.5, 0.5), {})
