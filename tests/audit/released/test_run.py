"""An audit of a released model from config to report, interrupted and resumed."""

import json
import math
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from rich.console import Console

from lightleak.attacks.model_inversion.plgmi import FittedPLGMI
from lightleak.audit.released import job
from lightleak.audit.released import world as worlds
from lightleak.audit.released.config import ReleasedConfig, parse_released_config
from lightleak.audit.released.models import ModelPack, load_judge, load_model
from lightleak.audit.released.offline import attack_released_captures
from lightleak.audit.released.run import describe_released_plan, run_released_audit
from lightleak.core.errors import LightLeakError, UnsupportedError
from lightleak.core.seeds import derive_seed

SILENT = Console(quiet=True)
UNTIMED = ("seconds", "fit_seconds", "training_seconds")


@pytest.fixture(scope="module")
def finished(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A finished run, shared by all tests of this module."""
    folder = tmp_path_factory.mktemp("released") / "run"
    return folder, run_released_audit(parse_released_config(settings), folder, ["lightleak", "audit"], SILENT)


@pytest.fixture
def done(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A copy of the finished run, to do with as one likes."""
    shutil.copytree(finished[0], tmp_path / "done")
    return tmp_path / "done", finished[1]


def untimed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in UNTIMED} for row in rows]


def test_every_attack_search_and_class_has_a_row(done: tuple[Path, dict[str, Any]]) -> None:
    folder, results = done
    rows = results["rows"]
    found = {(row["label"], row["latent_search"], row["class"], row["evaluation_index"]) for row in rows}
    searches = {"plgmi": ("random", "gradient"), "public_pseudo_labelled": ("random",), "public_random": ("random",)}
    classes = ("all", "d0", "d1", "d2")
    assert found == {(a, s, c, k) for a, names in searches.items() for s in names for c in classes for k in (0, 1)}
    for row in rows:
        assert row["kind"] == "released-model" and row["setting"] == "small"
        assert 0 <= row["attack_accuracy"] <= 1 and 0 <= row["ceiling"] <= 1
        assert math.isfinite(row["inversion_loss"])
        if row["class"] == "all":
            assert row["samples"] == 3 * (30 if row["latent_search"] == "random" else 10)
            assert (row["shapes_score"] is not None) == (row["latent_search"] == "random")
    assert (folder / "report.html").stat().st_size > 10_000
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_mean_over_classes_is_the_row_of_all(done: tuple[Path, dict[str, Any]]) -> None:
    rows = done[1]["rows"]
    for whole in (row for row in rows if row["class"] == "all"):
        same = [
            row
            for row in rows
            if row["class"] != "all" and row["unit"].startswith(whole["unit"] + "-") and row["label"] == whole["label"]
        ]
        assert len(same) == 3
        assert whole["attack_accuracy"] == pytest.approx(sum(row["attack_accuracy"] for row in same) / 3)


def test_the_gradient_search_lowers_the_loss_it_searches(done: tuple[Path, dict[str, Any]]) -> None:
    searched = [row for row in done[1]["rows"] if row["latent_search"] == "gradient" and row["class"] == "all"]
    assert all(row["inversion_loss_searched"] < row["inversion_loss_start"] for row in searched)


def test_the_folder_holds_what_the_report_needs(done: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = done
    entries = json.loads((folder / "inversion.json").read_text())["entries"]
    own = next(one for one in entries if one["label"] == "plgmi" and one["latent_search"] == "random")
    assert own["losses"]["iteration"][-1] == 150
    assert {one["class"] for one in own["nearest"]} == {"d0", "d1", "d2"}
    assert own["task"]["classes"] == 3 and own["target_scores"]["epochs"] <= 6
    table = pd.read_csv(folder / "reconstructions" / "plgmi-random-s0-e00.csv")
    assert len(table) == 90 and "patient" not in table.columns
    assert table["diagnosis"].value_counts().to_dict() == {"d0": 30, "d1": 30, "d2": 30}
    assert not (folder / "generators").exists()


def test_a_second_run_changes_nothing_and_another_seed_everything(
    done: tuple[Path, dict[str, Any]], config: ReleasedConfig, changed: Callable[..., ReleasedConfig], tmp_path: Path
) -> None:
    folder, results = done
    again = run_released_audit(config, tmp_path / "again", [], SILENT)
    assert untimed(again["rows"]) == untimed(results["rows"])
    resumed = run_released_audit(config, folder, [], SILENT)
    assert resumed["rows"] == results["rows"]  # seconds as well: nothing ran
    other = run_released_audit(changed(seed=1), tmp_path / "other", [], SILENT)
    assert untimed(other["rows"]) != untimed(results["rows"])


def test_interrupted_it_keeps_finished_evaluations_and_ends_where_it_would_have(
    done: tuple[Path, dict[str, Any]], config: ReleasedConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "stopped"
    generate, calls = FittedPLGMI.generate, []

    def stop(self: FittedPLGMI, *told: Any, **more: Any) -> Any:
        calls.append(told)
        if len(calls) == 4:  # the second evaluation's statistics
            raise KeyboardInterrupt
        return generate(self, *told, **more)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(FittedPLGMI, "generate", stop)
        run_released_audit(config, folder, [], SILENT)
    kept = folder / "units" / "plgmi-random-s0-e00.json"
    before = kept.stat().st_mtime_ns
    assert (folder / "report.html").is_file()
    assert len(json.loads((folder / "results.json").read_text())["rows"]) == 4
    finished = run_released_audit(config, folder, [], SILENT)
    assert kept.stat().st_mtime_ns == before
    assert untimed(finished["rows"]) == untimed(done[1]["rows"])


@pytest.mark.slow
def test_two_workers_give_the_rows_of_one(
    done: tuple[Path, dict[str, Any]], changed: Callable[..., ReleasedConfig], tmp_path: Path
) -> None:
    two = run_released_audit(changed(workers=2), tmp_path / "two", [], SILENT)
    assert untimed(two["rows"]) == untimed(done[1]["rows"])


def test_a_kept_model_is_attacked_with_and_without_its_truth(
    done: tuple[Path, dict[str, Any]], config: ReleasedConfig, tmp_path: Path
) -> None:
    capture = done[0] / "captures"
    whole = attack_released_captures(config, capture, tmp_path / "whole", [], SILENT)
    accuracies = [row["attack_accuracy"] for row in whole["rows"]]
    assert all(value is not None for value in accuracies)
    (capture / "s0" / "truth").rename(tmp_path / "away")
    bare = attack_released_captures(config, capture, tmp_path / "bare", [], SILENT)
    assert all(row.get("attack_accuracy") is None and row["ceiling"] is None for row in bare["rows"])
    assert [row["inversion_loss"] for row in bare["rows"]] == [row["inversion_loss"] for row in whole["rows"]]
    assert (tmp_path / "bare" / "report.html").is_file()


def test_redacted_it_leaves_no_rows(changed: Callable[..., ReleasedConfig], tmp_path: Path) -> None:
    folder = tmp_path / "redacted"
    run_released_audit(changed(redact=True), folder, [], SILENT)
    assert not (folder / "captures").exists() and not (folder / "reconstructions").exists()
    for one in json.loads((folder / "inversion.json").read_text())["entries"]:
        assert all(set(pair) == {"class", "distance"} for pair in one["nearest"])
    assert not (folder / "models").exists()  # the evaluation model has seen private rows
    marked = str(job.prepare_world(changed(redact=True), 0).task.private_train["glucose"].max()).encode()
    assert not [file for file in folder.rglob("*") if file.is_file() and marked in file.read_bytes()]


def test_trees_are_attacked_without_gradients(
    changed: Callable[..., ReleasedConfig], settings: dict[str, Any], tmp_path: Path
) -> None:
    trees = {"target__network": "boosted_trees", "target__options": {"rounds": 5}}
    with pytest.raises(UnsupportedError, match="plgmi_black_box"):
        run_released_audit(changed(**trees), tmp_path / "refused", [], SILENT)
    own = {"plgmi_black_box": {**settings["attacks"]["plgmi"]}}
    with pytest.raises(UnsupportedError, match="holds gradient"):
        run_released_audit(changed(**trees, attacks=own), tmp_path / "refused", [], SILENT)
    searches = ["random", "tpe", "random_best"]
    config = changed(**trees, attacks=own, samples__searches=searches, samples__tpe_per_class=2, samples__evaluations=1)
    rows = run_released_audit(config, tmp_path / "trees", [], SILENT)["rows"]
    assert {row["latent_search"] for row in rows} == set(searches)
    assert {row["samples"] for row in rows if row["latent_search"] != "random" and row["class"] == "all"} == {6}


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"attacks": {"plgmy": {}}}, "attacks.plgmy: unknown model inversion attack"),
        ({"attacks": {"plgmi": {"iteration": 3}}}, "attacks.plgmi.*iteration"),
        ({"samples__searches": ["best"]}, "samples.searches"),
        ({"training__batch_size": 100_000}, "training.batch_size must be at most"),
        ({"task__private_classes": 1}, "task.private_classes"),
        ({"evaluation_model__network": "gandolf"}, "unknown network"),
        ({"training__patience": 0}, "training.patience"),
        ({"task__group": "person"}, "'person'"),
        ({"attacks": {"plgmi": {"trainer": {"devices": 2}}}}, "cannot set devices in an audit"),
        ({"attacks": {"plgmi": {"trainer": {"foo": 1}}}}, "foo"),
        ({"attacks": {"gan_without_target": {"inversion_weight": 1}}}, "inversion_weight must be 0"),
    ],
)
def test_wrong_settings_are_refused_before_any_work(
    changed: Callable[..., ReleasedConfig], overrides: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(LightLeakError, match=said):
        run_released_audit(changed(**overrides), tmp_path / "run", [], SILENT)
    assert not (tmp_path / "run").exists()


def test_the_plan_says_what_would_be_done(config: ReleasedConfig, capsys: pytest.CaptureFixture[str]) -> None:
    describe_released_plan(config, Console(width=200))
    said = capsys.readouterr().out
    assert "time and memory: not estimated" in said
    assert "3 private: d0, d1, d2" in said and "plgmi, public_pseudo_labelled, public_random" in said


def test_the_attack_sees_no_private_row(done: tuple[Path, dict[str, Any]], config: ReleasedConfig) -> None:
    """Destroy the private rows once the models are trained: what an attack returns stays the same."""
    folder, results = done
    world = job.prepare_world(config, 0)
    seen = job.observe(config, world, 0, folder)
    for frame in (world.task.private_train, world.task.private_test, world.task.private_validation):
        frame.drop(frame.index, inplace=True)
    try:
        fitted = job.AttackPack(config, 0, "plgmi").attack.fit(seen, derive_seed(0, "plgmi"))
        labels = torch.tensor(list(fitted.classes)).repeat_interleave(30)
        samples = fitted.generate(labels, derive_seed(0, "evaluation", 0), "random")
    finally:
        worlds._world.cache_clear()
    told = next(row for row in results["rows"] if row["label"] == "plgmi" and row["class"] == "all")
    assert float(samples.loss.double().mean()) == pytest.approx(told["inversion_loss"], rel=1e-12)


def test_what_is_damaged_is_made_again(done: tuple[Path, dict[str, Any]], config: ReleasedConfig) -> None:
    folder, results = done
    weights = folder / "models" / "target-s0" / "weights.safetensors"
    rows = folder / "reconstructions" / "public_random-random-s0-e00.csv"
    scores = folder / "inversion" / "public_pseudo_labelled-random-s0-e00.json"
    whole = {file: file.read_bytes() for file in (weights, rows, scores)}
    for file, content in whole.items():
        file.write_bytes(content[: len(content) // 2])
    again = run_released_audit(config, folder, [], SILENT)
    assert untimed(again["rows"]) == untimed(results["rows"])
    assert weights.read_bytes() == whole[weights] and rows.read_bytes() == whole[rows] and scores.is_file()
    aside = {file.name for file in folder.rglob("*.damaged-1")}
    assert aside == {f"{file.name}.damaged-1" for file in whole} | {
        "model-target-s0.json.damaged-1",
        "public_random-random-s0-e00.json.damaged-1",
        "public_pseudo_labelled-random-s0-e00.json.damaged-1",
    }


def test_a_torn_capture_is_written_again(done: tuple[Path, dict[str, Any]], config: ReleasedConfig) -> None:
    folder, _ = done
    (folder / "captures" / "s0").rename(folder / "captures" / "s0.part")
    (folder / "captures" / "s0.part" / "truth" / "tensors.safetensors").unlink()
    run_released_audit(config, folder, [], SILENT)
    assert not (folder / "captures" / "s0.part").exists()
    assert (folder / "captures" / "s0" / "truth" / "tensors.safetensors").is_file()


def test_the_ceiling_is_a_mean_over_classes_as_the_accuracy_is(
    done: tuple[Path, dict[str, Any]], config: ReleasedConfig
) -> None:
    folder, results = done
    world = job.prepare_world(config, 0)
    judge = load_judge(folder, world, 0)
    test = world.task.private_test
    named = judge.network(world.encoder.encode(test)).argmax(1) == world.encoder.encode_labels(test)
    by_class = [float(named[(test["diagnosis"] == name).to_numpy()].double().mean()) for name in ("d0", "d1", "d2")]
    row = next(row for row in results["rows"] if row["class"] == "all")
    assert row["ceiling"] == pytest.approx(sum(by_class) / 3)
    assert row["ceiling_pooled"] == pytest.approx(float(named.double().mean()))
    target = load_model(folder, world, "target", 0)(world.encoder.encode(test)).argmax(1)
    hit = float((target == world.encoder.encode_labels(test)).double().mean())
    assert row["target_test_accuracy"] == pytest.approx(hit)
    assert judge.private.held_out_labels.tolist() == world.encoder.encode_labels(test).tolist()
    assert len(judge.private.train_labels) == len(world.task.private_train)


def test_training_stops_when_the_loss_stands_still(changed: Callable[..., ReleasedConfig], tmp_path: Path) -> None:
    still = changed(training__min_delta=100.0, training__patience=2, training__max_epochs=20)
    ModelPack(still, 0, "target").run(tmp_path, torch.device("cpu"), lambda done: None)
    found = json.loads((tmp_path / "units" / "model-target-s0.json").read_text())
    assert found["epochs"] == 3  # the first sets the mark, two more do not reach it


def test_evaluations_differ(done: tuple[Path, dict[str, Any]]) -> None:
    losses = [
        row["inversion_loss"]
        for row in done[1]["rows"]
        if row["label"] == "plgmi" and row["latent_search"] == "random" and row["class"] == "all"
    ]
    assert len(set(losses)) == 2


def test_several_captures_are_told_apart(
    done: tuple[Path, dict[str, Any]], config: ReleasedConfig, tmp_path: Path
) -> None:
    captures = done[0] / "captures"
    shutil.copytree(captures / "s0", captures / "s1")
    rows = attack_released_captures(config, captures, tmp_path / "both", [], SILENT)["rows"]
    assert {row["setting"] for row in rows} == {"small, capture s0", "small, capture s1"}
    assert not (tmp_path / "both" / "generators").exists()
