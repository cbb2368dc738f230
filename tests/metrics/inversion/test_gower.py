"""Gower's distance against a loop over cells, and the nearest rows against all pairs."""

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightleak.core.errors import UsageError
from lightleak.data.schema import Column, TableSchema
from lightleak.metrics.inversion.gower import (
    SAME_DISTANCE,
    GowerSpace,
    column_ranges,
    nearest_of_class,
    nearest_rows,
)
from lightleak.metrics.inversion.table import as_cells, class_labels, take


def loop(first: pd.DataFrame, second: pd.DataFrame, schema: TableSchema, ranges: dict[str, float]) -> np.ndarray:
    """Every pair and every cell by thesis Eq. 3.20 to 3.22."""
    found = np.zeros((len(first), len(second)))
    for i, x in enumerate(first.to_dict("records")):
        for j, y in enumerate(second.to_dict("records")):
            for column in schema.columns:
                a, b = x[column.name], y[column.name]
                if not column.is_numerical:
                    found[i, j] += a != b
                elif ranges[column.name]:
                    found[i, j] += abs(a - b) / ranges[column.name]
                else:
                    found[i, j] += a != b
    return found / len(schema.columns)


def own_ranges(rows: pd.DataFrame, schema: TableSchema) -> dict[str, float]:
    return {c.name: rows[c.name].max() - rows[c.name].min() for c in schema.numerical}


@pytest.mark.parametrize("chunk", [None, 1, 7])
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_nearest_rows_are_those_of_all_pairs(chunk: int | None, shift: float, schema: TableSchema, make_rows: Callable):
    rows, queries = make_rows(0, 60), make_rows(1, 30, shift)
    expected = loop(queries, rows, schema, own_ranges(rows, schema))
    distance, index = nearest_rows(queries, rows, schema, chunk=chunk)
    assert distance.numpy() == pytest.approx(expected.min(1), abs=SAME_DISTANCE / 7)
    assert distance.numpy() == pytest.approx(expected[np.arange(30), index.numpy()], abs=1e-12)


def test_every_pair_is_compared(schema: TableSchema, make_rows: Callable):
    rows, queries = make_rows(0, 40), make_rows(1, 30, 1.0)
    cells = [as_cells(some, schema) for some in (queries, rows)]
    found = torch.cat([part for _, part in GowerSpace.of(cells[1], schema).compare(*cells, chunk=7)])
    expected = 7 * loop(queries, rows, schema, own_ranges(rows, schema))
    assert found.numpy() == pytest.approx(expected, abs=SAME_DISTANCE / 2)


def test_ranges_may_be_those_of_other_rows(schema: TableSchema, make_rows: Callable):
    rows, queries, others = make_rows(0, 20), make_rows(1, 10), make_rows(2, 500, 1.0)
    expected = loop(queries, rows, schema, own_ranges(others, schema))
    distance, _ = nearest_rows(queries, rows, schema, ranges=column_ranges(others, schema))
    assert distance.numpy() == pytest.approx(expected.min(1), abs=1e-6)


def test_a_column_without_a_range_is_equal_or_not(schema: TableSchema, make_rows: Callable):
    rows = make_rows(0, 20).assign(visits=3, bmi=0.1)
    queries = make_rows(1, 10).assign(visits=[3, 4] * 5, bmi=[0.1, 0.1, 0.1, 7.0, 0.3] * 2)
    expected = loop(queries, rows, schema, own_ranges(rows, schema))
    assert nearest_rows(queries, rows, schema)[0].numpy() == pytest.approx(expected.min(1), abs=1e-6)


@pytest.mark.parametrize("kinds", ["numbers", "signs", "categories"])
def test_tables_of_one_kind_of_column(kinds: str, schema: TableSchema, make_rows: Callable):
    chosen = {"numbers": schema.numerical, "signs": schema.columns[3:6:2], "categories": schema.columns[1:2]}
    narrow = TableSchema(tuple(chosen[kinds]), schema.label)
    rows, queries = make_rows(0, 5), make_rows(1, 40)
    expected = loop(queries, rows, narrow, own_ranges(rows, narrow))
    assert nearest_rows(queries, rows, narrow)[0].numpy() == pytest.approx(expected.min(1), abs=1e-6)


@settings(max_examples=25)
@given(st.integers(0, 1000))
def test_a_row_is_its_own_nearest_and_order_does_not_matter(seed: int):
    columns = (Column.integer("a"), Column.continuous("b"), Column.categorical("c", ["x", "y", "z"]))
    schema = TableSchema(columns, Column.categorical("y", ["0", "1"]))
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame({"a": rng.integers(-5, 5, 9), "b": rng.normal(0, 1e4, 9), "c": rng.choice(list("xyz"), 9)})
    distance, index = nearest_rows(rows, rows, schema)
    assert distance.tolist() == [0.0] * 9
    assert index.tolist() == list(range(9))  # normal numbers do not repeat
    order = rng.permutation(9)
    others = rows.iloc[rng.integers(0, 9, 4)].assign(a=0)
    first, second = (nearest_rows(others, some, schema)[0] for some in (rows, rows.iloc[order]))
    assert first.tolist() == pytest.approx(second.tolist(), abs=SAME_DISTANCE / 3)


def test_closest_pairs_are_those_of_the_class(schema: TableSchema, make_rows: Callable):
    samples, private = make_rows(1, 80, 0.5), make_rows(0, 120)
    samples = samples[samples["code"] != "3"].reset_index(drop=True)
    private = private[private["code"] != "2"].reset_index(drop=True)
    labels, private_labels = class_labels(samples, schema), class_labels(private, schema)
    found = nearest_of_class(samples, labels, private, private_labels, schema)
    expected = loop(samples, private, schema, own_ranges(private, schema))
    expected[labels.numpy()[:, None] != private_labels.numpy()] = np.inf
    for label in (0, 1):
        of_class = expected[labels.numpy() == label]
        sample, row, distance = found.closest(label)
        assert distance == pytest.approx(of_class.min(), abs=1e-6)
        assert distance == pytest.approx(expected[sample, row], abs=1e-12)
        assert found.per_class[label] == pytest.approx(of_class.min(1).mean(), abs=1e-6)
    assert found.closest(2) is None and found.closest(3) is None  # no private rows; no samples
    assert found.per_class[2:].isnan().all()
    with_pair = labels.numpy() < 2
    assert found.distance.isnan().tolist() == (~with_pair).tolist()
    assert (found.nearest >= 0).tolist() == with_pair.tolist()
    assert found.mean == pytest.approx(expected[with_pair].min(1).mean(), abs=1e-6)


def test_many_rows_need_no_matrix_of_all_pairs(
    schema: TableSchema, make_rows: Callable, monkeypatch: pytest.MonkeyPatch
):
    rows, queries = as_cells(make_rows(0, 3000), schema), as_cells(make_rows(1, 2000), schema)
    expected = nearest_rows(queries, rows, schema)[0]
    monkeypatch.setattr("lightleak.metrics.inversion.gower.PAIRS_AT_ONCE", 30_000)
    cdist, shapes = torch.cdist, []
    monkeypatch.setattr(torch, "cdist", lambda x, y, p: shapes.append(len(x) * len(y)) or cdist(x, y, p=p))
    assert torch.equal(nearest_rows(queries, rows, schema)[0], expected)
    assert max(shapes) <= 30_000 and sum(shapes) == 2000 * 3000


def test_no_queries_and_wrong_use(schema: TableSchema, make_rows: Callable):
    rows = as_cells(make_rows(0, 10), schema)
    none = take(rows, torch.arange(0))
    distance, index = nearest_rows(none, rows, schema)
    assert distance.shape == index.shape == (0,)
    assert math.isnan(nearest_of_class(none, index, rows, torch.zeros(10).long(), schema).mean)
    with pytest.raises(UsageError, match="rows: at least one"):
        nearest_rows(rows, none, schema)
    with pytest.raises(UsageError, match="chunk must be at least 1, got 0"):
        nearest_rows(rows, rows, schema, chunk=0)
    for ranges in (torch.ones(3), -torch.ones(4), torch.full((4,), torch.inf)):
        with pytest.raises(UsageError, match="ranges must be 4"):
            nearest_rows(rows, rows, schema, ranges=ranges)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_finds_the_same_distances(schema: TableSchema, make_rows: Callable):
    rows, queries = make_rows(0, 500), make_rows(1, 300)
    there, here = (nearest_rows(queries, rows, schema, device=device)[0] for device in ("cuda", "cpu"))
    assert there.numpy() == pytest.approx(here.numpy(), abs=SAME_DISTANCE)
