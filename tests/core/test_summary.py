"""Means and intervals over batches."""

import json
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lightleak.core.summary import summarize, summarize_rows

# Two-sided 95% quantiles of Student's t as every printed table has them, by degrees of freedom.
STUDENT = {1: 12.706, 4: 2.776, 9: 2.262, 49: 2.010}


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40))
def test_summary_is_that_of_the_standard_library(values: list[float]):
    found = summarize(values)
    assert found.n == len(values)
    assert found.mean == pytest.approx(statistics.fmean(values), abs=1e-6)
    assert found.std == pytest.approx(statistics.stdev(values), abs=1e-6)
    assert found.low <= found.mean <= found.high
    assert found.high - found.mean == pytest.approx(found.mean - found.low, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("freedom", "quantile"), STUDENT.items())
def test_interval_is_students(freedom: int, quantile: float):
    values = [0.1 * i for i in range(freedom + 1)]
    found = summarize(values)
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    assert found.high - found.mean == pytest.approx(half, rel=3e-4)


def test_interval_covers_the_mean_in_95_of_100_samples():
    draws = stats.norm(3.0, 2.0).rvs(size=(2000, 5), random_state=0)
    covered = sum(found.low <= 3.0 <= found.high for found in map(summarize, draws.tolist()))
    assert covered / len(draws) == pytest.approx(0.95, abs=0.015)


def test_one_value_has_no_interval_and_none_has_no_mean():
    one, none = summarize([0.5]), summarize([])
    assert (one.mean, one.n) == (0.5, 1) and all(math.isnan(v) for v in (one.std, one.low, one.high))
    assert none.n == 0 and math.isnan(none.mean)
    assert one.to_dict() == {"mean": 0.5, "std": None, "n": 1, "low": None, "high": None}
    json.dumps(none.to_dict(), allow_nan=False)


def test_undefined_values_are_left_out():
    assert summarize([0.2, None, math.nan, 0.4, math.inf]) == summarize([0.2, 0.4])


def _row(attack: str, index: int, accuracy: float | None, **more: object) -> dict[str, object]:
    return {"attack": attack, "batch_size": 8, "seed": 0, "batch_index": index, "cell_accuracy": accuracy, **more}


def test_rows_are_grouped_by_their_keys_in_order_of_appearance():
    rows = [
        _row("tableak", 0, 0.8, exact=True, note="x", column_accuracy={"age": 1.0}),
        _row("random", 0, 0.5, rmse=1.5),
        _row("tableak", 1, 0.9),
        _row("random", 1, None, rmse=2),
    ]
    found = summarize_rows(rows, ["attack", "batch_size", "defense"])
    keys = [(entry["attack"], entry["batch_size"], entry["defense"]) for entry in found]
    assert keys == [("tableak", 8, None), ("random", 8, None)]
    assert all(set(entry) == {"attack", "batch_size", "defense", "cell_accuracy", "rmse"} for entry in found)
    assert found[0]["cell_accuracy"] == summarize([0.8, 0.9]).to_dict()
    assert found[0]["rmse"] == summarize([]).to_dict()
    assert found[1]["cell_accuracy"] == summarize([0.5]).to_dict()
    assert found[1]["rmse"] == summarize([1.5, 2]).to_dict()


def test_every_row_is_in_one_group():
    rows = [_row(attack, i, 0.1 * i) for i in range(5) for attack in ("a", "b", "c")]
    found = summarize_rows(rows, ["attack"])
    assert [entry["cell_accuracy"]["n"] for entry in found] == [5, 5, 5]
    assert summarize_rows([], ["attack"]) == []


def test_keys_may_hold_lists():
    rows = [_row("a", 0, 0.1, hidden=[100, 100]), _row("a", 1, 0.2, hidden=[100]), _row("a", 2, 0.3, hidden=[100, 100])]
    assert [entry["cell_accuracy"]["n"] for entry in summarize_rows(rows, ["hidden"])] == [2, 1]
