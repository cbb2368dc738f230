"""Column shapes equal those of sdmetrics, over all rows and within classes."""

import warnings
from collections.abc import Callable
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
import torch

from lightleak.core.errors import DataError, UsageError
from lightleak.data.schema import Column, TableSchema
from lightleak.metrics.inversion.column_shapes import (
    class_shapes,
    column_kind,
    column_shapes,
    lowest_columns,
    shapes_by_kind,
    shapes_score,
)
from lightleak.metrics.inversion.table import as_cells, class_labels

SIZES = [(300, 200), (7, 900), (1, 5), (12000, 40)]


def by_sdmetrics(real: pd.DataFrame, synthetic: pd.DataFrame, schema: TableSchema) -> dict[str, float]:
    from sdmetrics.single_column import KSComplement, TVComplement

    metric = {True: KSComplement, False: TVComplement}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of the p-value, which is thrown away
        return {c.name: metric[c.is_numerical].compute(real[c.name], synthetic[c.name]) for c in schema.columns}


@pytest.mark.parametrize(("n", "k"), SIZES)
@pytest.mark.parametrize("shift", [0.0, 0.8])
def test_scores_are_those_of_sdmetrics(n: int, k: int, shift: float, schema: TableSchema, make_rows: Callable):
    real, synthetic = make_rows(n, n), make_rows(k + 1, k, shift)
    found = column_shapes(real, synthetic, schema)
    assert list(found) == list(schema.names)
    for column in schema.columns:
        expected = by_sdmetrics(real, synthetic, schema)[column.name]
        # sdmetrics counts 1e-6 of a real row for each category that only the synthetic table has.
        tolerance = 1e-12 if column.is_numerical else 1e-6 * column.width / n
        assert found[column.name] == pytest.approx(expected, abs=tolerance)


def test_numbers_are_rounded_as_sdmetrics_rounds_them():
    schema = TableSchema((Column.continuous("x"),), Column.categorical("y", ["0", "1"]))
    real = pd.DataFrame({"x": [0.1 + 0.2, 0.5, 1e-15, 3e-14]})
    synthetic = pd.DataFrame({"x": [0.3, 0.5, 0.0, 0.0]})
    found = column_shapes(real, synthetic, schema)
    assert found == pytest.approx(by_sdmetrics(real, synthetic, schema), abs=1e-12)
    assert found["x"] == pytest.approx(0.75)  # 0.1 + 0.2 is 0.3 and 1e-15 is 0; 3e-14 is a number of its own


def test_equal_tables_score_one_and_disjoint_ones_nothing(schema: TableSchema, make_rows: Callable):
    rows = make_rows(0, 500)
    assert set(column_shapes(rows, rows.sample(frac=1, random_state=0), schema).values()) == {1.0}
    other = rows.assign(**{"stay": 99, "race": "d", "bmi": -1.0, "visits": 99, "height": 0.0})
    other["drug=x"] = other["drug=y"] = "yes"
    rows["drug=x"] = rows["drug=y"] = "no"
    assert set(column_shapes(rows[rows["race"] != "d"], other, schema).values()) == {0.0}


def test_scores_within_classes_are_those_of_the_classes_alone(schema: TableSchema, make_rows: Callable):
    real, synthetic = make_rows(1, 700), make_rows(2, 400, 0.5)
    synthetic = synthetic[synthetic["code"] != "2"]
    labels = [class_labels(rows, schema) for rows in (real, synthetic)]
    found = class_shapes(real, labels[0], synthetic, labels[1], schema, schema.n_classes)
    assert found.shape == (4, 7)
    assert np.isnan(found[2]).all()  # nothing was made for class 2
    for c in (0, 1, 3):
        expected = by_sdmetrics(real[real["code"] == str(c)], synthetic[synthetic["code"] == str(c)], schema)
        assert dict(zip(schema.names, found[c], strict=True)) == pytest.approx(expected, abs=1e-7)  # see above


def test_cells_score_as_the_rows_they_come_from(schema: TableSchema, make_rows: Callable):
    real, synthetic = make_rows(1, 200), make_rows(2, 100)
    assert column_shapes(as_cells(real, schema), as_cells(synthetic, schema), schema) == column_shapes(
        real, synthetic, schema
    )
    with pytest.raises(DataError, match="codes and numbers"):
        column_shapes((torch.zeros(2, 1).long(), torch.zeros(2, 4)), synthetic, schema)


def test_the_heat_map_averages_the_columns_of_a_kind(schema: TableSchema):
    kinds = [column_kind(column) for column in schema.columns]
    assert kinds == ["discrete", "categorical", "continuous", "boolean", "discrete", "boolean", "continuous"]
    scores = np.arange(14).reshape(2, 7) / 14
    found = shapes_by_kind(scores, schema)
    assert list(found) == ["continuous", "discrete", "categorical", "boolean"]
    assert found["continuous"].tolist() == pytest.approx([4 / 14, 11 / 14])
    assert found["boolean"].tolist() == pytest.approx([4 / 14, 11 / 14])
    assert found["discrete"].tolist() == pytest.approx([2 / 14, 9 / 14])
    only = TableSchema(schema.columns[:1], schema.label)
    assert list(shapes_by_kind(scores[:, :1], only)) == ["discrete"]


def test_the_lowest_columns_come_first_and_name_their_metric(schema: TableSchema):
    scores = dict(zip(schema.names, [0.9, 0.2, 0.5, 0.8, 0.95, 1.0, 0.1], strict=True))
    found = lowest_columns(scores, schema, 3)
    assert [(low.column, low.metric) for low in found] == [
        ("height", "KSComplement"),
        ("race", "TVComplement"),
        ("bmi", "KSComplement"),
    ]
    assert [low.score for low in found] == [0.1, 0.2, 0.5]
    assert asdict(found[0]) == {
        "column": "height",
        "kind": "continuous",
        "metric": "KSComplement",
        "score": 0.1,
    }
    assert len(lowest_columns(scores, schema)) == 7
    assert shapes_score(scores) == pytest.approx(4.45 / 7)


def test_wrong_tables_and_labels_are_refused(schema: TableSchema, make_rows: Callable):
    rows = make_rows(0, 10)
    with pytest.raises(UsageError, match="synthetic table needs at least one row"):
        column_shapes(rows, rows[:0], schema)
    with pytest.raises(DataError, match="race"):
        column_shapes(rows, rows.assign(race="z"), schema)
    labels = torch.zeros(10).long()
    with pytest.raises(UsageError, match="one per row"):
        class_shapes(rows, labels[:9], rows, labels, schema, 4)
    with pytest.raises(UsageError, match=r"0\.\.3"):
        class_shapes(rows, labels, rows, labels + 4, schema, 4)
    with pytest.raises(UsageError, match="got -1 to 0"):
        class_shapes(rows, labels - (torch.arange(10) == 3).long(), rows, labels, schema, 4)
