"""Weights of a finished training, and the last checkpoint of one: written whole, set aside where it is damaged."""

from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import lightning
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import ModelCheckpoint
from safetensors.torch import load_file, save_file
from torch import nn

from lightleak.core.stored import set_aside, write_whole

LAST = "last"


def save_weights(network: nn.Module, file: Path) -> None:
    """Write parameters and buffers as a safetensors file, and its folder if need be."""
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: value.detach().cpu().clone().contiguous() for name, value in network.state_dict().items()}, file)


def load_weights(network: nn.Module, file: Path) -> nn.Module:
    """Fill a network with what `save_weights` wrote, and return it in eval mode, without gradients."""
    network.load_state_dict(load_file(file))
    return network.requires_grad_(False).eval()


class LastCheckpoint(ModelCheckpoint):
    """Keeps ``last.ckpt`` in a folder, at the end of an epoch's training part.

    Lightning stages a checkpoint in the system's folder of temporary files and copies it from there: a disk that fills
    up meanwhile leaves a truncated one under the final name.

    Args:
        folder: where it is kept.
        every: epochs from one checkpoint to the next.
    """

    def __init__(self, folder: Path, every: int = 1) -> None:
        super().__init__(folder, LAST, save_on_train_epoch_end=True, every_n_epochs=every, enable_version_counter=False)
        self.file = folder / f"{LAST}.ckpt"

    def setup(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str) -> None:
        """Have the Trainer write whole files; strategies with a format of their own keep it."""
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
            trainer.strategy.checkpoint_io = _WholeFiles()
        super().setup(trainer, pl_module, stage)

    def resumed(self) -> str | None:
        """Return the checkpoint to resume from, ``None`` to train from the start; one that is damaged is set aside.

        To be called before ``fit``, by every process of the training.
        """
        if self.file.is_file() and not _can_be_read(self.file):
            set_aside(self.file, "it is damaged; the training starts from its first epoch")
        return str(self.file) if self.file.exists() else None  # a folder: what a sharding strategy has written


class _WholeFiles(TorchCheckpointIO):
    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        content = BytesIO()
        torch.save(checkpoint, content)
        write_whole(Path(path), content.getbuffer())


def _can_be_read(file: Path) -> bool:
    """Whether every byte is what was written, which torch does not check, and holds no more than plain values."""
    try:
        with ZipFile(file) as parts:
            if parts.testzip() is not None:
                return False
        torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # unpickling of arbitrary bytes raises whatever it likes
        if isinstance(error, PermissionError):
            raise
        return False
    return True
