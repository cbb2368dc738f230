"""Running the GAN's training: on one device or several, from its last checkpoint where there is one."""

import time
from collections.abc import Mapping
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback

from lightleak.attacks.model_inversion.attack import Workplace
from lightleak.attacks.model_inversion.gan import ConditionalGAN
from lightleak.targets.checkpoints import LastCheckpoint
from lightleak.targets.trainer import SPREAD, alone_on, interrupts, on_device, quiet_lightning


def train_gan(gan: ConditionalGAN, at: Workplace, trainer: Mapping[str, Any] | None = None) -> float:
    """Train ``gan`` to its last iteration, and return the seconds it took, those before an interruption included.

    Args:
        gan: what is trained; it holds its data.
        at: device, folder of checkpoints and progress callback.
        trainer: further arguments of ``lightning.Trainer``, such as ``devices`` and ``strategy``.

    Raises:
        KeyboardInterrupt: interrupted; the same call resumes from the last checkpoint.
    """
    progress = _Progress(at)
    checkpoint = None if at.folder is None else LastCheckpoint(at.folder)
    callbacks: list[Callback] = [progress, *([] if checkpoint is None else [checkpoint])]
    where = on_device if SPREAD & set(trainer or {}) else alone_on
    with quiet_lightning():
        runner = lightning.Trainer(
            **{
                **where(at.device),
                **(trainer or {}),
                "max_epochs": gan.epochs,
                "logger": False,
                "callbacks": callbacks,
                "enable_checkpointing": checkpoint is not None,
                "enable_progress_bar": False,
                "enable_model_summary": False,
            }
        )
        with interrupts(runner):
            runner.fit(gan, ckpt_path=None if checkpoint is None else checkpoint.resumed(), weights_only=True)
    gan.to(torch.device(at.device)).eval()
    return progress.seconds


class _Progress(Callback):
    """Time every epoch and report every iteration; a resumed training keeps the seconds already spent."""

    def __init__(self, at: Workplace) -> None:
        self.at = at
        self.seconds = 0.0
        self._reported = 0
        self._since = time.perf_counter()

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self._since = time.perf_counter()

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self.seconds += time.perf_counter() - self._since

    def on_train_batch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, outputs: Any, batch: int, batch_idx: int
    ) -> None:
        if self.at.progress is not None and isinstance(pl_module, ConditionalGAN):
            self.at.progress((pl_module.done - self._reported) / pl_module.config.iterations)
            self._reported = pl_module.done

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seconds = float(state_dict["seconds"])
