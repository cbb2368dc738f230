"""The folder of a study as `lightleak tune` leaves it, with made-up but plausible numbers."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

PREFIX = "attacks.tableak."
SPACE: list[dict[str, Any]] = [
    {"key": PREFIX + "learning_rate", "kind": "float", "low": 0.005, "high": 0.3, "log": True, "default": 0.06},
    {"key": PREFIX + "restarts", "kind": "int", "low": 5, "high": 60, "default": 30},
    {"key": PREFIX + "schedule", "kind": "choice", "of": ["constant", "cosine", "warmup_then_cosine"],
     "default": "constant"},
    {"key": PREFIX + "sign", "kind": "choice", "of": [True, False], "default": True},
    {"key": PREFIX + "lambda_inv", "kind": "float", "low": 0.0, "high": 2.0, "default": 1.0,
     "when": "attacks.tableak.sign is true"},
    {"key": PREFIX + "alpha1", "kind": "float", "low": 0.001, "high": 10, "log": True, "default": 0.1},
]  # fmt: skip
ACCURACY = {"name": "cell_accuracy", "direction": "maximize", "words": "cell accuracy of tableak on validation clients"}
UTILITY = {"name": "accuracy", "direction": "maximize", "words": "accuracy of the network on validation rows"}
LEAKAGE = {"name": "leakage", "direction": "minimize", "words": "leakage of tableak on validation clients"}
HELD_OUT: dict[str, Any] = {
    "words": "20 clients of 32 rows drawn from the other training rows", "metric": "cell_accuracy", "n": 20,
    "default": {"mean": 0.800, "low": 0.781, "high": 0.819, "seconds": 6.12},
    "best": {"mean": 0.823, "low": 0.806, "high": 0.840, "seconds": 6.34},
    "difference": {"mean": 0.023, "low": 0.011, "high": 0.035},
}  # fmt: skip


def held_out(low: float, high: float, **changed: Any) -> dict[str, Any]:
    """A comparison whose difference has this interval."""
    mean = (low + high) / 2
    return HELD_OUT | {
        "difference": {"mean": mean, "low": low, "high": high},
        "best": HELD_OUT["best"] | {"mean": HELD_OUT["default"]["mean"] + mean},
        **changed,
    }


class StudyMaker:
    """Writes folders of studies; every part can be left out or changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self,
        *,
        trials: int = 40,
        several: bool = False,
        study: dict[str, Any] | None = None,
        change: Callable[[list[dict[str, Any]]], None] | None = None,
        seed: int = 0,
        without: tuple[str, ...] = (),
        config: dict[str, Any] | None = None,
    ) -> Path:
        """``study`` replaces parts of the study and ``change`` edits its rows."""
        rng = np.random.default_rng(seed)
        rows = [self._row(rng, number, several) for number in range(trials)]
        if not several:
            self._end_some(rng, rows)
        objectives = [UTILITY, LEAKAGE] if several else [ACCURACY]
        self._mark(rows, several)
        found: dict[str, Any] = {
            "objectives": objectives,
            "parameters": [{"of": None, "low": None, "high": None, "log": False, "when": None} | one for one in SPACE],
            "importance": {
                one["name"]: dict(zip([p["key"] for p in SPACE], (0.58, 0.19, 0.11, 0.06, 0.04, 0.02), strict=True))
                for one in objectives
            },
            "sampler": "nsgaii" if several else "tpe", "pruner": "none" if several else "hyperband", "asked": 40,
            "setting": "Adult, MLP 100-100, 32 rows", "budget": "45,000 steps over all restarts per batch",
            "validation": "8 clients of 32 rows, drawn from a fifth of the training rows",
            "held_out": None if several else HELD_OUT,
        }  # fmt: skip
        if change is not None:
            change(rows)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write("results.json", {"schema_version": 1, "rows": rows, "study": found | (study or {})})
        self._write(
            "environment.json",
            {"date": "2025-03-01T10:00:00", "device": "cpu", "packages": {"torch": "2.13.0", "optuna": "5.0.0"}},
        )
        text = yaml.safe_dump({"title": "Tuning TabLeak on Adult", "data": {"name": "adult"}} | (config or {}))
        (self.folder / "config.yaml").write_text(text)
        for name in without:
            (self.folder / name).unlink()
        return self.folder

    def _row(self, rng: np.random.Generator, number: int, several: bool) -> dict[str, Any]:
        pull = min(number / 25, 1.0)  # the search closes in
        rate = 0.06 if number == 0 else float(np.clip(np.exp(rng.normal(math.log(0.1), 1.4 - pull)), 0.005, 0.3))
        sign = number == 0 or bool(rng.random() < 0.5 + 0.4 * pull)
        parameters: dict[str, Any] = {
            PREFIX + "learning_rate": rate,
            PREFIX + "restarts": 30 if number == 0 else int(rng.integers(5, 61)),
            PREFIX + "schedule": "constant" if number == 0 else str(rng.choice(SPACE[2]["of"])),
            PREFIX + "sign": sign,
            PREFIX + "alpha1": 0.1 if number == 0 else float(np.exp(rng.uniform(math.log(0.001), math.log(10)))),
        }
        if sign:
            parameters[PREFIX + "lambda_inv"] = 1.0 if number == 0 else float(rng.uniform(0, 2))
        score = 0.82 - 0.035 * abs(math.log(rate / 0.11)) - (0 if sign else 0.05) + 0.01 * rng.standard_normal()
        values = {"cell_accuracy": float(score)}
        if several:
            leak = float(np.clip(0.28 - 0.5 * rng.random() ** 0.5 * 0.5, 0.02, 0.4))
            values = {"accuracy": 0.84 - 0.25 * max(0.0, 0.2 - leak) ** 1.2 - 0.01 * rng.random(), "leakage": leak}
        return {
            "kind": "tuning", "trial": number, "state": "complete", "seconds": float(20 + 15 * rng.random()),
            "worker": f"node1 {4711 + number % 2}", "values": values, "parameters": parameters,
            "intermediate": [[step, score - 0.04 / step] for step in (1, 2, 4, 8)], "is_default": number == 0,
            "is_best": False, "on_front": False, "is_knee": False, "retry_of": None, "error": None,
        }  # fmt: skip

    @staticmethod
    def _end_some(rng: np.random.Generator, rows: list[dict[str, Any]]) -> None:
        """Every fourth trial from 7 on is pruned; 12 is killed and run again, 22 fails for good."""
        for row in rows[7::4]:
            row |= {"state": "pruned", "values": None, "intermediate": [[1, row["values"]["cell_accuracy"] - 0.06]]}
            row["seconds"] = float(5 + rng.random())
        if len(rows) > 24:
            rows[12] |= {"state": "failed", "values": None, "intermediate": [], "seconds": None, "is_default": False}
            rows[22] |= {"state": "failed", "values": None, "intermediate": [], "error": "loss is not finite at step 3"}
            rows.append(rows[12] | {"trial": len(rows), "state": "complete", "values": {"cell_accuracy": 0.794}})
            rows[-1] |= {"retry_of": 12, "seconds": 24.0}

    @staticmethod
    def _mark(rows: list[dict[str, Any]], several: bool) -> None:
        done = [row for row in rows if row["state"] == "complete"]
        if done and not several:
            max(done, key=lambda row: row["values"]["cell_accuracy"])["is_best"] = True
        if done and several:
            for row in done:
                mine = row["values"]
                row["on_front"] = not any(
                    other["values"]["accuracy"] >= mine["accuracy"] and other["values"]["leakage"] <= mine["leakage"]
                    for other in done
                    if other is not row
                )
            front = sorted((row for row in done if row["on_front"]), key=lambda row: row["values"]["leakage"])
            front[len(front) // 2]["is_knee"] = True

    def _write(self, name: str, content: Any) -> None:
        (self.folder / name).write_text(json.dumps(content))


@pytest.fixture
def make_study(tmp_path: Path) -> StudyMaker:
    """A maker for the folder of a study named ``run``."""
    return StudyMaker(tmp_path / "run")


@pytest.fixture
def make_named_study(tmp_path: Path) -> Callable[[str], StudyMaker]:
    """A maker for the folder of a study of any name."""
    return lambda name: StudyMaker(tmp_path / name)


@pytest.fixture(scope="session")
def compared() -> Callable[..., dict[str, Any]]:
    """Makes a held-out comparison with an interval of the difference."""
    return held_out
