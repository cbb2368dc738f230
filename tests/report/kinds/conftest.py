"""Pairs of run folders: one plain, one with a defense that was made to matter."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

WEAKER = ("cell_accuracy", "categorical_accuracy", "numerical_accuracy", "exact_match_rate")


@pytest.fixture
def defended(tmp_path: Path) -> Callable[..., Path]:
    """Copies a run folder as if noise had been added: every attack gets the ``kept`` part of what it got before."""

    def make(
        folder: Path,
        kept: float = 0.5,
        name: str = "noisy",
        accuracy: float | None = 0.80,
        n: int = 2000,
        majority: float | None = None,
    ) -> Path:
        copy = tmp_path / name
        shutil.copytree(folder, copy)
        raw = json.loads((copy / "results.json").read_text())
        for row in raw["rows"]:
            row |= {"defense": "gaussian_noise", "defense_strength": 0.01}
            if row["attack"] == "random":
                continue
            row |= {metric: min(kept * row[metric], 1.0) for metric in WEAKER}
            if row["row_status"] is not None and kept < 1:
                row |= {
                    "certified_rows": 0,
                    "certified_share": 0.0,
                    "certified_digits_share": 0.0,
                    "row_status": ["likely"] * len(row["row_status"]),
                }
        (copy / "results.json").write_text(json.dumps(raw))
        config = yaml.safe_load((copy / "config.yaml").read_text())
        config["defense"] = {"name": "gaussian_noise", "options": {"scale": 0.01}}
        (copy / "config.yaml").write_text(yaml.safe_dump(config))
        trained(copy, accuracy, n, majority)
        return copy

    return make


def trained(folder: Path, accuracy: float | None, n: int | None = 2000, majority: float | None = None) -> None:
    if accuracy is not None:
        scores = {"test/accuracy": accuracy, "test/auroc": accuracy + 0.05}
        known = {"test_rows": n, "test_majority": majority}
        told = {"epochs": 3, "test": scores} | {name: value for name, value in known.items() if value is not None}
        (folder / "training.json").write_text(json.dumps(told))


@pytest.fixture
def rewritten() -> Callable[..., Path]:
    """Changes every row of a run folder's results: fields by name, or all that a function returns for a row."""

    def change(folder: Path, **fields) -> Path:
        raw = json.loads((folder / "results.json").read_text())
        for row in raw["rows"]:
            row |= {name: value(row) if callable(value) else value for name, value in fields.items()}
        (folder / "results.json").write_text(json.dumps(raw))
        return folder

    return change


@pytest.fixture
def plain(make_named_run) -> Callable[..., Path]:
    """A run folder without a defense, with the scores of a training."""

    def make(accuracy: float | None = 0.85, n: int | None = 2000, majority: float | None = None, **parts) -> Path:
        folder = make_named_run("plain")(**({"batch_sizes": (8,), "n_batches": 6} | parts))
        trained(folder, accuracy, n, majority)
        return folder

    return make
