"""A tiny study: a made table of 300 rows, a network of 6 units, attacks of some 30 steps; half a second a trial."""

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from lightleak.tuning.config import TuneConfig, load_tune_config

TINY: dict[str, Any] = {
    "data": {"name": "synthetic", "options": {"n_discrete": 2, "n_continuous": 2, "n_rows": 300}},
    "target": {"network": "mlp", "options": {"hidden": [6]}},
    "training": {"epochs": 0},
    "initial": {"batch_sizes": [4], "batches": 3},
    "attacks": {
        "tableak": {
            "restarts": {"search": "int", "low": 1, "high": 6, "default": 3},
            "learning_rate": {"search": "float", "low": 0.01, "high": 0.5, "log": True, "default": 0.06},
        },
        "random": {},
    },
    "device": "cpu",
    "study": {
        "objectives": {"metric": "cell_accuracy", "where": {"attack": "tableak"}},
        "trials": 4,
        "budget": {"restart_steps": 60},
        "held_out": 3,
    },
}

Make = Callable[..., TuneConfig]


@pytest.fixture
def write_study(tmp_path: Path) -> Callable[..., Path]:
    """Writes the tiny study's file, changed by dotted keys with ``__`` for the dot; `None` removes a key."""

    def write(**changes: Any) -> Path:
        tree = copy.deepcopy(TINY)
        for key, value in changes.items():
            *parents, last = key.split("__")
            section = tree
            for parent in parents:
                section = section.setdefault(parent, {})
            if value is None:
                section.pop(last, None)
            else:
                section[last] = value
        file = tmp_path / "study.yaml"
        file.write_text(yaml.safe_dump(tree))
        return file

    return write


@pytest.fixture
def tiny_study(write_study: Callable[..., Path]) -> Make:
    """The tiny study as its config; arguments as for ``write_study``."""
    return lambda **changes: load_tune_config(write_study(**changes))


@pytest.fixture
def silent() -> Console:
    return Console(file=io.StringIO())
