"""A tiny frontier: a made table of 120 rows, a network of 6 units, attacks of 20 steps; one run takes a few seconds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lightleak.experiments.kinds.frontier.config import FrontierConfig
from lightleak.experiments.run import run_audit

SMALL: dict[str, Any] = {
    "kind": "defense-frontier",
    "data": {"name": "synthetic", "options": {"n_discrete": 2, "n_continuous": 2, "n_rows": 120}},
    "target": {"network": "mlp", "options": {"hidden": [6]}},
    "training": {"epochs": 1, "batch_size": 16, "optimizer": {"learning_rate": 0.1}},
    "defenses": [
        {"name": "gaussian_noise", "strengths": [0.01, 10.0]},
        "sign",
        {"name": "dp_sgd", "strengths": [1.0]},
    ],
    "attacks": {"tableak": {"steps": 20, "restarts": 2}, "random": {}},
    "initial": {"batch_size": 4, "batches": 2},
    "seeds": 2,
    "device": "cpu",
    "workers": 1,
}
POINTS = ("none", "gaussian_noise-0.01", "gaussian_noise-10.0", "sign", "dp_sgd-1.0")

Settings = Callable[..., FrontierConfig]


@pytest.fixture(scope="session")
def small() -> Settings:
    """Makes the config; arguments are dotted keys with ``__`` for the dot, such as ``training__epochs=1``."""

    def make(**overrides: Any) -> FrontierConfig:
        return FrontierConfig.parse(SMALL, {key.replace("__", "."): value for key, value in overrides.items()})

    return make


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, small: Settings, silent: Console) -> Path:
    """The folder of an uninterrupted run; tests only read it."""
    folder = tmp_path_factory.mktemp("frontier") / "run"
    run_audit(small(), folder, ["lightleak", "audit"], silent)
    return folder
