"""Rows of three parties in which every cell tells its row and its column."""

import pytest
import torch
from torch import Tensor

from lightleak.data.vertical import VerticalRows

N_ROWS = 40


@pytest.fixture
def rows() -> VerticalRows:
    """40 rows of widths 2, 3 and 1; the cell of row i and column j is ``i + j / 10``; ids ascend from 100."""
    i, j = torch.arange(N_ROWS, dtype=torch.float64), torch.arange(6, dtype=torch.float64)
    ids = 100 + torch.arange(N_ROWS)
    return VerticalRows((i[:, None] + j / 10).float(), torch.arange(N_ROWS) % 2, ids, (2, 3, 1))


@pytest.fixture
def has_property() -> Tensor:
    """24 of the 40 rows, mixed among the others."""
    return torch.arange(N_ROWS) % 5 < 3
