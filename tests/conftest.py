"""What every test gets: one thread, the same seeds, and the real tables where this machine has them."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
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


@pytest.fixture(scope="session")
def leave_results(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Runs a script that trains on several processes; returns the folder it was told to leave its results in."""

    def run(script: Path) -> Path:
        folder = tmp_path_factory.mktemp("ddp")
        # pytest-xdist and a surrounding cluster name processes of their own.
        named = ("PYTEST_", "SLURM_", "LOCAL_RANK", "RANK", "WORLD_SIZE", "MASTER_", "NODE_RANK")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(named)}
        environment |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(
            [sys.executable, str(script), str(folder)], env=environment, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return folder

    return run
