"""The training of a network inside a pack, as every reproduction runs it."""

from collections.abc import Callable, Sequence
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback

from lightleak.targets.checkpoints import LastCheckpoint
from lightleak.targets.trainer import alone_on, interrupts, quiet_lightning


def fit(
    module: lightning.LightningModule,
    device: torch.device,
    epochs: int,
    report: Callable[[float], None],
    cost: float = 1.0,
    callbacks: Sequence[Callback] = (),
    checkpoint: LastCheckpoint | None = None,
    **data: Any,
) -> lightning.Trainer:
    """Train alone on a device and return the Trainer.

    Args:
        module: what is trained.
        device: where.
        epochs: how long.
        report: called after every epoch.
        cost: what it is called with.
        callbacks: further callbacks.
        checkpoint: where the training resumes from; without one an interrupted training starts anew.
        data: loaders or ``datamodule``, as ``Trainer.fit`` takes them.
    """
    resumed = None if checkpoint is None else checkpoint.resumed()
    with quiet_lightning():
        trainer = lightning.Trainer(
            **alone_on(device),
            max_epochs=epochs,
            logger=False,
            callbacks=[*callbacks, _ReportEpochs(report, cost), *([checkpoint] if checkpoint else [])],
            enable_checkpointing=checkpoint is not None,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        with interrupts(trainer):
            trainer.fit(module, ckpt_path=resumed, weights_only=True, **data)
    return trainer


class _ReportEpochs(Callback):
    def __init__(self, report: Callable[[float], None], cost: float) -> None:
        self.report, self.cost = report, cost

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self.report(self.cost)
