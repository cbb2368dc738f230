"""The comparison on what no trial saw: paired, and by trainings where the training is what is tuned."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lightleak.core.summary import summarize
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.kinds.updates.plan import plan_units
from lightleak.experiments.load import parse_config
from lightleak.tuning import held_out
from lightleak.tuning.held_out import HELD_OUT_SEED, compare, held_out_tree
from lightleak.tuning.objective import ObjectiveConfig
from lightleak.tuning.run import run_tune
from lightleak.tuning.trial import trial_tree


def test_what_is_held_out_depends_on_the_kind_of_audit() -> None:
    fresh = held_out_tree({"initial": {"rows": "validation", "batches": 3}, "data": {"name": "fair"}, "seed": 4}, 7)
    assert fresh["initial"] == {"rows": "held_out", "batches": 7}
    assert fresh["seed"] == HELD_OUT_SEED + 4 and fresh["data"] == {"split_seed": 4, "name": "fair"}
    assert held_out_tree({"initial": {"batches": 3}}, 0)["initial"]["batches"] == 3
    captured = held_out_tree({"initial": {"batches": 0}, "seed": 4}, 7)
    assert captured["seed"] == HELD_OUT_SEED + 4 and captured["initial"]["batches"] == 0
    vertical = held_out_tree({"kind": "vertical", "seed": 4}, 2)
    assert vertical["seeds"] == [HELD_OUT_SEED, HELD_OUT_SEED + 1] and "seed" not in vertical
    frontier = held_out_tree({"kind": "defense-frontier", "seed": 4}, 2)
    assert frontier["seed"] == HELD_OUT_SEED + 4 and frontier["data"]["split_seed"] == 4


def test_networks_and_starts_are_others_and_test_rows_the_same(tmp_path: Path, tiny_study: Any) -> None:
    config = tiny_study()
    tree = trial_tree(config, {"attacks.tableak.restarts": 3, "attacks.tableak.learning_rate": 0.1})
    chosen = parse_config(tree)
    reported = parse_config(held_out_tree(tree, 3))
    one, other = prepare_experiment(chosen), prepare_experiment(reported)
    assert one.table.test.equals(other.table.test) and one.table.train.equals(other.table.train)
    pairs = zip(plan_units(chosen, one, tmp_path), plan_units(reported, other, tmp_path), strict=True)
    for mine, theirs in pairs:
        assert mine.seed != theirs.seed
        name = next(iter(mine.observe()[0].parameters))
        assert not torch.equal(mine.observe()[0].parameters[name], theirs.observe()[0].parameters[name])


def test_pairs_are_by_unit_and_the_interval_is_of_their_differences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracies = {"trial-0": [0.1, 0.5, 0.9, 0.3], "trial-5": [0.2, 0.6, 1.0]}

    def audit(tree: Any, folder: Path, *_: Any) -> list[dict[str, Any]]:
        return [
            {"unit": f"t-{i}", "batch_index": i, "attack": "tableak", "cell_accuracy": value, "seconds": 2.0}
            for i, value in enumerate(accuracies[folder.name])
        ]

    monkeypatch.setattr(held_out, "_run", audit)
    found = compare(ObjectiveConfig("cell_accuracy"), {0: {}, 5: {}}, 4, tmp_path, 1)
    assert isinstance(found, dict) and found["n"] == 3, "what only one of them has makes no pair"
    assert found["default"]["mean"] == pytest.approx(0.5) and found["best"]["mean"] == pytest.approx(0.6)
    gain = found["difference"]
    assert (gain["mean"], gain["low"], gain["high"]) == pytest.approx((0.1, 0.1, 0.1)), "the spread is of the clients"
    assert found["best"]["seconds"] == 2.0
    monkeypatch.setitem(accuracies, "trial-5", [0.2])
    said = compare(ObjectiveConfig("cell_accuracy"), {0: {}, 5: {}}, 4, tmp_path, 1)
    assert said == (
        "of 4 seeds or clients with the defaults and 1 with the best trial 1 can be paired, and a comparison needs 2"
    )


def test_results_of_one_training_are_one_observation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = {"trial-0": {0: 0.30, 1: 0.20}, "trial-1": {0: 0.20, 1: 0.18}}

    def audit(tree: Any, folder: Path, *_: Any) -> list[dict[str, Any]]:
        return [
            {"unit": f"{party}-e{epoch}-s{seed}", "seed": seed, "absolute_error": error + 0.001 * epoch, "seconds": 1.0}
            for seed, error in errors[folder.name].items()
            for party in ("C1", "C2")
            for epoch in (1, 2)
        ]

    monkeypatch.setattr(held_out, "_run", audit)
    pair = {number: {"kind": "vertical"} for number in (0, 1)}
    found = compare(ObjectiveConfig("absolute_error", "minimize"), pair, 2, tmp_path, 1)
    assert isinstance(found, dict) and found["n"] == 2 and found["words"].startswith("2 seeds")
    expected = summarize([-0.10, -0.02])
    assert [found["difference"][name] for name in ("mean", "low", "high")] == pytest.approx(
        [expected.mean, expected.low, expected.high]
    )
    assert isinstance(compare(ObjectiveConfig("absolute_error", "minimize", {"seed": 0}), pair, 2, tmp_path, 1), str)


@pytest.mark.parametrize(
    ("tree", "name"),
    [
        ({"kind": "vertical"}, "C2-e{searched}-s{i}"),
        ({"kind": "defense-frontier"}, "tableak-{i}-noise-{searched}"),
        ({}, "tableak-initial-b{searched}-{i}"),
    ],
)
def test_pairs_are_found_where_what_was_searched_is_in_the_names_of_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tree: Any, name: str
) -> None:
    def audit(tree: Any, folder: Path, *_: Any) -> list[dict[str, Any]]:
        searched = int(folder.name.removeprefix("trial-"))
        number = "seed" if tree.get("kind") == "vertical" else "batch_index"
        return [
            {
                "unit": name.format(searched=searched, i=i),
                number: i,
                "batch_size": searched,
                "cell_accuracy": 0.1 * searched,
            }
            for i in range(3)
        ]

    monkeypatch.setattr(held_out, "_run", audit)
    found = compare(ObjectiveConfig("cell_accuracy"), {2: tree, 4: tree}, 3, tmp_path, 1)
    assert isinstance(found, dict) and found["n"] == 3
    assert found["difference"]["mean"] == pytest.approx(0.2)


def test_clients_of_different_sizes_are_observations_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def audit(*_: Any) -> list[dict[str, Any]]:
        clients = [(size, i) for size in (8, 32) for i in range(3)]
        return [
            {"unit": f"b{size}-{i}", "batch_size": size, "batch_index": i, "cell_accuracy": 0.5} for size, i in clients
        ]

    monkeypatch.setattr(held_out, "_run", audit)
    found = compare(ObjectiveConfig("cell_accuracy"), {0: {}, 1: {}}, 3, tmp_path, 1)
    assert isinstance(found, dict) and found["n"] == 6


def test_clients_of_a_frontier_are_the_observations_and_its_trainings_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def audit(tree: Any, folder: Path, *_: Any) -> list[dict[str, Any]]:
        attacks = [
            {"unit": f"tableak-{i}-{defense}", "seed": 0, "batch_index": i, "source": "initial", "cell_accuracy": 0.5}
            for i in range(3)
            for defense in ("none", "sign")
        ]
        return [*attacks, *({"unit": f"training-{i}", "seed": i, "source": "training", "auroc": 0.9} for i in range(5))]

    monkeypatch.setattr(held_out, "_run", lambda *given: [{"seconds": 1.0, **row} for row in audit(*given)])
    pair = {number: {"kind": "defense-frontier", "initial": {"batches": 3}} for number in (0, 1)}
    found = compare(ObjectiveConfig("cell_accuracy"), pair, 20, tmp_path, 1)
    assert isinstance(found, dict) and found["n"] == 3
    assert found["words"].startswith("3 clients drawn anew from the same training rows")
    of_trainings = compare(ObjectiveConfig("auroc"), pair, 20, tmp_path, 1)
    assert isinstance(of_trainings, dict) and of_trainings["n"] == 5


def test_a_training_that_diverged_has_no_held_out_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def audit(tree: Any, folder: Path, *_: Any) -> None:
        diverged = folder.parent.name == "trial-0" and folder.name != "seed-002"
        folder.mkdir(parents=True)
        (folder / "training.json").write_text(json.dumps({"test": {"test/auroc": None if diverged else 0.75}}))

    monkeypatch.setattr(held_out, "_run", audit)
    pair = {number: {"seed": 0} for number in (0, 5)}
    said = compare(ObjectiveConfig("val/auroc"), pair, 3, tmp_path / "some", 1)
    assert isinstance(said, str), "one pair is no comparison"


def test_a_tuned_training_is_judged_on_the_test_rows_of_other_seeds(
    tmp_path: Path, tiny_study: Any, silent: Any
) -> None:
    config = tiny_study(
        training={
            "epochs": 2,
            "optimizer": {"learning_rate": {"search": "choice", "of": [5.0, 0.01, 0.02, 0.03, 0.04], "default": 5.0}},
        },
        initial__batches=0,
        attacks=["random"],
        study__objectives={"metric": "val/loss", "direction": "minimize"},
        study__budget=None,
        study__held_out=3,
        study__trials=4,
        study__pruner="median",
    )
    run_tune(config, tmp_path / "study", workers=1, console=silent)
    results = json.loads((tmp_path / "study" / "results.json").read_text())
    best = next(row for row in results["rows"] if row["is_best"])
    entry = results["study"]["held_out"]
    assert not best["is_default"], "a step of 5 leads nowhere"
    assert entry["metric"] == "val/loss" and "test rows" in entry["words"] and entry["n"] == 3
    tested = []
    for i in range(3):
        folder = tmp_path / "study" / "held_out" / f"trial-{best['trial']}" / f"seed-{i:03d}"
        tested.append(json.loads((folder / "training.json").read_text())["test"]["test/loss"])
    assert entry["best"]["mean"] == pytest.approx(sum(tested) / 3)
