"""Training the target of an audit: captured, monitored, kept after every epoch, and resumed to the same bits."""

import json
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning
import pandas as pd
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import ModelCheckpoint, RichProgressBar
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from rich.console import Console

from lightleak.audit.attack_settings import shares_labels, shares_statistics, with_label_setting
from lightleak.audit.config import AuditConfig
from lightleak.audit.experiment import Experiment
from lightleak.audit.monitor import LeakageMonitor
from lightleak.callbacks.gradient_capture import GradientCapture
from lightleak.core.errors import UsageError
from lightleak.core.seeds import derive_seed
from lightleak.data.datamodule import TableDataModule
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.trainer import interrupts

TRAINING_FILE = "training.json"
"""Written when the training is over, with the scores on the test rows."""

OURS = (
    "callbacks",
    "default_root_dir",
    "enable_checkpointing",
    "enable_model_summary",
    "enable_progress_bar",
    "logger",
    "max_epochs",
)
"""Arguments of the Trainer that an audit sets itself."""


def train(config: AuditConfig, experiment: Experiment, folder: Path, console: Console) -> None:
    """Train the target with capture and monitor; goes on from the last finished epoch where there is a checkpoint.

    Raises:
        UsageError: settings that the Trainer or the capture refuses.
        KeyboardInterrupt: finished epochs, their captures and their metrics are kept.
    """
    settings = config.training
    data = data_module(config, experiment)
    model = TabularClassifier(experiment.spec, settings.optimizer, seed=derive_seed(config.seed, "network"))
    capture = GradientCapture(
        encoder=experiment.encoder,
        epochs=config.capture.epochs,
        per_epoch=config.capture.per_epoch,
        at=config.capture.at,
        root=folder / "captures",
        share_labels=shares_labels(config),
        share_statistics=shares_statistics(config),
        marginals=experiment.marginals,
        keep=config.monitor.attack is not None,
        max_captures=len(config.capture.epochs) * config.capture.per_epoch,
    )
    callbacks: list[lightning.Callback] = [SeedEveryEpoch(config.seed), capture]
    if config.monitor.attack is not None:
        options = with_label_setting(config, config.monitor.attack, config.monitor.options)
        callbacks.append(LeakageMonitor(capture, config.monitor.attack, config.monitor.every, config.seed, options))
    checkpoints = folder / "checkpoints"
    callbacks.append(_WholeEpochs())
    # After the training part of the epoch, so that a resumed run repeats neither its validation nor its monitor.
    callbacks.append(
        ModelCheckpoint(checkpoints, "last", save_on_train_epoch_end=True, enable_version_counter=False, verbose=False)
    )
    if console.is_interactive:
        callbacks.append(RichProgressBar())
    last = checkpoints / "last.ckpt"
    resumed = last.is_file()
    loggers = [CSVLogger(folder, name="", version=""), TensorBoardLogger(str(folder), name="tensorboard", version="")]
    with warnings.catch_warnings(), _metrics_of_all_epochs(folder, resumed):
        # Lightning advises on loader workers and log intervals; one tensor in memory needs neither.
        warnings.filterwarnings("ignore", module="lightning")
        trainer = make_trainer(
            settings.trainer,
            config.device,
            max_epochs=settings.epochs,
            logger=loggers,
            callbacks=callbacks,
            enable_progress_bar=console.is_interactive,
            default_root_dir=folder,
        )
        with interrupts(trainer):
            trainer.fit(model, datamodule=data, ckpt_path=str(last) if resumed else None, weights_only=True)
            test = trainer.test(model, datamodule=data, verbose=False)[0]
    (folder / TRAINING_FILE).write_text(json.dumps({"epochs": settings.epochs, "test": test}))


def data_module(config: AuditConfig, experiment: Experiment) -> TableDataModule:
    """The batches of the training run.

    Raises:
        DataError: the batch is larger than the rows that are left for training.
    """
    settings = config.training
    return TableDataModule(
        experiment.table, experiment.encoder, settings.batch_size, settings.validation_fraction, seed=config.seed
    )


def make_trainer(settings: Mapping[str, Any], device: str, **ours: Any) -> lightning.Trainer:
    """A Trainer with the arguments a config names; ``ours`` are what the audit sets itself.

    Raises:
        UsageError: an argument the Trainer does not have, refuses, or that is the audit's own.
    """
    if taken := sorted(set(settings) & set(OURS)):
        raise UsageError(f"training.trainer cannot set {', '.join(taken)}: the audit sets them itself")
    chosen: dict[str, Any] = {"accelerator": "cpu" if device == "cpu" else "auto", "devices": 1}
    try:
        return lightning.Trainer(**{**chosen, **settings, "enable_model_summary": False, **ours})
    except (TypeError, ValueError, MisconfigurationException) as error:
        raise UsageError(f"training.trainer: {error}") from error


class _WholeEpochs(lightning.Callback):
    """Ctrl-C between an epoch's checkpoint and the logging of its metrics would lose the latter: it waits that long."""

    def __init__(self) -> None:
        self._handler: Any = None
        self._asked = False

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        # The checkpoint follows: Lightning calls it after all other callbacks. Only the main thread may set handlers.
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGINT, self._ask)

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self._release()

    def on_train_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self._release()

    def teardown(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        self._release()

    def _ask(self, *_: object) -> None:
        self._asked = True

    def _release(self) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            self._handler = None
        if self._asked:
            self._asked = False
            raise KeyboardInterrupt


class SeedEveryEpoch(lightning.Callback):
    """Dropout of an epoch depends on the root seed and the epoch alone: a resumed run repeats it bit for bit."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Seed the global generator."""
        torch.manual_seed(derive_seed(self.seed, "epoch", trainer.current_epoch, trainer.global_rank))


@contextmanager
def _metrics_of_all_epochs(folder: Path, resumed: bool) -> Iterator[None]:
    """Lightning begins ``metrics.csv`` anew when it resumes; keep the epochs that are not repeated."""
    file, kept = folder / "metrics.csv", folder / "checkpoints" / "metrics.csv"
    if resumed and _has_rows(file):
        _join(kept, file).to_csv(kept, index=False)
    try:
        yield
    finally:
        if resumed and _has_rows(kept):
            _join(kept, file).to_csv(file, index=False)


def _join(earlier: Path, later: Path) -> pd.DataFrame:
    """Rows of both; where both hold an epoch, those of the later."""
    frames = [pd.read_csv(path, float_precision="round_trip") for path in (earlier, later) if _has_rows(path)]
    if len(frames) == 2:
        frames[0] = frames[0][~frames[0]["epoch"].isin(frames[1]["epoch"])]
    return pd.concat(frames)


def _has_rows(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0
