"""Samples equal to a private row, against a set of tuples."""

from collections.abc import Callable

import pandas as pd
import pytest
import torch

from lightleak.core.errors import UsageError
from lightleak.data.schema import Column, TableSchema
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
