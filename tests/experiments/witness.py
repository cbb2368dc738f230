"""A callback that the processes of a training load as a user's plugin; see test_distributed_training.py."""

import os
import signal
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import Tensor

from lightleak.core.errors import DataError


class Witness(lightning.Callback):
    """Leaves the batches of its process in ``FOLDER/rank-R.pt``, and ``.grad`` as the optimizer gets it.

    Process 1 kills itself in the second step of epoch ``dies_in``.
    """

    def __init__(self, root: Path, dies_in: int | None) -> None:
        self.root, self.dies_in = root, dies_in
        self.batches: list[tuple[int, Tensor, Tensor]] = []
        self.evaluated: dict[str, list[Tensor]] = {"validation": [], "test": []}
        self.reduced: list[dict[str, Tensor]] = []

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if trainer.current_epoch == self.dies_in and batch_idx == 1 and trainer.global_rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        self.batches.append((trainer.current_epoch, *batch))

    def on_validation_batch_start(self, trainer: Any, pl_module: Any, batch: Any, *_: int) -> None:
        if trainer.current_epoch == 0 and not trainer.sanity_checking:
            self.evaluated["validation"].append(torch.cat([batch[0], batch[1][:, None]], 1))

    def on_test_batch_start(self, trainer: Any, pl_module: Any, batch: Any, *_: int) -> None:
        self.evaluated["test"].append(torch.cat([batch[0], batch[1][:, None]], 1))

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self.reduced.append({name: p.grad.clone() for name, p in pl_module.network.named_parameters()})

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        left = {
            "batches": self.batches,
            "evaluated": {part: torch.cat(rows) for part, rows in self.evaluated.items() if rows},
            "reduced": self.reduced,
            "place": [trainer.global_rank, trainer.world_size],
            "pid": os.getpid(),
        }
        torch.save(left, self.root / f"rank-{trainer.global_rank}.pt")


def fail() -> None:
    """End a training with an error."""
    raise DataError("damaged")


def die() -> None:
    """End a training without a word."""
    os.kill(os.getpid(), signal.SIGKILL)
