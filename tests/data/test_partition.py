"""Partitions of rows over clients and of features over parties."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightleak.core.errors import DataError, UsageError
from lightleak.data.partition import partition_columns, partition_dirichlet, partition_iid
from lightleak.data.schema import Column, TableSchema


def assert_disjoint_cover(parts: tuple[np.ndarray, ...], n_rows: int) -> None:
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n_rows))
    assert all(np.array_equal(part, np.sort(part)) and part.dtype == np.int64 for part in parts)


def skew(parts: tuple[np.ndarray, ...], labels: np.ndarray) -> float:
    """Mean total-variation distance between a client's label distribution and the overall one."""
    n_classes = int(labels.max()) + 1
    overall = np.bincount(labels, minlength=n_classes) / len(labels)
    own = [np.bincount(labels[part], minlength=n_classes) / len(part) for part in parts]
    return float(np.mean([np.abs(o - overall).sum() / 2 for o in own]))


@given(st.integers(1, 300), st.integers(1, 20), st.integers(0, 5))
def test_iid_covers_every_row_once_in_equal_parts(n_rows, n_clients, seed) -> None:
    if n_rows < n_clients:
        with pytest.raises(DataError, match=f"{n_clients} clients .* need {n_clients} rows, got {n_rows}"):
            partition_iid(n_rows, n_clients, seed)
        return
    parts = partition_iid(n_rows, n_clients, seed)
    assert len(parts) == n_clients
    assert_disjoint_cover(parts, n_rows)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=200),
    st.integers(1, 8),
    st.sampled_from([1e-6, 0.05, 0.5, 5.0, 1e6]),
    st.integers(1, 5),
    st.integers(0, 3),
)
def test_dirichlet_covers_every_row_once_and_keeps_the_minimum(labels, n_clients, alpha, min_rows, seed) -> None:
    if len(labels) < n_clients * min_rows:
        with pytest.raises(DataError, match=f"need {n_clients * min_rows} rows, got {len(labels)}"):
            partition_dirichlet(labels, n_clients, alpha, seed, min_rows)
        return
    parts = partition_dirichlet(labels, n_clients, alpha, seed, min_rows)
    assert len(parts) == n_clients
    assert_disjoint_cover(parts, len(labels))
    assert min(map(len, parts)) >= min_rows


def test_skew_grows_as_alpha_falls() -> None:
    labels = np.random.default_rng(0).integers(0, 10, 5000)
    mean = [
        np.mean([skew(partition_dirichlet(labels, 10, alpha, seed), labels) for seed in range(5)])
        for alpha in (1000.0, 10.0, 1.0, 0.1, 0.01)
    ]
    assert np.all(np.diff(mean) > 0.05)
    iid = np.mean([skew(partition_iid(len(labels), 10, seed), labels) for seed in range(5)])
    assert abs(mean[0] - iid) < 0.05


def test_large_alpha_gives_nearly_equal_sizes() -> None:
    sizes = [len(part) for part in partition_dirichlet([0, 1] * 500, 5, 1e6, seed=0)]
    assert min(sizes) >= 195 and max(sizes) <= 205


def test_partitions_depend_on_the_seed_alone() -> None:
    labels = torch.arange(100) % 3
    first, again, other = (partition_dirichlet(labels, 4, 0.3, seed) for seed in (0, 0, 1))
    assert all(map(np.array_equal, first, again))
    assert not all(a.shape == b.shape and (a == b).all() for a, b in zip(first, other, strict=True))
    by_name = partition_dirichlet([["a", "b", "c"][i] for i in labels], 4, 0.3, 0)
    assert all(map(np.array_equal, first, by_name))
    assert not np.array_equal(partition_iid(100, 4, 0)[0], partition_iid(100, 4, 1)[0])


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_dirichlet_refuses_a_concentration_that_is_none(alpha) -> None:
    with pytest.raises(UsageError, match=f"alpha must be positive and finite, got {alpha}"):
        partition_dirichlet([0, 1, 0, 1], 2, alpha, 0)


def test_no_client_and_no_rows_are_refused() -> None:
    with pytest.raises(UsageError, match="n_clients and min_rows must be at least 1, got 0 and 1"):
        partition_iid(10, 0, 0)
    with pytest.raises(UsageError, match="got 2 and 0"):
        partition_dirichlet([0, 1], 2, 1.0, 0, min_rows=0)


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
    st.sampled_from([None, 0, 1]),
)
def test_features_are_dealt_out_whole(widths, ratio, by, seed) -> None:
    schema = schema_of(widths)
    if len(ratio) > len(widths):
        with pytest.raises(UsageError, match=f"must be between 1 and {len(widths)} .features., got {len(ratio)}"):
            partition_columns(schema, ratio=ratio, by=by, seed=seed)
        return
    parties = partition_columns(schema, ratio=ratio, by=by, seed=seed)
    assert len(parties) == len(ratio)
    assert all(parties)
    assert sorted(name for party in parties for name in party) == sorted(schema.names)
    for party in parties:
        assert list(party) == [name for name in schema.names if name in party]
    if seed is None:
        assert tuple(name for party in parties for name in party) == schema.names


def test_shares_count_features_or_encoded_positions() -> None:
    schema = schema_of([10, 1, 1, 1, 1, 6])
    assert [len(party) for party in partition_columns(schema)] == [3, 3]
    assert [len(party) for party in partition_columns(schema, by="width")] == [1, 5]
    assert [len(party) for party in partition_columns(schema, ratio=[1, 2])] == [2, 4]
    assert [len(party) for party in partition_columns(schema, n_parties=6)] == [1] * 6


def test_a_seed_shuffles_the_features() -> None:
    schema = schema_of([1] * 12)
    assert partition_columns(schema, seed=0) == partition_columns(schema, seed=0)
    assert len({partition_columns(schema, seed=seed) for seed in range(5)}) == 5


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
    with pytest.raises(UsageError, match="exclude ratio and seed"):
        partition_columns(schema, explicit=[["f0", "f1", "f2"]], ratio=[1])
    for ratio in ([0.0, 1.0], [-1, 2], [float("nan"), 1]):
        with pytest.raises(UsageError, match="ratio must hold positive numbers"):
            partition_columns(schema, ratio=ratio)
