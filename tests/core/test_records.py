"""Reading and writing of frozen dataclasses, driven by their annotations."""

import json
import runpy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.core.errors import UsageError
from lightleak.core.records import LONGEST_QUOTE, json_field, quoted, read_record, to_json, write_record

schema_of = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "site" / "results_schema.py"))["schema_of"]


@dataclass(frozen=True)
class Part:
    """A part.

    Attributes:
        name: what it is
            called.
    """

    name: str
    share: float | None = json_field(low=0, high=1, default=None)


@dataclass(frozen=True, kw_only=True)
class Whole:
    """Every sort of field.

    Attributes:
        count: how many.
    """

    count: int = json_field(key="n", low=0)
    kind: Literal["a", "b"] | None = None
    seed: int | str | None = None
    is_best: bool = False
    sizes: tuple[int, ...] = ()
    pair: tuple[float | None, float | None] | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    anything: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    place: str = json_field(written=False, default="")


FULL = {
    "n": 3,
    "kind": "a",
    "seed": "x",
    "is_best": True,
    "sizes": [8, 32],
    "pair": [0.5, None],
    "scores": {"age": 0.25},
    "anything": {"steps": None, "deep": {"a": [1]}},
    "parts": [{"name": "first", "share": 1.0}],
}


def test_a_record_is_read_and_written_back() -> None:
    found = read_record(Whole, FULL, "file")
    assert found == Whole(
        count=3,
        kind="a",
        seed="x",
        is_best=True,
        sizes=(8, 32),
        pair=(0.5, None),
        scores={"age": 0.25},
        anything={"steps": None, "deep": {"a": [1]}},
        parts=(Part("first", 1.0),),
    )
    assert write_record(found) == FULL
    assert json.loads(json.dumps(write_record(found))) == FULL


@pytest.mark.parametrize("unknown", [None, float("nan"), float("inf")])
def test_what_is_unknown_reads_as_the_default(unknown: float | None) -> None:
    assert read_record(Part, {"name": "a", "share": unknown}, "file") == Part("a")
    assert read_record(Whole, {"n": 1, "scores": {"age": unknown}}, "file") == Whole(count=1)
    assert write_record(Part("a")) == {"name": "a"}


def test_values_that_are_given_are_not_read() -> None:
    found = read_record(Whole, {"n": 1, "place": "in the file"}, "file", place="given")
    assert found.place == "given"
    assert "place" not in write_record(found)
    assert read_record(Whole, {"n": 1, "place": "in the file"}, "file").place == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": None}, "key 'n': expected a whole number, got nothing"),
        ({"n": 2.5}, "key 'n': expected a whole number, got 2.5"),
        ({"n": True}, "key 'n': expected a whole number, got True"),
        ({"n": -1}, "key 'n': expected at least 0, got -1"),
        ({"kind": "c"}, "key 'kind': expected one of a, b, got 'c'"),
        ({"seed": [1]}, r"key 'seed': expected a whole number or text, got \[1\]"),
        ({"is_best": 1}, "key 'is_best': expected true or false, got 1"),
        ({"sizes": 8}, "key 'sizes': expected a list, got 8"),
        ({"sizes": [8, "x"]}, "key 'sizes', entry 1: expected a whole number, got 'x'"),
        ({"pair": [1]}, r"key 'pair': expected a list of 2, got \[1\]"),
        ({"scores": [1]}, r"key 'scores': expected a mapping, got \[1\]"),
        ({"scores": {"age": "high"}}, "key 'scores', key 'age': expected a number, got 'high'"),
        ({"parts": [{}]}, "key 'parts', entry 0, key 'name': expected text, got nothing"),
        ({"parts": [{"name": "a", "share": 1.5}]}, "key 'parts', entry 0, key 'share': expected at most 1, got 1.5"),
        ({"parts": [3]}, "key 'parts', entry 0: expected a mapping, got 3"),
    ],
)
def test_an_error_names_the_place_and_what_is_expected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^results.json, row 2, {message}$"):
        read_record(Whole, FULL | change, "results.json, row 2")


@pytest.mark.parametrize("raw", [None, [], "text", 3])
def test_only_a_mapping_is_a_record(raw: object) -> None:
    with pytest.raises(UsageError, match="file: expected a mapping, got"):
        read_record(Part, raw, "file")


def test_rounding_at_the_end_of_a_range_is_no_error() -> None:
    assert read_record(Part, {"name": "a", "share": 1 + 1e-9}, "file").share == 1 + 1e-9


def test_a_long_value_is_cut_in_an_error() -> None:
    assert quoted("short") == "'short'"
    assert len(quoted("x" * 1000)) == LONGEST_QUOTE


@given(
    st.builds(
        Whole,
        count=st.integers(0, 10**9),
        kind=st.none() | st.sampled_from(["a", "b"]),
        seed=st.none() | st.integers() | st.text(min_size=1),
        sizes=st.lists(st.integers()).map(tuple),
        pair=st.none() | st.tuples(st.none() | st.floats(-1, 1), st.floats(-1, 1)),
        scores=st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)),
        parts=st.lists(st.builds(Part, name=st.text(min_size=1), share=st.none() | st.floats(0, 1))).map(tuple),
    )
)
def test_writing_and_reading_is_the_identity(record: Whole) -> None:
    assert read_record(Whole, json.loads(json.dumps(write_record(record))), "file") == record


def test_json_has_no_number_that_is_not_finite() -> None:
    assert to_json({1: (float("nan"), 2.0), "a": Part("b", float("inf"))}) == {"1": [None, 2.0], "a": {"name": "b"}}


def test_the_schema_follows_the_annotations() -> None:
    found = schema_of(Whole)
    assert found["required"] == ["n"]
    assert found["properties"]["n"] == {"type": "integer", "minimum": 0, "description": "how many."}
    assert found["properties"]["kind"] == {"enum": ["a", "b"]}
    assert found["properties"]["seed"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert found["properties"]["scores"] == {"type": "object", "additionalProperties": {"type": "number"}}
    part = found["properties"]["parts"]["items"]
    assert part["properties"]["name"]["description"] == "what it is called."
    assert part["properties"]["share"] == {"type": "number", "minimum": 0, "maximum": 1}
    assert "place" not in found["properties"]
