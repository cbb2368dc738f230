"""A whole audit: the run folder, its rows, and what is refused before any work."""

import csv
import errno
import json
import math
import shutil
import stat
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml
from rich.console import Console

from lightleak.callbacks.capture_store import list_captures
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.summary import summarize
from lightleak.experiments import run, training
from lightleak.experiments.attack_settings import with_label_setting
from lightleak.experiments.clients import FreshClients
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.folder import HOLDER_FILE
from lightleak.experiments.kinds.updates.plan import load_capture
from lightleak.experiments.load import load_config
from lightleak.experiments.plan_text import describe_plan
from lightleak.experiments.run import open_run_folder, run_audit
from lightleak.protocols.records import RecordedBatch
from lightleak.report.read import load_cells, load_run

# The issue's words: scripts outside the project read these names.
ISSUE_FIELDS = {
    "dataset",
    "target",
    "protocol",
    "attack",
    "batch_size",
    "labels",
    "defense",
    "seed",
    "batch_index",
    "cell_accuracy",
    "categorical_accuracy",
    "numerical_accuracy",
    "exact_match_rate",
    "rmse",
    "seconds",
}


def results_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text())


def test_folder_holds_what_the_design_lists(finished: Path) -> None:
    for name in ("config.yaml", "results.json", "metrics.csv", "report.html", "environment.json"):
        assert (finished / name).stat().st_size > 0
    captures = sorted((finished / "captures").iterdir())
    assert [path.name for path in captures] == ["e000-s000000-r0", "e001-s000011-r0"]
    for capture in captures:
        assert {path.name for path in capture.iterdir()} == {"observation", "truth"}
    assert len(list((finished / "reconstructions").glob("*.csv"))) == len(results_of(finished)["rows"]) == 8


def test_a_training_says_what_always_answering_the_commonest_label_gets(finished: Path) -> None:
    trained = json.loads((finished / "training.json").read_text())
    test = prepare_experiment(load_config(finished / "config.yaml")).table.test
    assert trained["test_rows"] == len(test)
    assert trained["test_majority"] == max((test["label"] == one).mean() for one in test["label"].unique())


def test_folder_is_its_owners_alone(finished: Path) -> None:
    assert stat.S_IMODE(finished.stat().st_mode) == 0o700
    assert stat.S_IMODE((finished / "report.html").stat().st_mode) == 0o600


def test_results_have_the_names_that_scripts_read(finished: Path) -> None:
    results = results_of(finished)
    assert set(results) == {"schema_version", "rows", "summary"}
    assert results["schema_version"] == 1
    for row in results["rows"]:
        assert set(row) >= ISSUE_FIELDS
        assert row["dataset"] == "synthetic" and row["target"] == "mlp-6" and row["protocol"] == "fedsgd"
        assert row["attack"] in ("tableak", "random") and row["labels"] == "true" and row["defense"] == "none"
        assert row["seed"] == 0 and row["seconds"] > 0
        for accuracy in ("cell_accuracy", "categorical_accuracy", "numerical_accuracy", "exact_match_rate"):
            assert 0 <= row[accuracy] <= 1
    drawn = [(r["attack"], r["source"], r["epoch"], r["batch_size"], r["batch_index"]) for r in results["rows"]]
    per_attack = [("initial", 0, 4, 0), ("initial", 0, 4, 1), ("training", 0, 8, 0), ("training", 1, 8, 1)]
    assert drawn == [(attack, *rest) for attack in ("tableak", "random") for rest in per_attack]


def test_results_are_json_without_nan(finished: Path) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    json.loads((finished / "results.json").read_text(), parse_constant=refuse)


def test_a_training_that_diverged_is_json_without_nan(tmp_path: Path, tiny: Any, silent: Console) -> None:
    diverging = {"epochs": 1, "batch_size": 8, "optimizer": {"learning_rate": 1e18}}
    config = tiny(training=diverging, capture__epochs=[0], initial__batches=0, attacks={"random": {}})
    with pytest.warns(UserWarning, match="AUROC is undefined: predictions are NaN"):
        run_audit(config, tmp_path / "run", console=silent)
    for name in ("results.json", "training.json"):
        json.loads((tmp_path / "run" / name).read_text(), parse_constant=pytest.fail)
    tested = json.loads((tmp_path / "run" / "training.json").read_text())["test"]
    assert tested["test/loss"] is None and tested["test/auroc"] is None and 0 <= tested["test/accuracy"] <= 1


def test_summary_has_mean_std_n_and_interval_of_every_group(finished: Path) -> None:
    results = results_of(finished)
    for group in results["summary"]:
        keys = {key: value for key, value in group.items() if not isinstance(value, dict)}
        assert {"dataset", "target", "protocol", "attack", "batch_size", "labels", "defense"} <= set(keys)
        rows = [row for row in results["rows"] if keys.items() <= row.items()]
        assert group["cell_accuracy"]["n"] == len(rows) > 0
        for name in ("cell_accuracy", "exact_match_rate", "rmse", "seconds"):
            assert group[name] == pytest.approx(summarize([row[name] for row in rows]).to_dict(), nan_ok=True)
    assert sum(group["cell_accuracy"]["n"] for group in results["summary"]) == len(results["rows"])


def test_metrics_stand_beside_leakage(finished: Path) -> None:
    metrics = pd.read_csv(finished / "metrics.csv")
    for name in ("val/accuracy", "train/loss", "reconstruction/inverting_gradients/cell_accuracy"):
        assert list(metrics.dropna(subset=[name])["epoch"]) == [0, 1]
    assert len(metrics.dropna(subset=["test/accuracy"])) == 1
    assert list((finished / "tensorboard").glob("events.out.tfevents.*"))


def test_config_in_the_folder_is_the_resolved_one(finished: Path) -> None:
    content = yaml.safe_load((finished / "config.yaml").read_text())
    assert load_config(finished / "config.yaml").to_dict() == content
    assert content["training"]["optimizer"]["name"] == "sgd"  # a default, written out


def test_environment_says_what_the_numbers_depend_on(finished: Path) -> None:
    environment = json.loads((finished / "environment.json").read_text())
    assert environment["command"] == ["lightleak", "audit"]
    assert environment["device"] == "cpu" and environment["cores"] >= 1
    assert environment["packages"]["torch"].startswith(torch.__version__.split("+")[0])


def test_reconstructions_agree_with_the_rows(finished: Path) -> None:
    for row in results_of(finished)["rows"]:
        cells = pd.read_csv(finished / row["reconstruction"], dtype=str)
        known = ["status", "digits"]
        assert list(cells.columns) == ["row", "column", "true", "reconstructed", "correct", "entropy", *known]
        assert len(cells) == row["batch_size"] * 4
        assert (cells["correct"] == "True").mean() == pytest.approx(row["cell_accuracy"])
        same = cells[cells["column"].isin(["d0", "d1"])]
        assert ((same["true"] == same["reconstructed"]) == (same["correct"] == "True")).all()


def test_true_cells_are_rows_of_the_table(finished: Path) -> None:
    experiment = prepare_experiment(load_config(finished / "config.yaml"))
    train = experiment.table.train
    held = {(r["d0"], r["d1"], round(r["c0"], 3), round(r["c1"], 3)) for r in train.to_dict("records")}
    for file in (finished / "reconstructions").glob("*.csv"):
        cells = pd.read_csv(file, dtype=str).pivot(index="row", columns="column", values="true")
        for _, row in cells.iterrows():
            assert (row["d0"], row["d1"], round(float(row["c0"]), 3), round(float(row["c1"]), 3)) in held


def test_redacted_run_leaves_no_value_behind(tmp_path: Path, tiny: Any, silent: Console) -> None:
    folder = tmp_path / "run"
    run_audit(tiny(redact=True, training__epochs=1), folder, console=silent)
    assert not list(folder.rglob("truth"))
    for file in (folder / "reconstructions").glob("*.csv"):
        with file.open() as lines:
            for cell in csv.DictReader(lines):
                assert cell["true"] == cell["reconstructed"] == ""
                assert cell["correct"] in ("True", "False")
    assert all(row["cell_accuracy"] is not None for row in results_of(folder)["rows"])


def test_restored_labels_are_said_in_rows_and_settings(tmp_path: Path, tiny: Any, silent: Console) -> None:
    attacks = {"inverting_gradients": {"steps": 2}, "tableak": {"steps": 2, "restarts": 1, "labels": "true"}}
    config = tiny(labels="restored", label_method="bias", attacks=attacks, training__epochs=0, initial__batches=1)
    rows = run_audit(config, tmp_path / "run", console=silent)["rows"]
    assert [(row["attack"], row["labels"], row["options"]["labels"]) for row in rows] == [
        ("inverting_gradients", "restored", "bias"),
        ("tableak", "true", "true"),
    ]


def test_label_setting_reaches_only_attacks_that_use_labels(tiny: Any) -> None:
    config = tiny(labels="restored")
    assert with_label_setting(config, "random", {}) == {}
    assert with_label_setting(config, "tableak", {"steps": 3}) == {"labels": "geng", "steps": 3}
    assert with_label_setting(config, "tableak", {"labels": "bias"}) == {"labels": "bias"}


def test_clipped_gradients_are_named_in_the_rows(tmp_path: Path, tiny: Any, silent: Console) -> None:
    config = tiny(
        capture__at="clipped", training__trainer={"gradient_clip_val": 0.01}, attacks=["random"], initial__batches=0
    )
    rows = run_audit(config, tmp_path / "run", console=silent)["rows"]
    assert {row["defense"] for row in rows} == {"clipped"}
    for folder in list_captures(tmp_path / "run" / "captures"):
        update, _ = load_capture(folder)
        norm = math.sqrt(sum(float(g.square().sum()) for g in update.update.values()))
        assert norm <= 0.01 + 1e-6


def test_no_wanted_update_is_cut_off(tiny: Any, silent: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    def capture(**settings: Any) -> None:
        raise KeyError(settings["max_captures"])

    monkeypatch.setattr(training, "GradientCapture", capture)
    config = tiny(capture__epochs=list(range(30)), capture__per_epoch=5)
    with pytest.raises(KeyError, match="150"):
        training.train(config, prepare_experiment(config), Path("unused"), silent)


def test_plan_counts_what_the_run_then_does(finished: Path, silent: Console, capsys: pytest.CaptureFixture) -> None:
    config = load_config(finished / "config.yaml")
    before = sorted(finished.rglob("*"))
    describe_plan(config, Console(width=200), seconds=0.1)
    printed = capsys.readouterr().out
    assert "4 on fresh clients in 2 packs, 4 on the training run" in printed
    assert "96 training and 24 test rows" in printed
    assert sorted(finished.rglob("*")) == before


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"attacks": ["tabbleak"]}, "did you mean 'tableak'"),
        ({"attacks.tableak.stepz": 3}, "attacks.tableak: .*stepz"),
        ({"attacks.tableak.steps": "many"}, "attacks.tableak: steps"),
        ({"monitor.attack": "nosuch"}, "unknown attack 'nosuch'"),
        ({"monitor.attack": "tableak", "monitor.options": {"foo": 1}}, "monitor.options: .*foo"),
        ({"attacks.tableak.precision": "tf32", "device": "cpu"}, "precision 'tf32' needs a GPU"),
        ({"monitor.attack": "tableak", "monitor.options": {"precision": "tf32"}, "device": "cpu"}, "needs a GPU"),
        ({"data.name": "fare"}, "did you mean 'fair'"),
        ({"data.options.rows": 3}, "option 'rows' of dataset 'synthetic' does not exist"),
        ({"target.network": "mlq"}, "did you mean 'mlp'"),
        ({"target.options.hidden": 5}, "hidden must be a sequence of widths"),
        ({"target.options.depth": 5}, "depth"),
        ({"initial.batch_sizes": [97]}, r"batch_size must be at most 96 \(training rows of 'synthetic'\), got 97"),
        ({"training.batch_size": 90}, "batch_size must be at most"),
        ({"training.trainer.acelerator": "cpu"}, "training.trainer: .*acelerator"),
        ({"training.trainer.accelerator": "abacus"}, "training.trainer: .*abacus"),
        ({"training.trainer.callbacks": []}, "training.trainer cannot set callbacks"),
        ({"device": "abacus"}, "device must be auto, cpu, cuda or cuda:N, got 'abacus'"),
        ({"target": {"network": "resnet"}, "initial.batch_sizes": [1]}, "at least 2 values per channel"),
    ],
)
def test_what_cannot_be_served_is_refused_before_any_work(
    tmp_path: Path, tiny: Any, silent: Console, changed: dict[str, Any], message: str
) -> None:
    config = tiny(**{key.replace(".", "__"): value for key, value in changed.items()})
    with pytest.raises(UsageError, match=message):
        run_audit(config, tmp_path / "run", console=silent)
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match=message):
        describe_plan(config, silent)


def test_a_folder_takes_one_config(finished: Path, tmp_path: Path, tiny: Any, silent: Console) -> None:
    with pytest.raises(UsageError, match="holds a run of another config"):
        run_audit(tiny(seed=1), finished, console=silent)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty and holds no run"):
        run_audit(tiny(), tmp_path, console=silent)
    with pytest.raises(UsageError, match="--output must be a folder"):
        run_audit(tiny(), tmp_path / "notes.txt", console=silent)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_that_a_kill_left_before_its_config_is_taken(tmp_path: Path, tiny: Any, silent: Console) -> None:
    left = tmp_path / "run" / f"{HOLDER_FILE}.0123456789ab.part"
    left.parent.mkdir()
    left.write_text("{")
    assert run_audit(tiny(), left.parent, console=silent)["rows"] and not left.exists()


def test_a_capture_that_does_not_replay_is_refused_before_any_attack(
    tmp_path: Path, tiny: Any, silent: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    monkeypatch.setattr(run, "run_packs", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run_audit(tiny(), folder, console=silent)
    truth = list_captures(folder / "captures")[1] / "truth"
    batch = RecordedBatch.load(truth)
    batch.inputs[3] = batch.inputs[3].flip(0)
    batch.save(truth)
    monkeypatch.setattr(run, "run_packs", lambda *_, **__: pytest.fail("an attack ran"))
    with pytest.raises(ObservationError, match="the recorded batch does not reproduce the raw gradient of step 11"):
        run_audit(tiny(), folder, console=silent)


def test_a_capture_without_its_truth_gets_no_row(tmp_path: Path, tiny: Any, silent: Console) -> None:
    config, folder = tiny(redact=True, training__epochs=1, attacks=["random"]), tmp_path / "run"
    before = run_audit(config, folder, console=silent)["rows"]
    assert run_audit(config, folder, console=silent)["rows"] == before
    file = next((folder / "units").glob("random-[!i]*"))  # not of an initial client
    file.unlink()
    with pytest.raises(ObservationError, match="has no truth to score against"):
        run_audit(config, folder, console=silent)
    assert not file.exists()


def test_a_capture_left_half_written_is_no_capture(tmp_path: Path, tiny: Any, silent: Console) -> None:
    folder = tmp_path / "run"
    config = tiny(attacks=["random"], initial__batches=1)
    first = run_audit(config, folder, console=silent)
    (folder / "captures" / "e001-s000012-r0" / "observation.partial").mkdir(parents=True)
    assert run_audit(config, folder, console=silent)["rows"] == first["rows"]


def test_fresh_clients_of_the_run_are_those_of_its_seed(finished: Path) -> None:
    config = load_config(finished / "config.yaml")
    experiment = prepare_experiment(config)
    clients = FreshClients(experiment.population, experiment.spec, config.seed, share_labels=True)
    _, truth = clients.observe(4, 1)
    cells = pd.read_csv(finished / "reconstructions" / "tableak-initial-b4-001.csv", dtype=str)
    decoded = experiment.encoder.decode(truth.inputs, clamp=False)
    assert list(cells[cells["column"] == "d0"]["true"]) == list(decoded["d0"])


def test_a_run_is_resumed_on_the_same_table_alone(tmp_path: Path, tiny: Any) -> None:
    table, folder = tmp_path / "own.csv", tmp_path / "run"
    table.write_text("age,ill\n" + "3,no\n5,yes\n" * 20)
    config = tiny(data={"table": str(table), "label": "ill"})
    for _ in range(2):
        with open_run_folder(folder, config):
            pass
    table.write_text("age,ill\n" + "3,no\n6,yes\n" * 20)
    with pytest.raises(UsageError, match=r"data\.table .*own\.csv has changed since .*run was begun; choose another"):
        open_run_folder(folder, config).__enter__()
    (folder / "inputs.json").unlink()  # as earlier versions left it
    with open_run_folder(folder, config):
        pass


def test_captures_may_be_added_to_an_attack_but_not_exchanged(tmp_path: Path, tiny: Any, save_captures: Any) -> None:
    root, folder, config = tmp_path / "captures", tmp_path / "run", tiny()
    first, second = save_captures(tmp_path / "all")
    for capture in (first, second):
        shutil.copytree(capture, root / capture.name)
        with open_run_folder(folder, config, root):
            pass
    shutil.rmtree(root / first.name)
    shutil.copytree(second, root / first.name)
    with pytest.raises(UsageError, match=r"capture .* has changed since"):
        open_run_folder(folder, config, root).__enter__()


def test_a_folder_of_somebody_else_is_named(tmp_path: Path, tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: Any, **__: Any) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", closed)
    with pytest.raises(UsageError, match="run cannot be read: Permission denied; choose a folder of your own"):
        run.resumed_config(tmp_path / "run")
    with pytest.raises(UsageError, match="run cannot be read"):
        open_run_folder(tmp_path / "run", tiny()).__enter__()


@pytest.mark.parametrize("raw", [False, True], ids=["escaped", "raw"])
def test_formulas_in_a_table_are_text_to_a_spreadsheet_and_themselves_in_the_report(
    tmp_path: Path, tiny: Any, silent: Console, raw: bool
) -> None:
    words = ["=1+1", "@SUM(A1)", "-2+3", "plain"]
    table = pd.DataFrame({"=job": words * 30, "age": [-7, 5, -3, 8, 2] * 24, "ill": ["no", "yes"] * 60})
    table.to_csv(tmp_path / "own.csv", index=False)
    own = {"table": str(tmp_path / "own.csv"), "label": "ill"}
    config = tiny(data=own, training__epochs=0, attacks={"random": {}}, raw_csv=raw)
    run_audit(config, tmp_path / "run", console=silent)
    file = tmp_path / "run" / "reconstructions" / "random-initial-b4-000.csv"
    written = pd.read_csv(file, dtype=str, keep_default_na=False)
    jobs = written[written["column"] == ("=job" if raw else "'=job")]
    assert set(jobs["true"]) <= {word if raw or word == "plain" else f"'{word}" for word in words}
    ages = written[written["column"] == "age"]["true"]
    assert len(jobs) == len(ages) == 4 and all(age.lstrip("-").isdigit() for age in ages)
    run = load_run(tmp_path / "run")
    cells = load_cells(run, run.rows[0].reconstruction)
    assert cells is not None and {cell["column"] for cell in cells} == {"=job", "age"}
    assert {cell["true"] for cell in cells if cell["column"] == "=job"} <= set(words)
