"""Interrupted anywhere, a run keeps what is finished, repeats nothing, and ends where it would have ended."""

import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from safetensors.torch import load_file

from lightleak.attacks.gradient_inversion.optimize.attack import GradientInversion
from lightleak.core.errors import UsageError
from lightleak.experiments import campaign, training
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.run import resumed_config, run_audit
from lightleak.experiments.took import TOOK
from lightleak.experiments.unit import run_pack
from lightleak.experiments.whole_epochs import metrics_of_all_epochs
from lightleak.targets.classifier import TabularClassifier
from lightleak.tuning.objective import ObjectiveConfig


def without_seconds(results: dict[str, Any]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in TOOK} for row in results["rows"]]


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((folder / "reconstructions").iterdir())}


@pytest.fixture
def packs_run(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Unit ids of every pack that runs, in order."""
    seen: list[list[str]] = []

    def counted(pack: Any, *rest: Any) -> None:
        seen.append([unit.id for unit in pack])
        run_pack(pack, *rest)

    monkeypatch.setattr(campaign, "run_pack", counted)
    return seen


@pytest.fixture(scope="module")
def fresh(tiny: Any) -> AuditConfig:
    """Four packs of two units: two attacks on fresh clients of two sizes."""
    attacks = {"random": {}, "inverting_gradients": {"steps": 60}}
    return tiny(training__epochs=0, initial__batch_sizes=[2, 3], attacks=attacks)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, fresh: AuditConfig) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    run_audit(fresh, folder, console=Console(file=io.StringIO()))
    return folder


def test_what_is_finished_when_an_attack_breaks_off_is_kept_and_not_repeated(
    tmp_path: Path,
    fresh: AuditConfig,
    whole: Path,
    silent: Console,
    packs_run: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, calls = GradientInversion.run_many, []

    def breaks_off(self: Any, updates: Any, seeds: Any, device: Any, progress: Callable[[float], None]) -> Any:
        calls.append(len(updates))

        def told(fraction: float) -> None:
            if len(calls) == 2:
                raise KeyboardInterrupt
            progress(fraction)

        return plain(self, updates, seeds, device, told)

    broken = tmp_path / "broken"
    with monkeypatch.context() as patch:
        patch.setattr(GradientInversion, "run_many", breaks_off)
        with pytest.raises(KeyboardInterrupt):
            run_audit(fresh, broken, console=silent)
    kept = json.loads((broken / "results.json").read_text())
    assert len(kept["rows"]) == 2 == len(list((broken / "units").iterdir()))
    assert (broken / "report.html").is_file()
    expected = json.loads((whole / "results.json").read_text())
    assert without_seconds(kept) == without_seconds(expected)[6:]
    order = [  # the costliest first
        "inverting_gradients-initial-b3-000",
        "inverting_gradients-initial-b2-000",
        "random-initial-b3-000",
        "random-initial-b2-000",
    ]
    assert [pack[0] for pack in packs_run] == order[:2]
    packs_run.clear()

    resumed = run_audit(resumed_config(broken), broken, console=silent)
    assert [pack[0] for pack in packs_run] == order[1:]
    assert without_seconds(resumed) == without_seconds(expected)
    assert resumed["rows"][6:] == kept["rows"]  # to the second
    assert contents(broken) == contents(whole)
    packs_run.clear()
    assert run_audit(resumed_config(broken), broken, console=silent) == resumed
    assert packs_run == []


def test_a_run_interrupted_before_any_result_has_a_report(
    tmp_path: Path, tiny: Any, silent: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign, "run_pack", stop)
    with pytest.raises(KeyboardInterrupt):
        run_audit(tiny(training__epochs=0), tmp_path / "run", console=silent)
    assert json.loads((tmp_path / "run" / "results.json").read_text())["rows"] == []
    assert (tmp_path / "run" / "report.html").is_file()


def interrupted_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the training step of this number, once."""
    plain = TabularClassifier.training_step

    def training_step(self: TabularClassifier, batch: Any, batch_index: int) -> Any:
        if self.trainer.global_step == step:
            raise KeyboardInterrupt
        return plain(self, batch, batch_index)

    monkeypatch.setattr(TabularClassifier, "training_step", training_step)


@pytest.fixture(scope="module")
def long(tiny: Any) -> AuditConfig:
    """Four epochs of 11 steps, with dropout, captured and monitored in each."""
    return tiny(
        target__options={"hidden": [6], "dropout": 0.3},
        training__epochs=4,
        capture__epochs=[0, 1, 2, 3],
        monitor__attack="inverting_gradients",
        monitor__options={"steps": 5},
        initial__batches=1,
        attacks={"inverting_gradients": {"steps": 5}},
    )


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, long: AuditConfig) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    run_audit(long, folder, console=Console(file=io.StringIO()))
    return folder


@pytest.mark.parametrize("steps", [(5,), (30,), (15, 40)], ids=["first epoch", "third epoch", "twice"])
def test_training_goes_on_to_the_same_bits(
    tmp_path: Path,
    long: AuditConfig,
    uninterrupted: Path,
    silent: Console,
    monkeypatch: pytest.MonkeyPatch,
    steps: tuple[int, ...],
) -> None:
    folder = tmp_path / "run"
    for step in steps:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            interrupted_at(step, patch)
            run_audit(long, folder, console=silent)
        assert not (folder / "training.json").exists()
    trained: list[int] = []
    plain = TabularClassifier.training_step

    def training_step(self: TabularClassifier, batch: Any, batch_index: int) -> Any:
        trained.append(self.trainer.current_epoch)
        return plain(self, batch, batch_index)

    monkeypatch.setattr(TabularClassifier, "training_step", training_step)
    resumed = run_audit(resumed_config(folder), folder, console=silent)
    assert trained == [epoch for epoch in range(steps[-1] // 11, 4) for _ in range(11)]

    expected = json.loads((uninterrupted / "results.json").read_text())
    assert without_seconds(resumed) == without_seconds(expected)
    captures = {path.relative_to(uninterrupted) for path in uninterrupted.glob("captures/*/*/*.safetensors")}
    assert captures == {path.relative_to(folder) for path in folder.glob("captures/*/*/*.safetensors")}
    for path in captures:
        first, second = load_file(uninterrupted / path), load_file(folder / path)
        assert first.keys() == second.keys()
        assert all(np.array_equal(first[name], second[name]) for name in first), path
    assert_same_metrics(folder / "metrics.csv", uninterrupted / "metrics.csv")


def assert_same_metrics(got: Path, expected: Path) -> None:
    first, second = (pd.read_csv(path, float_precision="round_trip") for path in (got, expected))
    pd.testing.assert_frame_equal(first[sorted(first)], second[sorted(second)], check_exact=True)


def test_an_epoch_whose_metrics_were_nan_is_no_empty_cell(tmp_path: Path) -> None:
    file, kept = tmp_path / "metrics.csv", tmp_path / "checkpoints" / "metrics.csv"
    file.write_text("epoch,val/auroc\n0,0.1000000001\n1,nan\n2,0.")
    with metrics_of_all_epochs(tmp_path):
        assert kept.read_text() == "epoch,val/auroc\n0,0.1000000001\n1,nan\n"
        file.write_text("epoch,train/loss,val/auroc\n2,nan,\n2,,nan\n")
    assert file.read_text() == "epoch,val/auroc,train/loss\n0,0.1000000001,\n1,nan,\n2,,nan\n2,nan,\n"
    assert math.isnan(ObjectiveConfig("val/auroc").of_training(tmp_path) or 0.0)


def test_training_that_ended_before_its_test_is_only_tested(
    tmp_path: Path, long: AuditConfig, uninterrupted: Path, silent: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(self: TabularClassifier, batch: Any, batch_index: int) -> None:
        raise KeyboardInterrupt

    folder = tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TabularClassifier, "test_step", stop)
        run_audit(long, folder, console=silent)
    with monkeypatch.context() as patch:
        patch.setattr(TabularClassifier, "training_step", lambda *_: pytest.fail("trained again"))
        run_audit(resumed_config(folder), folder, console=silent)
    assert_same_metrics(folder / "metrics.csv", uninterrupted / "metrics.csv")
    assert (folder / "training.json").read_text() == (uninterrupted / "training.json").read_text()


def test_an_error_of_the_training_is_not_an_interruption(
    tmp_path: Path, tiny: Any, silent: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: TabularClassifier, batch: Any, batch_index: int) -> None:
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr(TabularClassifier, "training_step", fail)
    with pytest.raises(ZeroDivisionError, match="by nought"):
        run_audit(tiny(), tmp_path / "run", console=silent)


def test_exits_that_are_no_interruption_pass_through(tiny: Any) -> None:
    trainer = training.make_trainer(tiny().training.trainer, "cpu", logger=False, enable_checkpointing=False)
    with pytest.raises(SystemExit, match="3"), training.interrupts(trainer):
        raise SystemExit(3)


def test_there_must_be_a_run_to_resume(tmp_path: Path, silent: Console) -> None:
    with pytest.raises(UsageError, match=r"nothing to resume in .*: it holds no config\.yaml"):
        run_audit(resumed_config(tmp_path), tmp_path, console=silent)
