"""Run by test_distributed_training.py, on several processes: ``lightleak audit FOLDER/config.yaml`` on two devices.

Each process leaves what it saw in ``FOLDER/rank-R.pt``. With ``--die E`` process 1 kills itself in the second step of
epoch E; with ``--alone`` it also trains ``FOLDER/alone.yaml`` by itself, into ``FOLDER/alone``.
"""

import io
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import torch
from rich.console import Console
from torch import Tensor

from lightleak import cli
from lightleak.callbacks.capture_store import list_captures
from lightleak.core.ranks import detect_ranks
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.kinds.updates import kind
from lightleak.experiments.load import load_config
from lightleak.experiments.training import train, trains_together


class Witness(lightning.Callback):
    """Keeps the batches of this process, and ``.grad`` as the optimiser gets it: after the all-reduce."""

    def __init__(self, dies_in: int | None) -> None:
        self.batches: list[tuple[int, Tensor, Tensor]] = []
        self.evaluated: dict[str, list[Tensor]] = {"validation": [], "test": []}
        self.reduced: list[dict[str, Tensor]] = []
        self.dies_in = dies_in

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


def main(root: Path, *flags: str) -> None:
    torch.set_num_threads(1)
    witness = Witness(int(flags[1]) if "--die" in flags else None)
    kind.train = partial(train, callbacks=(witness,))
    words = ["audit", str(root / "config.yaml"), "--output", str(root / "run"), "--device", "cpu"]
    if code := cli.main([*words, "--trainer.devices", "2"]):
        sys.exit(code)
    ranks = detect_ranks()
    left = {
        "batches": witness.batches,
        "evaluated": {part: torch.cat(rows) for part, rows in witness.evaluated.items() if rows},
        "reduced": witness.reduced,
        "place": [ranks.rank, ranks.world],
        "seen": [folder.name for folder in list_captures(root / "run" / "captures")],
        "group": torch.distributed.is_initialized(),
    }
    torch.save(left, root / f"rank-{ranks.rank}.pt")
    if "--alone" in flags and ranks.rank == 1:
        alone = load_config(root / "alone.yaml")
        assert not trains_together(alone)
        train(alone, prepare_experiment(alone), root / "alone", Console(file=io.StringIO()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
