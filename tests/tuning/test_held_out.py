"""The comparison on what no trial saw: paired, and by trainings where the training is what is tuned."""

import json
from pathlib import Path
from typing import Any

import pytest

from lightleak.tuning import held_out
from lightleak.tuning.held_out import HELD_OUT_SEED, compare, held_out_tree
from lightleak.tuning.objective import ObjectiveConfig
from lightleak.tuning.run import run_tune


def test_what_is_held_out_depends_on_the_kind_of_audit() -> None:
    assert held_out_tree({"initial": {"rows": "validation", "batches": 3}}, 7)["initial"] == {
        "rows": "held_out",
        "batches": 7,
    }
    captured = held_out_tree({"initial": {"batches": 0}, "seed": 4}, 7)
    assert captured["seed"] == HELD_OUT_SEED and captured["initial"]["batches"] == 0
    vertical = held_out_tree({"kind": "vertical", "seed": 4}, 2)
    assert vertical["seeds"] == [HELD_OUT_SEED, HELD_OUT_SEED + 1] and "seed" not in vertical
    assert held_out_tree({"kind": "defence-frontier", "seed": 4}, 2)["seed"] == HELD_OUT_SEED


def test_pairs_are_by_unit_and_the_interval_is_of_their_differences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracies = {"trial-0": [0.1, 0.5, 0.9, 0.3], "trial-5": [0.2, 0.6, 1.0]}

    def audit(tree: Any, folder: Path, *_: Any) -> list[dict[str, Any]]:
        return [
            {"unit": f"tableak-{i}", "attack": "tableak", "cell_accuracy": value, "seconds": 2.0}
            for i, value in enumerate(accuracies[folder.name])
        ]

    monkeypatch.setattr(held_out, "_run", audit)
    found = compare(ObjectiveConfig("cell_accuracy"), {0: {}, 5: {}}, 4, tmp_path, 1)
    assert found is not None and found["n"] == 3, "what only one of them has makes no pair"
    assert found["default"]["mean"] == pytest.approx(0.5) and found["best"]["mean"] == pytest.approx(0.6)
    gain = found["difference"]
    assert (gain["mean"], gain["low"], gain["high"]) == pytest.approx((0.1, 0.1, 0.1)), "the spread is of the clients"
    assert found["best"]["seconds"] == 2.0
    monkeypatch.setitem(accuracies, "trial-5", [0.2])
    assert compare(ObjectiveConfig("cell_accuracy"), {0: {}, 5: {}}, 4, tmp_path, 1) is None


def test_a_tuned_training_is_judged_on_the_test_rows_of_other_seeds(
    tmp_path: Path, tiny_study: Any, silent: Any
) -> None:
    config = tiny_study(
        training={
            "epochs": 2,
            "optimizer": {"learning_rate": {"search": "choice", "of": [1e-9, 0.3], "default": 1e-9}},
        },
        initial__batches=0,
        attacks=["random"],
        study__objectives="val/accuracy",
        study__budget=None,
        study__held_out=3,
        study__trials=4,
        study__pruner="median",
    )
    run_tune(config, tmp_path / "study", workers=1, console=silent)
    results = json.loads((tmp_path / "study" / "results.json").read_text())
    best = next(row for row in results["rows"] if row["is_best"])
    entry = results["study"]["held_out"]
    if best["is_default"]:
        assert entry is None
        return
    assert entry["metric"] == "val/accuracy" and "test rows" in entry["words"] and entry["n"] == 3
    tested = []
    for i in range(3):
        folder = tmp_path / "study" / "held_out" / f"trial-{best['trial']}" / f"seed-{i:03d}"
        tested.append(json.loads((folder / "training.json").read_text())["test"]["test/accuracy"])
    assert entry["best"]["mean"] == pytest.approx(sum(tested) / 3)
