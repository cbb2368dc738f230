"""Reading ``inversion.json``."""

import json
from pathlib import Path

import pytest

from lightleak.core.errors import UsageError
from lightleak.report.kinds.released_entries import ClassScores, Entry, LowColumn, Memorization, PseudoLabel, entries_of
from lightleak.report.read import Run, load_run


def entries(folder: Path, *raw: object) -> list[Entry]:
    (folder / "inversion.json").write_text(json.dumps({"schema_version": 1, "entries": raw}))
    return entries_of([Run("run", folder)])


def test_every_part_is_read(make_released) -> None:
    folder = make_released(evaluations=1)
    raw = json.loads((folder / "inversion.json").read_text())["entries"][0]
    found = entries_of([load_run(folder, "mine")])[0]
    assert (found.run, found.attack, found.label, found.setting, found.seed) == ("mine", "plgmi", "plgmi", "2", 0)
    assert found.class_shapes.groups == tuple(raw["class_shapes"]["groups"])
    assert found.class_shapes.classes == tuple(
        ClassScores(one["class"], one["scores"]) for one in raw["class_shapes"]["classes"]
    )
    assert found.column_shapes == raw["column_shapes"]
    assert found.lowest[0] == LowColumn(**raw["lowest_columns"][0])
    assert [one.private for one in found.nearest] == [one["private"] for one in raw["nearest"]]
    assert found.losses == {name: tuple(values) for name, values in raw["losses"].items()}
    assert found.pseudo_labels[-1] == PseudoLabel("518", 3, 0, "3 public rows, at least 20 are needed")
    assert found.memorization is not None
    assert found.memorization.share == raw["memorisation"]["share_nearer_to_train"]
    assert found.size("public_rows") == 37208 and found.target_scores["epochs"] == 29


def test_every_part_may_be_missing(tmp_path: Path) -> None:
    (empty,) = entries(tmp_path, {"attack": "a"})
    assert empty == Entry("a", run="run")
    parts = ("class_shapes", "column_shapes", "lowest_columns", "nearest", "losses", "pseudo_labels", "memorisation",
             "task", "target_scores", "evaluation_scores")  # fmt: skip
    assert entries(tmp_path, {"attack": "a"} | dict.fromkeys(parts)) == [empty]


def test_values_that_are_unknown_are_left_out(tmp_path: Path) -> None:
    raw = {
        "attack": "a",
        "lowest_columns": [{"column": "x"}, {"column": "y", "score": 0.5}],
        "nearest": [
            {"class": "1", "distance": 0.1},
            {"class": "2", "private": {"a": 1}, "reconstructed": {"a": 2}},
        ],
        "losses": {"iteration": [0, 1], "generator": [1.0, float("nan")]},
        "memorisation": {"share_nearer_to_train": 0.5, "low": None},
        "task": {"classes": {"428": 5, "414": 4}, "features": ["a", "b", "c"], "public_rows": 10, "rule": "class"},
    }
    (found,) = entries(tmp_path, raw)
    assert [one.score for one in found.lowest] == [None, 0.5]
    assert [one.class_name for one in found.pairs] == ["2"]  # a redacted run has no rows
    assert found.losses == {"iteration": (0.0, 1.0), "generator": (1.0, None)}
    assert found.memorization == Memorization(share=0.5)
    names = ("classes", "features", "public_rows", "rule", "private_rows")
    assert [found.size(name) for name in names] == [2, 3, 10, None, None]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("nonsense", "expected JSON"),
        ("[]", "a list 'entries'"),
        ('{"schema_version": 2, "entries": []}', "schema_version must be 1, got 2"),
        ('{"schema_version": 1, "entries": [3]}', "entry 0: expected a mapping, got 3"),
        ('{"schema_version": 1, "entries": [{}]}', "entry 0, key 'attack': expected text"),
        ('{"schema_version": 1, "entries": [{"attack": "a", "task": 3}]}', "key 'task': expected a mapping"),
    ],
)
def test_damage_is_named(tmp_path: Path, content: str, says: str) -> None:
    assert entries_of([Run("run", tmp_path)]) == []
    (tmp_path / "inversion.json").write_text(content)
    with pytest.raises(UsageError, match=says):
        entries_of([Run("run", tmp_path)])
