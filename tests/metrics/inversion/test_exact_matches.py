"""Samples equal to a private row, against a set of tuples."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch

from lightleak.core.errors import UsageError
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import Column, TableSchema
from lightleak.metrics.cells import Cells
from lightleak.metrics.inversion.exact_matches import exact_match_rate
from lightleak.metrics.inversion.table import class_labels


def tuples(rows: pd.DataFrame, names: list[str]) -> list[tuple]:
    return list(rows[names].itertuples(index=False, name=None))


def test_matches_are_those_of_a_set(schema: TableSchema, make_rows: Callable):
    coarse = {"height": 170.0, "bmi": 27.5}  # so that rows meet by chance
    private, samples = make_rows(0, 400).assign(**coarse), make_rows(1, 300).assign(**coarse)
    private = private[private["code"] != "1"]
    found = exact_match_rate(samples, class_labels(samples, schema), private, class_labels(private, schema), schema)
    names = list(schema.names)
    known, labeled = set(tuples(private, names)), set(tuples(private, [*names, "code"]))
    hits = [row in known for row in tuples(samples, names)]
    of_class = [row in labeled for row in tuples(samples, [*names, "code"])]
    assert 0 < sum(of_class) < sum(hits) < 300
    assert found.rate == pytest.approx(sum(hits) / 300)
    assert found.with_label == pytest.approx(sum(of_class) / 300)
    by_class = pd.DataFrame({"hit": hits, "of_class": of_class}).groupby(samples["code"]).mean()
    assert found.per_class.tolist() == pytest.approx(by_class["hit"].tolist())
    assert found.per_class_with_label.tolist() == pytest.approx(by_class["of_class"].tolist())
    assert found.per_class_with_label[1] == 0 < found.per_class[1]  # no private row of class 1


def one_number(values: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"x": values})


@pytest.mark.parametrize(
    ("private", "sample", "equal"),
    [
        ([27.5, 30.1], 27.500001, True),  # written with one decimal
        ([27.5, 30.1], 27.52, True),
        ([27.5, 30.1], 27.56, False),
        ([20.0, 40.0], 20.4, True),  # written without decimals
        ([100.25, 3.0], 100.2549, True),
        ([100.25, 3.0], 100.24, False),
        ([1 / 3, 1000.0], 1 / 3 + 1e-4, True),  # no end of decimals: steps of 1e-5 of the range
        ([1 / 3, 1000.0], 1 / 3 + 2e-2, False),
        ([1 / 3, 1 / 3], 1 / 3 + 1e-8, True),  # and no range either
        ([1 / 3, 1 / 3], 0.9, False),
    ],
)
def test_numbers_are_rounded_as_the_private_column_is(private: list[float], sample: float, equal: bool):
    schema = TableSchema((Column.continuous("x"),), Column.categorical("y", ["0", "1"]))
    labels = torch.zeros(2).long()
    found = exact_match_rate(one_number([sample]), labels[:1], one_number(private), labels, schema)
    assert found.rate == float(equal)


@pytest.mark.parametrize(("columns", "place", "decimals"), [(1, 0.0, 12), (30, 1e5, 12), (1, 0.0, 2), (0, 0.0, 2)])
def test_rows_equal_themselves_after_encoding_and_decoding(columns: int, place: float, decimals: int):
    """Rounding to float32 carries some numbers over the edge of a step, or from one cent to the next."""
    numbers = np.random.default_rng(0).normal(place, 1e5, (4000, columns)).round(decimals)
    rows = pd.DataFrame(numbers, columns=[f"x{i}" for i in range(columns)]).assign(
        a=["1", "2"] * 2000, y=["0", "1"] * 2000
    )
    schema = TableSchema.infer(rows, "y")
    encoder = TableEncoder(schema).fit(rows)
    labels = class_labels(rows, schema)
    found = exact_match_rate(encoder.decode(encoder.encode(rows)), labels, rows, labels, schema)
    assert (found.rate, found.with_label) == (1, 1)


def test_fine_numbers_match_within_half_a_step_of_one_and_the_same_row():
    rng, step = np.random.default_rng(0), 1e-5
    rows = pd.DataFrame({"u": rng.random(300), "v": rng.random(300), "a": ["1", "2", "3"] * 100, "y": ["0", "1"] * 150})
    rows.loc[:1, ["u", "v"]] = [[0.0, 0.0], [1.0, 1.0]]  # the range is 1
    schema = TableSchema.infer(rows, "y")
    moved = rows.assign(u=rows["u"] + rng.uniform(-step, step, 300), v=rows["v"] + rng.uniform(-step, step, 300))
    moved["a"] = np.where(rng.random(300) < 0.1, "1", moved["a"])
    one, other = moved[["u", "v"]].to_numpy()[:, None], rows[["u", "v"]].to_numpy()
    equal = (abs(one - other) < step / 2).all(2) & (moved["a"].to_numpy()[:, None] == rows["a"].to_numpy())
    labels = class_labels(rows, schema)
    found = exact_match_rate(moved, labels, rows, labels, schema)
    assert found.rate == equal.any(1).mean()
    assert 0.1 < found.rate < 0.4


def test_a_number_that_is_none_equals_nothing():
    schema = TableSchema((Column.continuous("x"),), Column.categorical("y", ["0", "1"]))
    private = Cells(torch.zeros(3, 0).long(), torch.tensor([[1 / 3], [2 / 3], [1.0]], dtype=torch.float64))
    samples = Cells(private.codes, torch.tensor([[float("nan")], [2 / 3], [float("inf")]], dtype=torch.float64))
    labels = torch.zeros(3).long()
    assert exact_match_rate(samples, labels, private, labels, schema).rate == pytest.approx(1 / 3)


def test_whole_numbers_are_never_rounded_away():
    schema = TableSchema((Column.integer("x"),), Column.categorical("y", ["0", "1"]))
    private, samples = one_number([10, 20]), one_number([10, 11, 20])
    found = exact_match_rate(samples, torch.tensor([0, 0, 1]), private, torch.tensor([0, 0]), schema)
    assert found.rate == pytest.approx(2 / 3)
    assert found.with_label == pytest.approx(1 / 3)


def test_classes_without_samples_are_unknown(schema: TableSchema, make_rows: Callable):
    rows = make_rows(0, 20)
    found = exact_match_rate(rows, torch.zeros(20).long(), rows, torch.zeros(20).long(), schema)
    assert (found.rate, found.with_label) == (1, 1)
    assert found.per_class[0] == 1 and found.per_class[1:].isnan().all()
    with pytest.raises(UsageError, match="private rows"):
        exact_match_rate(rows, torch.zeros(20).long(), rows[:0], torch.zeros(0).long(), schema)
