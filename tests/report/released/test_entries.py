"""Reading ``inversion.json``."""

import json
from pathlib import Path

import pytest

from lightleak.core.errors import UsageError
from lightleak.report.released.entries import Entry, LowColumn, Memorisation, PseudoLabel, load_entries, parse_entry

NAMED_NUMBERS = ("column_shapes", "task", "target_scores", "evaluation_scores")
"""Parts that are any names with numbers."""


def test_every_part_is_read(make_released) -> None:
    folder = make_released(evaluations=1)
    raw = json.loads((folder / "inversion.json").read_text())["entries"][0]
    found = load_entries(folder, "mine")[0]
    assert (found.run, found.attack, found.label, found.setting, found.seed) == ("mine", "plgmi", "plgmi", "2", 0)
    assert found.class_shapes is not None
    assert found.class_shapes.groups == tuple(raw["class_shapes"]["groups"])
    assert found.class_shapes.classes == {one["class"]: one["scores"] for one in raw["class_shapes"]["classes"]}
    assert found.column_shapes == raw["column_shapes"]
    assert found.lowest[0] == LowColumn(**raw["lowest_columns"][0])
    assert [one.private for one in found.nearest] == [one["private"] for one in raw["nearest"]]
    assert found.losses == {name: tuple(values) for name, values in raw["losses"].items()}
    assert found.pseudo_labels[-1] == PseudoLabel("518", 3, 0, "3 public rows, at least 20 are needed")
    assert found.memorisation is not None and found.memorisation.share == raw["memorisation"]["share_nearer_to_train"]
    assert found.task["public_rows"] == 37208 and found.target_scores["epochs"] == 29


def test_every_part_may_be_missing_or_of_another_kind() -> None:
    empty = parse_entry({"attack": "a"}, "run", "entry 0")
    assert empty == Entry("run", "a", "a")
    parts = ("class_shapes", "column_shapes", "lowest_columns", "nearest", "losses", "pseudo_labels", "memorisation",
             "task", "target_scores", "evaluation_scores")  # fmt: skip
    for odd in (None, 3, "text", [], {}, [3], {"a": "b"}, {"groups": 3}):
        for part in parts:
            if not (odd == {"groups": 3} and part in NAMED_NUMBERS):
                assert parse_entry({"attack": "a", part: odd}, "run", "entry 0") == empty


def test_damaged_values_are_left_out() -> None:
    raw = {
        "attack": "a",
        "class_shapes": {"groups": 3, "classes": [{"class": "x", "scores": 3}]},
        "lowest_columns": [{"column": "x"}, {"column": "y", "score": 0.5}],
        "nearest": [
            {"class": "1", "private": {"a": 1}},
            {"class": "2", "private": {"a": 1}, "reconstructed": {"a": 2}},
        ],
        "losses": {"iteration": [0, 1], "generator": [1.0, float("nan")], "odd": [1], "inversion": "text"},
        "memorisation": {"share_nearer_to_train": 0.5, "low": None},
        "task": {"classes": {"428": 5, "414": 4}, "features": ["a", "b", "c"], "public_rows": 10, "rule": "class"},
    }
    found = parse_entry(raw, "run", "entry 0")
    assert found.class_shapes is None
    assert [one.column for one in found.lowest] == ["y"]
    assert [one.class_name for one in found.nearest] == ["2"]
    assert found.losses == {"iteration": (0.0, 1.0), "generator": (1.0, None)}
    assert found.memorisation == Memorisation(None, None, 0.5, None, None, None)
    assert found.task == {"classes": 2, "features": 3, "public_rows": 10}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("nonsense", "expected JSON"),
        ("[]", "a list 'entries'"),
        ('{"schema_version": 2, "entries": []}', "schema_version must be 1, got 2"),
        ('{"schema_version": 1, "entries": [3]}', "entry 0: expected a mapping with the name of an 'attack', got 3"),
        ('{"schema_version": 1, "entries": [{}]}', "entry 0: expected"),
    ],
)
def test_damage_is_named(tmp_path: Path, content: str, says: str) -> None:
    assert load_entries(tmp_path, "run") == ()
    (tmp_path / "inversion.json").write_text(content)
    with pytest.raises(UsageError, match=says):
        load_entries(tmp_path, "run")
