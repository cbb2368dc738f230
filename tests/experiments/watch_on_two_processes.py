"""Run by test_leakage_callback_ddp.py: a project that is watched while it trains on two gloo processes.

Leaves the run folder of the report, and per rank what it captured.
"""

import sys
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lightleak


class Project(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 2))

    def training_step(self, batch: Any, index: int) -> Tensor:
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main(out: Path) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(2)
    x = torch.randn(32, 3)
    watch = lightleak.LeakageCallback(
        lightleak.describe_inputs(x), {"inverting_gradients": {"steps": 3}}, output=out / "run", per_epoch=2
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=1,
        callbacks=[watch],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Project(), DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=4, shuffle=True))
    logged = float(trainer.callback_metrics["reconstruction/inverting_gradients/cell_accuracy"])
    inputs = [taken.truth.inputs for taken in watch.captured]
    torch.save({"inputs": inputs, "logged": logged}, out / f"{trainer.global_rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
