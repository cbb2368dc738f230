"""What every test gets: one thread, the same seeds, and the real tables where this machine has them."""

import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

# A slow machine must not fail a property, and a failure must come back on the next run.
settings.register_profile("lightleak", deadline=None, derandomize=True)
settings.load_profile("lightleak")

# pytest-xdist runs one process per core; sums of floats are also bit-equal only at equal threads.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeds() -> None:
    """Seed every global generator, so that no test depends on those that ran before it."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real tables, one subfolder per dataset; the test skips where none is named."""
    value = os.environ.get("LIGHTLEAK_DATA_DIR")
    if not value:
        pytest.skip("LIGHTLEAK_DATA_DIR is not set: the real tables are not on this machine")
    folder = Path(value)
    assert folder.is_dir(), f"LIGHTLEAK_DATA_DIR must be a folder, got {value!r}"
    return folder
