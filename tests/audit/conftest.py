"""A tiny audit: a made table of 120 rows, a network of 6 units, attacks of 20 steps; one run takes about a second."""

import copy
import io
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lightleak.audit.clients import FreshClients
from lightleak.audit.config import AuditConfig, parse_config
from lightleak.audit.experiment import prepare_experiment
from lightleak.audit.run import run_audit
from lightleak.callbacks.capture_store import Capture

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
        clients = FreshClients(experiment.population(), experiment.spec, 0, share_labels)
        return [Capture(*clients.observe(size, i), rank=i).save(root) for i, size in enumerate(sizes)]

    return save
