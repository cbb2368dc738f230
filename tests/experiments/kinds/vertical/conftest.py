"""A tiny vertical audit: the survey that needs no download, three epochs, two defenses; one run takes a few seconds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lightleak.experiments.kinds.vertical.config import VerticalConfig
from lightleak.experiments.run import run_audit

SMALL: dict[str, Any] = {
    "kind": "vertical",
    "data": {"name": "fair"},
    "properties": ["religious=strongly"],
    "training": {"epochs": 3, "batch_size": 256},
    "auxiliary": {"size": 400},
    "attacks": {"provfl_b_mixture": {}, "provfl_m": {"estimator": "mixture"}, "prior": {}},
    "defenses": {"none": {}, "half": {"defense": "withdraw", "ratio": 0.5}},
    "device": "cpu",
    "workers": 1,
}

Settings = Callable[..., VerticalConfig]


@pytest.fixture(scope="session")
def small() -> Settings:
    """Makes the config; arguments are dotted keys with ``__`` for the dot, such as ``training__epochs=1``."""

    def make(**overrides: Any) -> VerticalConfig:
        return VerticalConfig.parse(SMALL, {key.replace("__", "."): value for key, value in overrides.items()})

    return make


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, small: Settings, silent: Console) -> Path:
    """The folder of an uninterrupted run; tests only read it."""
    folder = tmp_path_factory.mktemp("vertical") / "run"
    run_audit(small(), folder, ["lightleak", "audit"], silent)
    return folder
