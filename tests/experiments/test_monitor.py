"""Leakage beside the validation metrics, with the training as it would be without anybody looking."""

import math
from pathlib import Path
from typing import Any

import lightning
import pandas as pd
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lightleak.attacks import ATTACKS
from lightleak.callbacks.gradient_capture import GradientCapture
from lightleak.callbacks.update_capture import UpdateCapture
from lightleak.core.errors import UsageError
from lightleak.core.seeds import derive_seed
from lightleak.data.datamodule import TableDataModule
from lightleak.experiments.experiment import Experiment, prepare_experiment
from lightleak.experiments.monitor import LOGGED, LeakageMonitor
from lightleak.metrics.score import score
from lightleak.targets import NetworkSpec
from lightleak.targets.classifier import TabularClassifier

NAME = "reconstruction/inverting_gradients/cell_accuracy"
QUICK = {"steps": 5}


@pytest.fixture(scope="module")
def experiment(tiny: Any) -> Experiment:
    return prepare_experiment(tiny(target__options={"hidden": [6], "dropout": 0.3, "norm": "batch"}))


@pytest.fixture
def capture(experiment: Experiment) -> GradientCapture:
    return GradientCapture(experiment.encoder, share_labels=True, keep=True, epochs=range(4), per_epoch=2)


def fit(experiment: Experiment, *callbacks: lightning.Callback, epochs: int = 3, **options: Any) -> lightning.Trainer:
    torch.manual_seed(11)
    spec = NetworkSpec(experiment.spec.name, 2, experiment.encoder.layout, experiment.spec.options)
    model = TabularClassifier(spec, seed=3)
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=list(callbacks),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"logger": False, **options},
    )
    trainer.fit(model, datamodule=TableDataModule(experiment.table, experiment.encoder, batch_size=8))
    return trainer


class Curve(lightning.Callback):
    """Keeps the logged leakage of every epoch."""

    def __init__(self) -> None:
        self.values: list[float | None] = []

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        found = trainer.callback_metrics.get(NAME)
        self.values.append(None if found is None else float(found))


def test_value_is_the_mean_score_of_the_attack_on_what_was_captured(
    experiment: Experiment, capture: GradientCapture
) -> None:
    monitor = LeakageMonitor(capture, "inverting_gradients", seed=7, options=QUICK)
    trainer = fit(experiment, capture, monitor, epochs=2)
    attack = ATTACKS.get("inverting_gradients")(**QUICK)
    last = [taken for taken in capture.captured if taken.update.facts.epoch == 1]
    assert len(last) == 2
    for name in LOGGED:
        expected = [
            score(attack.run(c.update, derive_seed(7, "monitor", 1, i)), c.truth, experiment.encoder)[name]
            for i, c in enumerate(last)
        ]
        logged = float(trainer.callback_metrics[f"reconstruction/inverting_gradients/{name}"])
        assert logged == pytest.approx(math.fsum(expected) / 2)


def test_loggers_get_a_value_per_epoch(tmp_path: Path, experiment: Experiment, capture: GradientCapture) -> None:
    monitor = LeakageMonitor(capture, "inverting_gradients", options=QUICK)
    loggers = [CSVLogger(tmp_path, "", ""), TensorBoardLogger(str(tmp_path), "board", "")]
    fit(experiment, capture, monitor, logger=loggers)
    rows = pd.read_csv(tmp_path / "metrics.csv").dropna(subset=[NAME])
    assert list(rows["epoch"]) == [0, 1, 2]
    events = EventAccumulator(str(tmp_path / "board"))
    events.Reload()
    drawn = [event.value for event in events.Scalars(NAME)]
    assert drawn == pytest.approx(list(rows[NAME]))
    assert "val/accuracy" in events.Tags()["scalars"]


@pytest.mark.parametrize("attack", ["inverting_gradients", "random"])
def test_training_is_bit_identical_with_and_without(experiment: Experiment, attack: str) -> None:
    def weights(*callbacks: lightning.Callback) -> dict[str, torch.Tensor]:
        return fit(experiment, *callbacks).lightning_module.state_dict()

    def keep() -> GradientCapture:
        settings = {"share_labels": True, "keep": True, "epochs": range(3), "marginals": experiment.marginals}
        return GradientCapture(experiment.encoder, **settings)

    plain, captured = weights(), weights(keep())
    watched = keep()
    monitored = weights(watched, LeakageMonitor(watched, attack, options=QUICK if attack != "random" else {}))
    for name, value in plain.items():
        assert torch.equal(value, captured[name]), name
        assert torch.equal(value, monitored[name]), name


def test_every_second_epoch_is_attacked_on_its_own_captures(
    experiment: Experiment, capture: GradientCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor, curve = LeakageMonitor(capture, "inverting_gradients", every=2, options=QUICK), Curve()
    attacked = []
    plain = monitor.attack.run

    def run(update: Any, *rest: Any) -> Any:
        attacked.append(update.facts.epoch)
        return plain(update, *rest)

    monkeypatch.setattr(monitor.attack, "run", run)
    fit(experiment, capture, monitor, curve, epochs=4)
    assert attacked == [0, 0, 2, 2]
    assert curve.values[0] is not None and curve.values[2] is not None


def test_a_second_training_is_watched_anew(experiment: Experiment, capture: GradientCapture) -> None:
    monitor = LeakageMonitor(capture, "inverting_gradients", options=QUICK)
    first = fit(experiment, capture, monitor, epochs=1).callback_metrics[NAME]
    again = fit(experiment, capture, monitor, epochs=1).callback_metrics[NAME]
    assert float(first) == float(again)


def test_epochs_without_captures_log_nothing(experiment: Experiment) -> None:
    capture = GradientCapture(experiment.encoder, share_labels=True, keep=True, epochs=[1])
    monitor, curve = LeakageMonitor(capture, "inverting_gradients", options=QUICK), Curve()
    fit(experiment, capture, monitor, curve, epochs=2)
    assert curve.values[0] is None and curve.values[1] is not None


def test_capture_must_stand_before_the_monitor(experiment: Experiment, capture: GradientCapture) -> None:
    monitor = LeakageMonitor(capture, "inverting_gradients", options=QUICK)
    for callbacks in ([monitor, capture], [monitor]):
        with pytest.raises(UsageError, match="needs its GradientCapture before it"):
            fit(experiment, *callbacks)


def test_a_missing_update_capture_is_named(experiment: Experiment) -> None:
    capture = UpdateCapture(experiment.encoder, share_labels="counts", keep=True, rounds=[0])
    with pytest.raises(UsageError, match="needs its UpdateCapture before it"):
        fit(experiment, LeakageMonitor(capture, "inverting_gradients_fedavg", options=QUICK))


def test_wrong_settings_are_refused_at_once(tmp_path: Path, experiment: Experiment, capture: GradientCapture) -> None:
    with pytest.raises(UsageError, match="unknown attack 'nosuch'"):
        LeakageMonitor(capture, "nosuch")
    with pytest.raises(UsageError, match="stepz"):
        LeakageMonitor(capture, "tableak", options={"stepz": 1})
    with pytest.raises(UsageError, match="every must be at least 1, got 0"):
        LeakageMonitor(capture, every=0)
    on_disk = GradientCapture(experiment.encoder, share_labels=True, root=tmp_path, epochs=[0])
    with pytest.raises(UsageError, match="keep=True"):
        LeakageMonitor(on_disk)
