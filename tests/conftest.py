"""What every test gets: one thread, the same seeds, and the real tables where this machine has them."""

import copy
import io
import logging
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from rich.console import Console

from lightleak.attacks import ATTACKS
from lightleak.callbacks.capture_store import Capture
from lightleak.experiments.clients import FreshClients
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.load import parse_config
from lightleak.experiments.run import run_audit
from lightleak.targets import NETWORKS

# A slow machine must not fail a property, and a failure must come back on the next run.
settings.register_profile("lightleak", deadline=None, derandomize=True)
settings.load_profile("lightleak")

# A shell ignores Ctrl-C for what it runs in the background, and commands started by tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Ray runs its workers at niceness 15: next to a test on every core, a task of a second would take minutes.
os.environ.setdefault("RAY_worker_niceness", "0")

# pytest-xdist runs one process per core; sums of floats are also bit-equal only at equal threads.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeds() -> None:
    """Seed every global generator, so that no test depends on those that ran before it."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture
def quick_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has `inverting_gradients` take 20 steps where no number is given, as in pages that show how it is called."""
    monkeypatch.setitem(ATTACKS._entries, "inverting_gradients", partial(ATTACKS.get("inverting_gradients"), steps=20))


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


# A tiny audit, about a second a run.
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

TINY: dict[str, Any] = {
    "data": {"name": "synthetic", "options": {"n_discrete": 2, "n_continuous": 2, "n_rows": 120}},
    "target": {"network": "mlp", "options": {"hidden": [6]}},
    "training": {"epochs": 2, "batch_size": 8},
    "capture": {"epochs": [0, 1], "per_epoch": 1},
    "initial": {"batch_sizes": [4], "batches": 2},
    "attacks": {"tableak": {"steps": 20, "restarts": 2}, "random": {}},
    "device": "cpu",
    "workers": 1,
}

Settings = Callable[..., AuditConfig]


@pytest.fixture(scope="session")
def tiny() -> Settings:
    """Makes the tiny config; arguments are dotted keys with ``__`` for the dot, such as ``training__epochs=1``."""

    def make(**overrides: Any) -> AuditConfig:
        changed = {key.replace("__", "."): value for key, value in overrides.items()}
        return parse_config(copy.deepcopy(TINY), changed)

    return make


@pytest.fixture(scope="session")
def tiny_fedavg(tiny: Settings) -> Settings:
    """As ``tiny``, with FedAvg clients of 6 rows, 2 local epochs of 2 batches, three rounds, and an attack on them."""
    fedavg = {
        "protocol": {
            "name": "fedavg",
            "local_epochs": 2,
            "local_batches": 2,
            "learning_rate": 0.1,
            "clients": 8,
            "client_rows": 6,
            "clients_per_round": 4,
            "rounds": 3,
        },
        "training": {},
        "capture": {"epochs": [0, 2], "per_epoch": 1},
        "attacks": {"tableak_fedavg": {"steps": 20, "restarts": 2}, "random": {}},
    }
    return lambda **overrides: tiny(**{**fedavg, **overrides})


@pytest.fixture(scope="session")
def silent() -> Console:
    """A console nobody sees."""
    return Console(file=io.StringIO())


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny: Settings, silent: Console) -> Path:
    """The folder of an uninterrupted run of the tiny config with a monitor; tests only read it."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    monitored = tiny(monitor__attack="inverting_gradients", monitor__options={"steps": 5})
    run_audit(monitored, folder, ["lightleak", "audit"], silent)
    return folder


@pytest.fixture(scope="session")
def save_captures(tiny: Settings) -> Callable[..., list[Path]]:
    """Writes captures of fresh clients, one per batch size, below a folder, and returns theirs in order."""

    def save(root: Path, sizes: tuple[int, ...] = (3, 4), share_labels: bool = True, **overrides: Any) -> list[Path]:
        experiment = prepare_experiment(tiny(**overrides))
        clients = FreshClients(experiment.population, experiment.spec, 0, share_labels)
        return [Capture(*clients.observe(size, i), rank=i).save(root) for i, size in enumerate(sizes)]

    return save


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip cases of targets whose libraries are missing."""
    needed = {name: getattr(NETWORKS.get(name), "missing_package", lambda: None)() for name in NETWORKS}
    for item in items:
        named = getattr(getattr(item, "callspec", None), "id", "")
        for target, package in needed.items():
            if package is not None and target in named:
                item.add_marker(pytest.mark.skip(reason=f"{package} is not installed"))
