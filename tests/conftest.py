"""What every test gets: one thread, the same seeds, and the real tables where this machine has them."""

import copy
import io
import logging
import multiprocessing
import os
import random
import runpy
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import torch
from hypothesis import settings
from rich.console import Console

import lightleak
from lightleak.attacks import ATTACKS
from lightleak.callbacks.capture_store import Capture
from lightleak.experiments.clients import FreshClients
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.engine import PRELOADED
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.load import parse_config
from lightleak.experiments.run import run_audit
from lightleak.targets import NETWORKS

FORKED_SCRIPT = Path(__file__).with_name("forked_script.py")
COMMAND = Path(lightleak.__file__).with_name("__main__.py")

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


def forked(
    script: Path, arguments: Sequence[object], environment: Mapping[str, str], said: Path
) -> multiprocessing.process.BaseProcess:
    """A process that runs a script, and appends what it says to a file; not started yet.

    It is forked from the server of `lightleak.experiments.engine`, which has imported what it needs.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    given = {
        "script": str(script),
        "arguments": list(map(str, arguments)),
        "environment": dict(environment),
        "folder": os.getcwd(),
        "said": str(said),
    }
    return context.Process(target=runpy.run_path, args=(str(FORKED_SCRIPT), {"given": given}, "__main__"))


def wait_for(processes: Sequence[multiprocessing.process.BaseProcess], said: Path) -> None:
    """Start the processes, and fail unless all of them end well within four minutes."""
    until = time.monotonic() + 240
    try:
        for one in processes:
            one.start()
        for one in processes:
            one.join(until - time.monotonic())
    finally:
        for one in processes:
            one.kill()
            one.join()
    assert [one.exitcode for one in processes] == [0] * len(processes), (
        said.read_text()[-4000:] if said.exists() else "nothing said"
    )


@pytest.fixture
def run_forked(tmp_path: Path) -> Callable[..., str]:
    """Runs a script, or ``lightleak`` where none is given, in a process of its own; returns what it said."""

    def run(*arguments: object, script: Path = COMMAND, **environment: str) -> str:
        said = tmp_path / f"said-{uuid4().hex}"
        wait_for([forked(script, arguments, {**os.environ, "OMP_NUM_THREADS": "1", **environment}, said)], said)
        return said.read_text()

    return run


@pytest.fixture(scope="session")
def leave_results(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Runs a script on two processes; returns the folder it was told to leave its results in, a new one by default.

    Both have the environment that Lightning gives to processes that it starts. That it starts them is tested with a
    whole audit.
    """

    def run(script: Path, folder: Path | None = None) -> Path:
        folder = folder or tmp_path_factory.mktemp("ddp")
        # pytest-xdist and a surrounding cluster name processes of their own.
        named = ("PYTEST_", "SLURM_", "LOCAL_RANK", "RANK", "WORLD_SIZE", "MASTER_", "NODE_RANK")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(named)}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0", "WORLD_SIZE": "2"}
        # gloo would otherwise look the host's name up.
        environment |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo"}
        said = tmp_path_factory.mktemp("said") / "ranks"
        ranks = [forked(script, [folder], environment | {"LOCAL_RANK": str(rank)}, said) for rank in (0, 1)]
        wait_for(ranks, said)
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
    """Begin with slow tests, and skip cases of targets whose libraries are missing."""
    # Started last, one of them would leave the other cores idle.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    needed = {name: getattr(NETWORKS.get(name), "missing_package", lambda: None)() for name in NETWORKS}
    for item in items:
        named = getattr(getattr(item, "callspec", None), "id", "")
        for target, package in needed.items():
            if package is not None and target in named:
                item.add_marker(pytest.mark.skip(reason=f"{package} is not installed"))
