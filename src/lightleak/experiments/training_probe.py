"""What the training of an audit's target will take, measured by a few batches of it."""

import time
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory

import lightning
import torch

from lightleak.core.devices import synchronize
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.experiment import Experiment
from lightleak.experiments.launch import places_of
from lightleak.experiments.probe import peak_memory
from lightleak.experiments.training import one_training, prepare_training

PROBE_BATCHES = 40
WARM_BATCHES = 5
"""The first batches, in which memory is allocated and kernels are chosen; they are not counted where others follow."""

ONE_DEVICE = {"devices": 1, "num_nodes": 1, "strategy": "auto"}


@dataclass(frozen=True)
class TrainingCost:
    """What an epoch takes.

    Attributes:
        batches: of an epoch; a round of FedAvg is an epoch of one batch.
        batch: seconds of a batch.
        validation: seconds of the validation that follows an epoch.
        memory: peak bytes of the training; see `lightleak.experiments.probe.peak_memory`.
    """

    batches: int
    batch: float
    validation: float
    memory: int | None = None

    @property
    def epoch(self) -> float:
        """Seconds of an epoch; what is captured or attacked in it comes on top."""
        return self.batches * self.batch + self.validation


def probe_training(config: AuditConfig, experiment: Experiment, processes: int = 1) -> TrainingCost:
    """Train a few batches and validate once, on one device; nothing of it is kept.

    Args:
        config: the audit.
        experiment: its parts.
        processes: that will train together; each takes its share of the batches.

    Raises:
        UsageError: settings that the Trainer or the defense refuses.
    """
    alone = {name: value for name, value in config.training.trainer.items() if name not in ONE_DEVICE}
    config = replace(config, training=replace(config.training, trainer=alone))
    prepared, clock = prepare_training(config, experiment), _Clock()
    device = places_of(alone, config.device).strategy.root_device
    # Only this device's generator: torch's default touches every GPU of the machine.
    kept = torch.random.fork_rng([device] if device.type == "cuda" else [])
    with (
        TemporaryDirectory() as folder,
        kept,
        peak_memory(device) as peak,
        one_training(
            alone,
            config.device,
            1,
            [*prepared.callbacks, clock],
            limit_train_batches=PROBE_BATCHES,
            num_sanity_val_steps=0,
            default_root_dir=folder,
        ) as trainer,
    ):
        trainer.fit(prepared.model, datamodule=prepared.data)
        memory = peak()
        batches = len(prepared.data.train_dataloader())
    return TrainingCost(-(-batches // processes), clock.batch, clock.validation, memory)


class _Clock(lightning.Callback):
    """Reads the time at every batch."""

    def __init__(self) -> None:
        self._ends: list[float] = []
        self._began = self.validation = 0.0

    @property
    def batch(self) -> float:
        """Seconds of a batch."""
        warm = min(WARM_BATCHES, len(self._ends) - 2)
        return (self._ends[-1] - self._ends[warm]) / (len(self._ends) - 1 - warm)

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self._ends.append(time.perf_counter())

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: object) -> None:
        synchronize(trainer.strategy.root_device)
        self._ends.append(time.perf_counter())

    def on_validation_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self._began = time.perf_counter()

    def on_validation_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self.validation = time.perf_counter() - self._began
