"""Partitions of features over parties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightleak.core.errors import UsageError
from lightleak.data.partition import partition_columns
from lightleak.data.schema import Column, TableSchema


def schema_of(widths: list[int]) -> TableSchema:
    columns = tuple(
        Column.integer(f"f{i}") if width == 1 else Column.categorical(f"f{i}", [str(c) for c in range(width)])
        for i, width in enumerate(widths)
    )
    return TableSchema(columns, Column.categorical("label", ["0", "1"]))


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=12),
    st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5),
    st.sampled_from(["features", "width"]),
)
def test_features_are_dealt_out_whole(widths, ratio, by) -> None:
    schema = schema_of(widths)
    if len(ratio) > len(widths):
        with pytest.raises(UsageError, match=f"must be between 1 and {len(widths)} .features., got {len(ratio)}"):
            partition_columns(schema, ratio=ratio, by=by)
        return
    parties = partition_columns(schema, ratio=ratio, by=by)
    assert len(parties) == len(ratio)
    assert all(parties)
    assert tuple(name for party in parties for name in party) == schema.names


def test_shares_count_features_or_encoded_positions() -> None:
    schema = schema_of([10, 1, 1, 1, 1, 6])
    assert [len(party) for party in partition_columns(schema)] == [3, 3]
    assert [len(party) for party in partition_columns(schema, by="width")] == [1, 5]
    assert [len(party) for party in partition_columns(schema, ratio=[1, 2])] == [2, 4]
    assert [len(party) for party in partition_columns(schema, ratio=[1] * 6)] == [1] * 6


def test_explicit_lists_are_kept_in_schema_order() -> None:
    schema = schema_of([1, 2, 3])
    assert partition_columns(schema, explicit=[["f2", "f0"], ["f1"]]) == (("f0", "f2"), ("f1",))


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([["f0"], ["f1", "f9"]], r"unknown: \['f9'\]"),
        ([["f0"], ["f0", "f1", "f2"]], r"named twice: \['f0'\]"),
        ([["f0"], ["f1"]], r"of no party: \['f2'\]"),
        ([["f0", "f1", "f2"], []], "at least one column, got an empty list"),
    ],
)
def test_explicit_lists_must_cover_every_feature_once(lists, message) -> None:
    with pytest.raises(UsageError, match=message):
        partition_columns(schema_of([1, 2, 3]), explicit=lists)


def test_contradicting_or_meaningless_shares_are_refused() -> None:
    schema = schema_of([1, 2, 3])
    with pytest.raises(UsageError, match="exclude ratio"):
        partition_columns(schema, explicit=[["f0", "f1", "f2"]], ratio=[1])
    for ratio in ([0.0, 1.0], [-1, 2], [float("nan"), 1]):
        with pytest.raises(UsageError, match="ratio must hold positive numbers"):
            partition_columns(schema, ratio=ratio)
