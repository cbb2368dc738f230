"""Run by test_pruning_ddp.py: trains on two gloo processes under `TrialPruning`; leaves what each rank saw."""

import json
import sys
from pathlib import Path
from typing import Any

import lightning
import optuna
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lightleak.core.errors import LightLeakError
from lightleak.tuning.pruning import TrialPruning

EPOCHS = 5


class Ranked(lightning.LightningModule):
    """Every rank logs a value of its own, which rank 0's trial must not mix up."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.trained = 0

    def training_step(self, batch: list[Tensor]) -> Tensor:
        return self.layer(batch[0]).square().mean()

    def validation_step(self, batch: list[Tensor]) -> None:
        self.log("score", float(self.current_epoch + 100 * self.global_rank))

    def on_train_epoch_end(self) -> None:
        self.trained += 1

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


class Scripted:
    """Rank 0's trial gives up after its epoch, or breaks; rank 1's says go on, and nobody must ask it."""

    def __init__(self, rank: int, stop_at: int | None, breaks_at: int | None) -> None:
        self.number, self.rank, self.stop_at, self.breaks_at = 0, rank, stop_at, breaks_at
        self.reports: list[tuple[float, int]] = []

    def report(self, value: float, step: int) -> None:
        self.reports.append((value, step))
        if step == self.breaks_at:
            raise ConnectionError("storage is gone")

    def should_prune(self) -> bool:
        return self.rank == 0 and self.reports[-1][1] == self.stop_at


def train(
    name: str, monitor: str = "score", stop_at: int | None = None, breaks_at: int | None = None, with_trial: bool = True
) -> None:
    data = TensorDataset(torch.ones(8, 1))
    model = Ranked()
    callback = TrialPruning(None, monitor)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=EPOCHS,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trial = Scripted(trainer.global_rank, stop_at, breaks_at)
    if with_trial or trainer.global_rank == 0:
        callback.trial = trial
    left: dict[str, Any] = {"pruned": False, "error": None}
    try:
        trainer.fit(model, DataLoader(data, batch_size=2), DataLoader(data, batch_size=2))
        callback.raise_if_pruned()
    except optuna.TrialPruned:
        left["pruned"] = True
    except (LightLeakError, ConnectionError) as error:
        left["error"] = f"{type(error).__name__}: {error}"
    left |= {"trained": model.trained, "reports": trial.reports}
    Path(sys.argv[1], f"{name}-{trainer.global_rank}.json").write_text(json.dumps(left), encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    train("finishes")
    train("pruned", stop_at=2)
    train("pruned-without-trial-on-rank-1", stop_at=3, with_trial=False)
    train("unlogged", monitor="nothing")
    train("breaks", breaks_at=2)
