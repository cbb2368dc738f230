"""Pair trends equal those of sdmetrics, pair by pair and on average."""

import itertools
import math
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from lightleak.core.errors import UsageError
from lightleak.data.schema import Column, TableSchema
from lightleak.metrics.inversion.pair_trends import pair_trends
from lightleak.metrics.inversion.table import as_cells


def one_pair(real: pd.DataFrame, synthetic: pd.DataFrame, schema: TableSchema, names: tuple[str, str]) -> float:
    """A pair by sdmetrics' own classes; NaN where they refuse a constant column."""
    from sdmetrics.column_pairs import ContingencySimilarity, CorrelationSimilarity
    from sdmetrics.errors import ConstantInputError

    real, synthetic = real[list(names)].copy(), synthetic[list(names)].copy()
    numbers = [name for name in names if schema.column(name).is_numerical]
    if len(numbers) < 2:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pandas, of how sdmetrics sets a column
            return float(ContingencySimilarity.compute(real, synthetic, continuous_column_names=numbers))
    try:
        return float(CorrelationSimilarity.compute(real, synthetic))
    except ConstantInputError:
        return math.nan


def by_report(real: pd.DataFrame, synthetic: pd.DataFrame, schema: TableSchema) -> tuple[np.ndarray, float]:
    """All pairs by the property that sdmetrics' reports use."""
    from sdmetrics.reports.single_table._properties import ColumnPairTrends

    kinds = {c.name: {"sdtype": "numerical" if c.is_numerical else "categorical"} for c in schema.columns}
    names = list(schema.names)
    trends = ColumnPairTrends()
    score = trends.get_score(real[names], synthetic[names], {"columns": kinds})
    matrix = np.full((len(names), len(names)), np.nan)
    for row in trends.details.itertuples():
        i, j = names.index(row[1]), names.index(row[2])
        matrix[i, j] = matrix[j, i] = row.Score
    return matrix, score


@pytest.mark.parametrize(("n", "k", "shift"), [(400, 300, 0.0), (400, 300, 0.9), (9000, 30, 0.2), (2, 3, 0.0)])
def test_pairs_are_those_of_sdmetrics(n: int, k: int, shift: float, schema: TableSchema, make_rows: Callable):
    real, synthetic = make_rows(n, n), make_rows(k + 1, k, shift)
    found = pair_trends(real, synthetic, schema)
    for i, j in itertools.combinations(range(len(schema.names)), 2):
        expected = one_pair(real, synthetic, schema, (schema.names[i], schema.names[j]))
        assert found.matrix[i, j] == pytest.approx(expected, abs=1e-9, nan_ok=True)
    assert np.array_equal(found.matrix, found.matrix.T, equal_nan=True)
    assert np.isnan(np.diag(found.matrix)).all()


@pytest.mark.parametrize(("n", "k", "shift"), [(400, 300, 0.0), (400, 300, 0.9), (9000, 30, 0.2)])
def test_own_bins_are_those_of_the_report(n: int, k: int, shift: float, schema: TableSchema, make_rows: Callable):
    real, synthetic = make_rows(n, n), make_rows(k + 1, k, shift)
    found = pair_trends(real, synthetic, schema, bins="own")
    matrix, score = by_report(real, synthetic, schema)
    assert found.matrix == pytest.approx(matrix, abs=1e-9, nan_ok=True)
    assert found.score == pytest.approx(score, abs=1e-9)
    assert found.undefined == 0


@pytest.mark.parametrize("constant", ["real", "synthetic", "both"])
def test_constant_columns_have_no_correlation_and_do_not_count(constant: str, schema: TableSchema, make_rows: Callable):
    tables = {"real": make_rows(1, 200), "synthetic": make_rows(2, 300)}
    for name, rows in tables.items():
        if constant in (name, "both"):
            # The mean of 200 or 300 times 27.3 is not 27.3; a category that never changes has a contingency table.
            tables[name] = rows.assign(bmi=27.3, race="a")
    found = pair_trends(**tables, schema=schema, bins="own")
    matrix, score = by_report(**tables, schema=schema)
    assert found.matrix == pytest.approx(matrix, abs=1e-9, nan_ok=True)
    assert found.score == pytest.approx(score, abs=1e-9)
    assert found.undefined == 3  # bmi with stay, visits and height
    bmi, race = schema.names.index("bmi"), schema.names.index("race")
    assert np.isfinite(found.matrix[bmi, race])
    found = pair_trends(**tables, schema=schema)
    expected = one_pair(**tables, schema=schema, names=("race", "bmi"))
    assert found.matrix[bmi, race] == pytest.approx(expected, abs=1e-9)


def test_equal_tables_score_one(schema: TableSchema, make_rows: Callable):
    rows = make_rows(0, 300)
    found = pair_trends(rows, rows.sample(frac=1, random_state=1), schema)
    assert found.score == pytest.approx(1)
    assert found.columns == schema.names


def test_only_bins_of_the_real_column_see_a_stretched_one(schema: TableSchema, make_rows: Callable):
    rows = make_rows(0, 300)
    stretched = rows.assign(bmi=3 * rows["bmi"])
    at = schema.names.index("bmi"), schema.names.index("race")
    assert pair_trends(rows, stretched, schema, bins="own").matrix[at] == pytest.approx(1)
    assert pair_trends(rows, stretched, schema).matrix[at] < 0.1


def test_a_table_of_one_kind_and_more_rows_than_a_block(make_rows: Callable):
    label = Column.categorical("y", ["0", "1"])
    rows = pd.concat([make_rows(0, 9000)] * 3)
    for names in (("race", "drug=x"), ("bmi", "height")):
        kinds = [Column.continuous(n) if n in ("bmi", "height") else Column.categorical(n, _values(n)) for n in names]
        schema = TableSchema(tuple(kinds), label)
        other = make_rows(5, 500, 0.7)
        found = pair_trends(as_cells(rows, schema), other, schema)
        assert found.score == pytest.approx(one_pair(rows, other, schema, names), abs=1e-9)


def test_one_column_has_no_pair():
    schema = TableSchema((Column.integer("x"),), Column.categorical("y", ["0", "1"]))
    found = pair_trends(pd.DataFrame({"x": [1, 2]}), pd.DataFrame({"x": [1, 3]}), schema)
    assert math.isnan(found.score) and found.undefined == 0


def test_wrong_use_is_refused(schema: TableSchema, make_rows: Callable):
    rows = make_rows(0, 10)
    with pytest.raises(UsageError, match="real, own"):
        pair_trends(rows, rows, schema, bins="synthetic")
    with pytest.raises(UsageError, match="real table needs"):
        pair_trends(rows[:0], rows, schema)


def _values(name: str) -> list[str]:
    return ["no", "yes"] if name.startswith("drug") else list("abcd")
