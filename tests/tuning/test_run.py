"""A whole study by the command: what it leaves, that it is resumed, and that kills cost nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import pytest
import torch

from lightleak.cli import main
from lightleak.core.errors import UsageError
from lightleak.experiments.load import load_config
from lightleak.tuning import run
from lightleak.tuning.config import load_tune_config
from lightleak.tuning.run import opened_study, run_tune
from lightleak.tuning.study import JOURNAL, STUDY_NAME, WORKER, open_storage


@pytest.fixture
def finished(tmp_path: Path, tiny_study: Any, silent: Any) -> Path:
    folder = tmp_path / "study"
    run_tune(tiny_study(), folder, workers=1, console=silent)
    return folder


def rows(folder: Path) -> list[dict[str, Any]]:
    return list(json.loads((folder / "results.json").read_text())["rows"])


def test_a_study_leaves_trials_best_config_comparison_and_report(finished: Path) -> None:
    results = json.loads((finished / "results.json").read_text())
    assert [row["trial"] for row in results["rows"]] == [0, 1, 2, 3]
    assert [row["is_default"] for row in results["rows"]] == [True, False, False, False]
    best = max(results["rows"], key=lambda row: row["values"]["cell_accuracy"])
    assert best["is_best"] and sum(row["is_best"] for row in results["rows"]) == 1
    table = pd.read_parquet(finished / "trials.parquet")
    assert table["value cell_accuracy"].tolist() == [row["values"]["cell_accuracy"] for row in results["rows"]]
    config = load_config(finished / "best.yaml")
    assert config.attacks["tableak"]["learning_rate"] == best["parameters"]["attacks.tableak.learning_rate"]
    assert config.attacks["tableak"]["steps"] == 60 // config.attacks["tableak"]["restarts"]
    assert config.initial.rows == "held_out" and config.initial.batches == 3
    assert (finished / "report.html").stat().st_size > 0
    assert (finished.stat().st_mode & 0o077) == 0
    held_out = results["study"]["held_out"]
    assert not best["is_default"], "of this study's seed another trial is best"
    gain = held_out["best"]["mean"] - held_out["default"]["mean"]
    assert held_out["n"] == 3 and held_out["difference"]["mean"] == pytest.approx(gain)


def test_a_comparison_that_cannot_be_made_is_said(
    tmp_path: Path, tiny_study: Any, silent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "compare", lambda *_: "nothing can be paired")
    results = run_tune(tiny_study(), tmp_path / "study", workers=1, console=silent)
    assert results["study"]["held_out"] is None and results["study"]["uncompared"] == "nothing can be paired"
    assert "no comparison on held-out data: nothing can be paired" in silent.file.getvalue()


def test_best_config_is_run_by_the_audit_command_as_it_is(finished: Path, tmp_path: Path) -> None:
    assert main(["audit", str(finished / "best.yaml"), "--output", str(tmp_path / "audit"), "--workers", "1"]) == 0
    accuracies = [row["cell_accuracy"] for row in rows(tmp_path / "audit") if row["attack"] == "tableak"]
    held_out = json.loads((finished / "results.json").read_text())["study"]["held_out"]
    assert sum(accuracies) / 3 == pytest.approx(held_out["best"]["mean"])


def test_more_trials_may_be_asked_for_and_nothing_is_done_again(
    finished: Path, tmp_path: Path, write_study: Any, silent: Any
) -> None:
    before = rows(finished)
    run_tune(load_tune_config(write_study(), {"study.trials": 6}), finished, workers=1, console=silent)
    after = rows(finished)
    unchanged = ("trial", "state", "seconds", "worker", "values", "parameters")
    assert [{k: row[k] for k in unchanged} for row in after[:4]] == [{k: row[k] for k in unchanged} for row in before]
    assert [row["state"] for row in after] == ["complete"] * 6


def test_a_folder_with_something_else_is_refused(finished: Path, tmp_path: Path, tiny_study: Any) -> None:
    with pytest.raises(UsageError, match="another study"):
        run_tune(tiny_study(study__held_out=2), finished)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").touch()
    with pytest.raises(UsageError, match="holds no study"):
        run_tune(tiny_study(), other)
    assert [file.name for file in other.iterdir()] == ["thesis.tex"]
    with pytest.raises(UsageError, match="must be a folder"):
        run_tune(tiny_study(), other / "thesis.tex")


def test_a_table_that_has_changed_is_refused(tmp_path: Path, tiny_study: Any) -> None:
    table, folder = tmp_path / "table.csv", tmp_path / "study"
    table.write_text("a,b\n1,2\n")
    config = tiny_study(data={"table": str(table), "label": "b"})
    with opened_study(folder, config):
        pass
    with opened_study(folder, config):
        pass
    table.write_text("a,b\n1,3\n")
    with pytest.raises(UsageError, match=r"table\.csv has changed since .* was begun"), opened_study(folder, config):
        pass


def test_trials_that_cannot_be_run_are_told_and_do_not_stop_the_study(
    tmp_path: Path, tiny_study: Any, silent: Any
) -> None:
    sizes = {"search": "choice", "of": [4, 9999], "default": 4}
    config = tiny_study(training={"epochs": 1, "batch_size": sizes}, study__trials=6, study__held_out=0)
    run_tune(config, tmp_path / "study", workers=1, console=silent)
    failed = [row for row in rows(tmp_path / "study") if row["state"] == "failed"]
    assert failed and all("9999" in row["error"] for row in failed)
    assert all(row["values"] for row in rows(tmp_path / "study") if row not in failed)


def test_defaults_that_cannot_be_judged_end_the_study(tmp_path: Path, tiny_study: Any, silent: Any) -> None:
    config = tiny_study(study__objectives={"metric": "cell_acuracy", "where": {"attack": "tableak"}})
    with pytest.raises(UsageError, match=r"no row has 'cell_acuracy'.*'cell_accuracy'"):
        run_tune(config, tmp_path / "study", workers=1, console=silent)
    assert len(rows(tmp_path / "study")) == 1


def test_a_study_that_cannot_be_leaves_no_folder(tmp_path: Path, tiny_study: Any, silent: Any) -> None:
    for wrong in ({"target__network": "mlpp"}, {"study__sampler": "nsga2"}):
        with pytest.raises(UsageError):
            run_tune(tiny_study(**wrong), tmp_path / "study", workers=1, console=silent)
        assert not (tmp_path / "study").exists()


def test_an_interrupted_study_reports_what_is_there_and_goes_on(
    tmp_path: Path, tiny_study: Any, silent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lightleak.tuning import trial as trial_module

    real, calls = trial_module.run_trial, []

    def interrupted(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(trial_module, "run_trial", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_tune(tiny_study(), tmp_path / "study", workers=1, console=silent)
    assert [row["state"] for row in rows(tmp_path / "study")] == ["complete", "complete", "running"]
    assert (tmp_path / "study" / "report.html").is_file()
    run_tune(tiny_study(), tmp_path / "study", workers=1, console=silent)
    run_tune(tiny_study(), tmp_path / "whole", workers=1, console=silent)
    resumed, whole = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("study", "whole"))
    for found in (resumed, whole):
        for row in found["rows"]:
            assert row.pop("seconds") > 0 and row.pop("worker")
        for side in ("default", "best"):
            assert found["study"]["held_out"][side].pop("seconds") > 0
    assert resumed == whole


def test_one_thread_a_trial_and_the_number_is_given_back(tmp_path: Path, tiny_study: Any, silent: Any) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run_tune(tiny_study(study__trials=1, study__held_out=0), tmp_path / "study", workers=1, console=silent)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_kills_cost_no_trial_and_none_is_counted_twice(tmp_path: Path, write_study: Any, silent: Any) -> None:
    """First a worker is killed, then the driver; the resumed study is that of one process without a kill."""
    file = write_study(
        study__budget={"restart_steps": 1500}, study__trials=5, study__held_out=0, study__sampler="random"
    )
    folder, whole = tmp_path / "study", tmp_path / "whole"
    arguments = [sys.executable, "-m", "lightleak", "tune", str(file), "--output", str(folder), "--workers", "2"]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        killed = _worker_in_a_trial(folder)
        os.kill(killed, signal.SIGKILL)
        assert _worker_in_a_trial(folder, other_than=killed) and process.poll() is None
    finally:
        process.kill()
        process.wait()
    for place in (folder, whole):
        run_tune(load_tune_config(file), place, workers=1, console=silent)
    assert [(row["state"], row["error"]) for row in rows(folder)] == [("complete", None)] * 5
    compared = ("trial", "parameters", "values", "is_best")
    found, expected = ([{key: row[key] for key in compared} for row in rows(place)] for place in (folder, whole))
    assert found == expected


def _worker_in_a_trial(folder: Path, other_than: int = 0) -> int:
    """Process id of a worker that runs a trial."""
    until = time.monotonic() + 200
    while time.monotonic() < until:
        if (folder / JOURNAL).is_file():
            with suppress(KeyError):  # no study yet
                study = optuna.load_study(study_name=STUDY_NAME, storage=open_storage(str(folder / JOURNAL)))
                running = [trial.user_attrs for trial in study.trials if trial.state.name == "RUNNING"]
                pids = {int(attributes[WORKER].split()[-1]) for attributes in running if WORKER in attributes}
                if pids - {other_than}:
                    return min(pids - {other_than})
        time.sleep(0.05)
    raise AssertionError("no worker began a trial")


def test_a_study_in_use_is_refused_with_its_holder(tmp_path: Path, tiny_study: Any, silent: Any) -> None:
    with (
        opened_study(tmp_path / "study", tiny_study()),
        pytest.raises(UsageError, match=f"in use by process {os.getpid()}"),
    ):
        run_tune(tiny_study(), tmp_path / "study", workers=1, console=silent)


@pytest.mark.slow
def test_a_study_on_ray_is_that_of_this_machine(tmp_path: Path, write_study: Any, silent: Any) -> None:
    for engine in ("local", "ray"):
        changes = {"study__pruner": "median", "study__report_every": 1, "study__trials": 3, "study__held_out": 0}
        config = load_tune_config(write_study(**changes), {"engine": engine})
        run_tune(config, tmp_path / engine, workers=1, console=silent)
    local, ray = (json.loads((tmp_path / engine / "results.json").read_text()) for engine in ("local", "ray"))
    for found in (local, ray):
        for row in found["rows"]:
            assert row.pop("seconds") > 0 and row.pop("worker")
    assert local == ray and all(row["intermediate"] for row in ray["rows"])


@pytest.mark.parametrize(("redact", "kept"), [(True, {"observation", "last.ckpt"}), ("all", set())])
def test_a_redacted_study_redacts_its_trials(
    tmp_path: Path, tiny_study: Any, silent: Any, redact: Any, kept: set[str]
) -> None:
    training = {"training__epochs": 1, "capture__epochs": [0], "study__trials": 1, "study__held_out": 0}
    run_tune(tiny_study(redact=redact, **training), tmp_path / "study", workers=1, console=silent)
    private = {path.name for name in ("truth", "observation", "*.ckpt") for path in (tmp_path / "study").rglob(name)}
    assert private == kept
