"""One small table with numbers and categories, encoded."""

import numpy as np
import pandas as pd
import pytest
from torch import Tensor

from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import Column, TableSchema

N_ROWS = 48


@pytest.fixture(scope="session")
def frame() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": draw.integers(18, 80, N_ROWS),
            "pay": draw.normal(30.0, 5.0, N_ROWS),
            "job": draw.choice(list("abc"), N_ROWS),
            "ill": draw.choice(["0", "1"], N_ROWS),
        }
    )


@pytest.fixture(scope="session")
def encoder(frame: pd.DataFrame) -> TableEncoder:
    columns = (Column.integer("age"), Column.continuous("pay"), Column.categorical("job", "abc"))
    return TableEncoder(TableSchema(columns, Column.categorical("ill", ["0", "1"]))).fit(frame)


@pytest.fixture(scope="session")
def rows(encoder: TableEncoder, frame: pd.DataFrame) -> tuple[Tensor, Tensor]:
    return encoder.encode(frame), encoder.encode_labels(frame)
