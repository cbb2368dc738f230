"""The training of a network inside a pack, as every reproduction runs it."""

from collections.abc import Sequence
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback

from lightleak.reproductions.reproduction import Place
from lightleak.targets.checkpoints import LastCheckpoint
from lightleak.targets.trainer import alone_on, interrupts, quiet_lightning


def fit(
    module: lightning.LightningModule,
    at: Place,
    epochs: int,
    cost: float = 1.0,
    callbacks: Sequence[Callback] = (),
    checkpoint: LastCheckpoint | None = None,
    **data: Any,
) -> None:
    """Train a module on one device, in this process.

    Args:
        module: what is trained.
        at: where.
        epochs: how long.
        cost: progress that is reported after every epoch.
        callbacks: further callbacks.
        checkpoint: where the training resumes from; without one an interrupted training starts anew.
        data: loaders or ``datamodule``, as ``Trainer.fit`` takes them.
    """
    resumed = None if checkpoint is None else checkpoint.resumed()
    with quiet_lightning():
        trainer = lightning.Trainer(
            **alone_on(at.device),
            max_epochs=epochs,
            logger=False,
            callbacks=[*callbacks, _ReportEpochs(at, cost), *([checkpoint] if checkpoint else [])],
            enable_checkpointing=checkpoint is not None,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        with interrupts(trainer):
            trainer.fit(module, ckpt_path=resumed, weights_only=True, **data)


class _ReportEpochs(Callback):
    def __init__(self, at: Place, cost: float) -> None:
        self.at, self.cost = at, cost

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self.at.report(self.cost)
