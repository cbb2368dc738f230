"""Run by test_gradient_capture_ddp.py: trains on two gloo processes, without and then with capture.

Leaves, per rank, the weights of both trainings and the reduced gradients that the optimizer got.
"""

import sys
from pathlib import Path
from typing import Any

import lightning
import pandas as pd
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from lightleak.callbacks.gradient_capture import GradientCapture
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import Column, TableSchema
from lightleak.targets import NetworkSpec
from lightleak.targets.classifier import TabularClassifier


class Witness(lightning.Callback):
    """Keeps ``.grad`` as the optimizer gets it: after the all-reduce."""

    def __init__(self) -> None:
        self.grads: list[dict[str, Tensor]] = []

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self.grads.append({name: p.grad.clone() for name, p in pl_module.network.named_parameters()})


def train(
    encoder: TableEncoder, rows: TensorDataset, accumulate: int, *callbacks: lightning.Callback
) -> tuple[int, dict[str, Tensor]]:
    torch.manual_seed(5)
    spec = NetworkSpec("mlp", 2, encoder.layout, {"hidden": [6], "norm": "batch", "dropout": 0.3})
    model = TabularClassifier(spec, seed=0)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=2,
        accumulate_grad_batches=accumulate,
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(rows, batch_size=4, shuffle=True))
    return trainer.global_rank, {name: value.clone() for name, value in model.state_dict().items()}


def main(out: Path) -> None:
    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(0)
    frame = pd.DataFrame({name: torch.randn(32, generator=draw).double().numpy() for name in "abc"})
    schema = TableSchema(tuple(Column.continuous(name) for name in "abc"), Column.categorical("y", ["0", "1"]))
    encoder = TableEncoder(schema).fit(frame)
    rows = TensorDataset(encoder.encode(frame), torch.randint(2, (32,), generator=draw))
    for accumulate in (1, 2):
        root = out / f"accumulate-{accumulate}"
        _, plain = train(encoder, rows, accumulate)
        witness = Witness()
        capture = GradientCapture(encoder, share_labels=True, root=root, epochs=(0, 1), per_epoch=2)
        rank, captured = train(encoder, rows, accumulate, capture, witness)
        torch.save({"plain": plain, "captured": captured, "reduced": witness.grads}, out / f"{accumulate}-{rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
