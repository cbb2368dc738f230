"""A small released-model audit: six classes, three of them private, tiny networks and few iterations."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lightleak.experiments.kinds.released.config import ReleasedConfig


@pytest.fixture(scope="session")
def table_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """900 visits of 500 patients: a number, a count and two categories that depend on the diagnosis."""
    random = np.random.default_rng(0)
    n, patients = 900, 500
    label = random.choice(6, n, p=[0.25, 0.2, 0.18, 0.15, 0.12, 0.1])
    frame = pd.DataFrame(
        {
            "patient": [f"P{number:05d}" for number in random.integers(0, patients, n)],
            "glucose": (5 + 1.5 * (label % 3) + random.normal(0, 1, n)).round(2),
            "visits": random.poisson(1 + label % 3, n),
            "ward": np.array(["a", "b", "c"])[(label + (random.random(n) < 0.2)) % 3],
            "smoker": np.where(random.random(n) < 0.2 + 0.1 * label, "yes", "no"),
            "diagnosis": [f"d{one}" for one in label],
        }
    )
    path = tmp_path_factory.mktemp("table") / "visits.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def settings(table_file: Path) -> dict[str, Any]:
    """The config as a YAML file would hold it."""
    return {
        "kind": "released-model",
        "data": {"table": str(table_file), "label": "diagnosis"},
        "task": {"private_classes": 3, "features": 5, "test_fraction": 0.2, "trees": 5, "group": "patient"},
        "target": {"network": "mlp", "options": {"hidden": [16]}},
        "evaluation_model": {"network": "mlp", "options": {"hidden": [12, 12]}},
        "training": {"max_epochs": 6, "batch_size": 32, "optimizer": {"name": "adam", "learning_rate": 0.01}},
        "attacks": {
            "plgmi": {
                "iterations": 150,
                "batch_size": 50,
                "latent_dim": 8,
                "discriminator_steps": 1,
                "generator_dim": [16],
                "discriminator_dim": [16],
                "generator_learning_rate": 0.005,
                "gradient": {"steps": 10},
                "tpe": {"trials": 3},
                "pseudo_labels": {"top_n": 30},  # some are left that no generator learns from
            },
            "public_pseudo_labeled": {"top_n": 30},
            "public_random": {"top_n": 30},
        },
        "samples": {"evaluations": 2, "per_class": 30, "searched_per_class": 10, "searches": ["random", "gradient"]},
        "setting": "small",
        "device": "cpu",
        "workers": 1,
    }


@pytest.fixture
def config(settings: dict[str, Any]) -> ReleasedConfig:
    """The small audit."""
    return ReleasedConfig.parse(settings)


@pytest.fixture
def changed(settings: dict[str, Any]) -> Callable[..., ReleasedConfig]:
    """The small audit with settings changed by dotted key."""
    return lambda **overrides: ReleasedConfig.parse(
        settings, {key.replace("__", "."): value for key, value in overrides.items()}
    )
