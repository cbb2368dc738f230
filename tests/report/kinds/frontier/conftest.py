"""A run folder as the audit of a defense frontier leaves it, with made-up but plausible numbers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from lightleak.core.threat_model import Threat

# Option, and by strength: words, share of cells recovered, accuracy, epsilon. Gaussian noise: TabLeak's Table 6.
Curve = tuple[str | None, dict[float | None, tuple[str, float, float, float | None]]]
CURVES: dict[str, Curve] = {
    "none": (None, {None: ("no defense", 0.793, 0.846, None)}),
    "gaussian_noise": (
        "scale",
        {
            0.001: ("Gaussian noise of scale 0.001", 0.754, 0.845, None),
            0.01: ("Gaussian noise of scale 0.01", 0.580, 0.844, None),
            0.1: ("Gaussian noise of scale 0.1", 0.413, 0.841, None),
        },
    ),
    "laplacian_noise": (
        "scale",
        {
            0.001: ("Laplacian noise of scale 0.001", 0.731, 0.8448, None),
            0.01: ("Laplacian noise of scale 0.01", 0.561, 0.8432, None),
        },
    ),
    "random_pruning": (
        "probability",
        {
            0.5: ("random pruning with probability 0.5", 0.702, 0.8437, None),
            0.9: ("random pruning with probability 0.9", 0.601, 0.8401, None),
            0.99: ("random pruning with probability 0.99", 0.52, 0.799, None),
        },
    ),
    "clipping": (
        "max_norm",
        {
            0.1: ("clipping to norm 0.1", 0.792, 0.831, None),
            1.0: ("clipping to norm 1", 0.794, 0.8459, None),
        },
    ),
    "sign": (None, {None: ("signs, scaled per tensor", 0.607, 0.8385, None)}),
    "quantization": (
        "bits",
        {
            2: ("stochastic quantisation to 2 bits", 0.577, 0.8411, None),
            4: ("stochastic quantisation to 4 bits", 0.711, 0.8452, None),
        },
    ),
    "gradient_compression": (
        "keep",
        {
            0.01: ("the largest 0.01 of the entries", 0.55, 0.836, None),
            0.1: ("the largest 0.1 of the entries", 0.69, 0.8445, None),
        },
    ),
    "dp_sgd": (
        "noise_multiplier",
        {
            0.5: ("DP-SGD, noise multiplier 0.5, rows clipped to norm 1", 0.53, 0.836, 9.83),
            1.0: ("DP-SGD, noise multiplier 1, rows clipped to norm 1", 0.47, 0.829, 2.94),
            2.0: ("DP-SGD, noise multiplier 2, rows clipped to norm 1", 0.43, 0.812, 1.02),
        },
    ),
}
GUESS = 0.536
KNOWS = {
    "tableak": ("true_labels", "column_bounds", "encoder_statistics", "counted_with_attacked"),
    "inverting_gradients": ("true_labels",),
    "random": ("marginals",),
}
THREATS = {name: Threat("server", () if name == "random" else ("update",), known, ()) for name, known in KNOWS.items()}


class FrontierMaker:
    """Writes run folders; every part can be left out or changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self,
        *,
        curves: tuple[str, ...] = tuple(CURVES),
        attacks: tuple[str, ...] = ("tableak", "random"),
        trainings: int = 5,
        clients: int = 6,
        seed: int = 0,
        extra: dict[str, Any] | None = None,
        changed: dict[str, tuple[float, float]] | None = None,
        without: tuple[str, ...] = (),
    ) -> Path:
        """``changed`` maps names of curves to a share of cells and an accuracy that all their points take."""
        rng = np.random.default_rng(seed)
        of_client, of_training = 0.03 * rng.standard_normal(clients), 0.0008 * rng.standard_normal(trainings)
        rows = []
        for name in curves:
            option, strengths = CURVES[name]
            for value, (words, cells, accuracy, epsilon) in strengths.items():
                cells, accuracy = (changed or {}).get(name, (cells, accuracy))
                common = {
                    "kind": "defence-frontier", "dataset": "adult", "target": "mlp-100-100", "protocol": "fedsgd",
                    "labels": "true", "batch_size": 32, "training": "10 epochs, batches of 32, sgd at 0.01",
                    "label_setting": "true",
                    "defense": name, "defense_label": name, "defense_option": option, "defense_strength": value,
                    "defense_words": words, "epsilon": epsilon, "delta": None if epsilon is None else 1e-5,
                }  # fmt: skip
                for index in range(trainings):
                    found = accuracy + of_training[index] + 0.0004 * rng.standard_normal()
                    rows.append(
                        common
                        | {"attack": "none", "seed": index, "accuracy": found, "auroc": found + 0.05, "seconds": 9.0}
                        | (extra or {})
                    )
                for attack in attacks if name == "none" else [one for one in attacks if one != "random"]:
                    less = {"tableak": 0.0, "inverting_gradients": 0.1, "random": 0.0}[attack]
                    level = (GUESS if attack == "random" else cells) - less
                    for index in range(clients):
                        found = level + of_client[index] + 0.01 * rng.standard_normal()
                        rows.append(
                            common
                            | {"attack": attack, "seed": seed, "batch_index": index, "cell_accuracy": found,
                               "seconds": 3.0, "threat_model": THREATS[attack].describe(),
                               "threat": THREATS[attack].to_dict(),
                               "options": {"restarts": 30, "steps": 1500}}
                            | (extra or {})
                        )  # fmt: skip
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write("results.json", {"schema_version": 1, "rows": rows, "summary": []})
        self._write(
            "environment.json",
            {"date": "2025-03-01T10:00:00", "command": ["lightleak", "audit", "defense-frontier.yaml"],
             "device": "cpu", "packages": {"torch": "2.13.0", "lightleak": "0.3.0"}},
        )  # fmt: skip
        config = {"kind": "defence-frontier", "title": "What a defense buys", "data": {"name": "adult"}}
        (self.folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        for name in without:
            (self.folder / name).unlink()
        return self.folder

    def _write(self, name: str, content: Any) -> None:
        (self.folder / name).write_text(json.dumps(content))


@pytest.fixture
def make_frontier(tmp_path: Path) -> FrontierMaker:
    """A maker for a run folder named ``run``."""
    return FrontierMaker(tmp_path / "run")


@pytest.fixture
def make_named_frontier(tmp_path: Path) -> Callable[[str], FrontierMaker]:
    """A maker for a run folder of any name."""
    return lambda name: FrontierMaker(tmp_path / name)
