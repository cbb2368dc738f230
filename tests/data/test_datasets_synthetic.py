"""The synthetic generator against TabLeak App. E.1 and C.5."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightleak.core.errors import UsageError
from lightleak.data.datasets import load_dataset


def whole(**options) -> pd.DataFrame:
    table = load_dataset("synthetic", **options)
    return pd.concat([table.train, table.test])


@settings(max_examples=15)
@given(st.integers(0, 8), st.integers(0, 8), st.integers(0, 10_000))
def test_columns_are_as_app_e1_says(n_discrete, n_continuous, table_seed) -> None:
    if n_discrete + n_continuous == 0:
        return
    table = load_dataset(
        "synthetic", n_discrete=n_discrete, n_continuous=n_continuous, n_rows=50, table_seed=table_seed
    )
    assert len(table.schema.categorical) == n_discrete
    assert len(table.schema.numerical) == n_continuous
    assert all(2 <= column.width <= 6 for column in table.schema.categorical)
    assert table.schema.n_classes == 2


def test_moments_lie_in_the_ranges_of_the_paper() -> None:
    frame = whole(n_discrete=0, n_continuous=40, n_rows=20_000)
    numbers = frame.drop(columns="label")
    tolerance = 4 * 3 / np.sqrt(len(frame))  # four standard errors of the widest column
    assert numbers.mean().between(0 - tolerance, 5 + tolerance).all()
    assert numbers.std().between(1 - tolerance, 3 + tolerance).all()
    assert numbers.mean().max() - numbers.mean().min() > 2  # drawn column by column
    correlations = numbers.corr().to_numpy()[~np.eye(40, dtype=bool)]
    assert np.abs(correlations).max() < 0.05  # independent: 7 standard errors


def test_labels_are_balanced_and_can_be_learned() -> None:
    frame = whole(n_discrete=3, n_continuous=3, n_rows=4000)
    classes = frame["label"] == "1"
    assert 0.45 < classes.mean() < 0.55
    # A least-squares score on the columns must beat guessing clearly, and noise must leave it short of perfect.
    x = np.column_stack([np.ones(len(frame)), pd.get_dummies(frame.drop(columns="label")).to_numpy(dtype=float)])
    score = x @ np.linalg.lstsq(x, classes.to_numpy(dtype=float), rcond=None)[0]
    assert 0.65 < ((score > 0.5) == classes.to_numpy()).mean() < 0.95


def test_another_split_has_the_same_rows_and_another_table_has_not() -> None:
    first = load_dataset("synthetic", seed=0, n_rows=100)
    split = load_dataset("synthetic", seed=1, n_rows=100)
    other = load_dataset("synthetic", seed=0, n_rows=100, table_seed=1)
    assert first.schema == split.schema
    assert sorted(pd.concat([first.train, first.test])["c0"]) == sorted(pd.concat([split.train, split.test])["c0"])
    assert sorted(first.train["c0"]) != sorted(other.train["c0"])


def test_the_width_of_table_14_is_met_with_wider_domains() -> None:
    table = load_dataset(
        "synthetic", n_discrete=125, n_continuous=125, n_rows=20, max_categories=16, encoded_width=1231
    )
    assert sum(column.width for column in table.schema.columns) == 1231


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_discrete": 0, "n_continuous": 0}, "one of them positive; got 0 and 0"),
        ({"n_rows": 5}, "n_rows must be at least 10, got 5"),
        ({"max_categories": 1}, "max_categories must be at least 2, got 1"),
        (
            {"n_discrete": 125, "n_continuous": 125, "encoded_width": 1231},
            "encoded_width must be between 375 and 875 for 125 discrete columns",
        ),
    ],
)
def test_impossible_numbers_are_refused(options, message) -> None:
    with pytest.raises(UsageError, match=message):
        load_dataset("synthetic", **options)
