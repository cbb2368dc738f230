"""Random tables of every kind of column, awkward ones among them."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from lightleak.data.schema import Column, TableSchema

N_CLASSES = 4

# Numbers and categories alternate, so that a mix-up of the two orders cannot go unseen.
SCHEMA = TableSchema(
    (
        Column.integer("stay", 1, 14),
        Column.categorical("race", ["a", "b", "c", "d"]),
        Column.continuous("bmi"),
        Column.categorical("drug=x", ["no", "yes"]),
        Column.integer("visits"),
        Column.categorical("drug=y", ["no", "yes"]),
        Column.continuous("height"),
    ),
    Column.categorical("code", [str(k) for k in range(N_CLASSES)]),
)


@pytest.fixture(scope="session")
def schema() -> TableSchema:
    return SCHEMA


@pytest.fixture(scope="session")
def make_rows() -> Callable[..., pd.DataFrame]:
    """``make_rows(seed, n, shift)``: rows with their label, whose columns hang together; ``shift`` bends them."""

    def make(seed: int, n: int, shift: float = 0.0) -> pd.DataFrame:
        rng = np.random.default_rng(seed)
        hidden = rng.normal(shift, 1, n)
        label = rng.integers(0, N_CLASSES, n)
        return pd.DataFrame(
            {
                "stay": np.clip(np.round(4 + 2 * hidden + label), 1, 14).astype(int),
                # The last category is not met without a shift.
                "race": np.array(list("abcd"))[np.clip(rng.integers(0, 3, n) + (hidden > 2.5), 0, 3)],
                "bmi": np.round(27 + 4 * hidden + rng.normal(0, 3, n), 1),
                "drug=x": np.where(hidden + rng.normal(0, 1, n) > 1, "yes", "no"),
                "visits": rng.poisson(1 + abs(shift), n),
                "drug=y": np.where(rng.random(n) < 0.05 + 0.2 * (label == 1), "yes", "no"),
                "height": 170 + 9 * rng.normal(0, 1 + abs(shift), n) - 2 * hidden,
                "code": label.astype(str),
            }
        )

    return make
