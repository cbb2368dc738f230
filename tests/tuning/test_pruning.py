"""`TrialPruning` in a real Trainer: what is reported, where training stops, what a resumed training repeats."""

import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lightning
import optuna
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lightleak.core.errors import UsageError
from lightleak.tuning.pruning import JudgedTrial, TrialPruning


class Scripted(lightning.LightningModule):
    """Logs ``score`` as told for each epoch; ``trained`` counts the epochs it was trained."""

    def __init__(self, scores: Sequence[float], name: str = "val/score") -> None:
        super().__init__()
        self.scores, self.name, self.trained = scores, name, 0
        self.layer = nn.Linear(1, 1)

    def training_step(self, batch: list[Tensor]) -> Tensor:
        return self.layer(batch[0]).square().mean()

    def validation_step(self, batch: list[Tensor]) -> None:
        self.log(self.name, self.scores[min(self.current_epoch, len(self.scores) - 1)])
        self.log("val/other", 1.0)

    def on_train_epoch_end(self) -> None:
        self.trained += 1

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


class Told:
    """A trial that keeps what it is told and gives up after ``stop_at``."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.reports: list[tuple[int, float]] = []

    def report(self, value: float, step: int) -> None:
        self.reports.append((step, value))

    def should_prune(self) -> bool:
        return self.reports[-1][0] == self.stop_at


def loader() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.ones(4, 1)), batch_size=2)


def fit(
    model: Scripted, *callbacks: lightning.Callback, validate: bool = True, resume: Path | None = None, **options: Any
) -> lightning.Trainer:
    defaults: dict[str, Any] = {"max_epochs": len(model.scores), "logger": False, "enable_checkpointing": False}
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = lightning.Trainer(callbacks=list(callbacks), **quiet, **{**defaults, **options})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        trainer.fit(model, loader(), loader() if validate else None, ckpt_path=resume)
    return trainer


def test_reports_every_epoch_once_and_lets_a_good_trial_finish() -> None:
    trial, model = Told(), Scripted([0.5, 0.25, 0.125])
    pruning = TrialPruning(trial, "val/score")
    trainer = fit(model, pruning)  # with Lightning's sanity check, which is not reported
    assert trial.reports == [(1, 0.5), (2, 0.25), (3, 0.125)]
    pruning.raise_if_pruned()
    assert model.trained == 3
    trainer.validate(model, loader(), verbose=False)
    assert len(trial.reports) == 3  # an evaluation after the training is not an epoch of it


def test_steps_are_epochs_where_only_every_second_is_validated() -> None:
    trial = Told()
    fit(Scripted([0.5, 0.25, 0.125, 0.0625]), TrialPruning(trial, "val/score"), check_val_every_n_epoch=2)
    assert trial.reports == [(2, 0.25), (4, 0.0625)]


def test_stops_where_the_trial_gives_up() -> None:
    trial, model = Told(stop_at=2), Scripted([0.5, 0.25, 0.125, 0.1])
    pruning = TrialPruning(trial, "val/score")
    fit(model, pruning)
    assert [step for step, _ in trial.reports] == [1, 2] and model.trained == 2
    with pytest.raises(optuna.TrialPruned, match="pruned after epoch 2"):
        pruning.raise_if_pruned()


def test_what_was_given_up_stays_so_where_training_must_go_on() -> None:
    trial = Told(stop_at=1)
    pruning = TrialPruning(trial, "val/score")
    fit(Scripted([0.5, 0.25, 0.125]), pruning, min_epochs=3)
    assert trial.reports == [(1, 0.5)]
    with pytest.raises(optuna.TrialPruned, match="after epoch 1"):
        pruning.raise_if_pruned()


def test_median_pruner_stops_the_worse_trial_and_not_the_better() -> None:
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(n_startup_trials=2))
    curves = [[0.5, 0.6, 0.7, 0.8], [0.5, 0.6, 0.7, 0.9], [0.6, 0.5, 0.4, 0.3], [0.6, 0.7, 0.8, 0.9]]

    def objective(trial: optuna.Trial) -> float:
        pruning = TrialPruning(trial, "val/score")
        fit(Scripted(curves[trial.number]), pruning)
        pruning.raise_if_pruned()
        return curves[trial.number][-1]

    study.optimize(objective, n_trials=4)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE", "PRUNED", "COMPLETE"]
    # Its best value so far is compared: 0.6 is no longer above the median at the third epoch.
    assert study.trials[2].intermediate_values == pytest.approx({1: 0.6, 2: 0.5, 3: 0.4})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_prunes_and_is_not_reported(value: float) -> None:
    trial, model = Told(), Scripted([0.5, value, 0.5])
    pruning = TrialPruning(trial, "val/score")
    fit(model, pruning)
    assert trial.reports == [(1, 0.5)] and model.trained == 2
    with pytest.raises(optuna.TrialPruned, match=f"val/score is {value} after epoch 2"):
        pruning.raise_if_pruned()


def test_a_resumed_training_reports_every_epoch(tmp_path: Path) -> None:
    scores = [0.5, 0.25, 0.125, 0.0625]
    first, second = Told(), Told()
    trainer = fit(Scripted(scores), TrialPruning(first, "val/score"), max_epochs=2)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    fit(Scripted(scores), TrialPruning(second, "val/score"), max_epochs=4, resume=tmp_path / "last.ckpt")
    assert first.reports == list(enumerate(scores[:2], start=1))
    assert second.reports == list(enumerate(scores, start=1)), "Optuna ignores what it was told before"


def test_a_pruned_training_trains_no_further_when_it_is_resumed(tmp_path: Path) -> None:
    scores = [0.5, 0.25, 0.125, 0.0625]
    fit(Scripted(scores), TrialPruning(Told(stop_at=2), "val/score")).save_checkpoint(tmp_path / "last.ckpt")
    pruning, model = TrialPruning(Told(stop_at=2), "val/score"), Scripted(scores)
    fit(model, pruning, resume=tmp_path / "last.ckpt")
    assert model.trained == 0
    with pytest.raises(optuna.TrialPruned, match="pruned after epoch 2"):
        pruning.raise_if_pruned()


def test_a_training_that_diverged_trains_no_further_when_it_is_resumed(tmp_path: Path) -> None:
    scores = [0.5, math.nan, 0.125]
    fit(Scripted(scores), TrialPruning(Told(), "val/score")).save_checkpoint(tmp_path / "last.ckpt")
    trial, model = Told(), Scripted(scores)
    pruning = TrialPruning(trial, "val/score")
    fit(model, pruning, resume=tmp_path / "last.ckpt")
    assert model.trained == 0 and trial.reports == [(1, 0.5)]
    with pytest.raises(optuna.TrialPruned, match="val/score is nan after epoch 2"):
        pruning.raise_if_pruned()


def test_reports_of_a_resumed_trial_are_repeated_without_a_warning() -> None:
    trial = optuna.create_study().ask()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            JudgedTrial(trial).report(0.5, 1)


def test_a_monitor_that_is_not_logged_is_refused_with_what_is() -> None:
    with pytest.raises(
        UsageError, match="monitor 'val/scores' is not logged by validation; logged: val/other, val/score"
    ):
        fit(Scripted([0.5]), TrialPruning(Told(), "val/scores"))


@pytest.mark.parametrize(
    ("trial", "options", "message"),
    [
        (
            Told(),
            {"validate": False},
            "TrialPruning reports 'val/score' of validation epochs, and there is no validation",
        ),
        (Told(), {"limit_val_batches": 0}, "there is no validation"),
        (Told(), {"val_check_interval": 0.5}, "val_check_interval must be 1.0 .* got 0.5 and 1"),
        (Told(), {"val_check_interval": 1}, "val_check_interval must be 1.0 .* got 1 and 1"),
        (Told(), {"val_check_interval": 2, "check_val_every_n_epoch": None}, "got 2 and None"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_the_start(trial: Told, options: dict[str, Any], message: str) -> None:
    model = Scripted([0.5])
    with pytest.raises(UsageError, match=message):
        fit(model, TrialPruning(trial, "val/score"), **options)
    assert model.trained == 0


def test_an_error_of_the_trial_arrives_as_it_is() -> None:
    class Lost(Told):
        def report(self, value: float, step: int) -> None:
            raise ConnectionError("storage is gone")

    with pytest.raises(ConnectionError, match="storage is gone"):
        fit(Scripted([0.5]), TrialPruning(Lost(), "val/score"))


def test_optuna_is_imported_by_what_needs_it_alone(tmp_path: Path, run_forked: Callable[..., str]) -> None:
    script = tmp_path / "imports.py"
    modules = ", ".join(f"lightleak.tuning.{name}" for name in ("config", "pruning", "samplers", "space"))
    script.write_text(f"import sys, {modules}; print('optuna' in sys.modules)")
    assert run_forked(script=script).splitlines()[-1] == "False"
