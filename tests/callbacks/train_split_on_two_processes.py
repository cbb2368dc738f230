"""Run by test_intermediate_capture_ddp.py: trains a split network on two gloo processes, without and then with capture.

Leaves, per rank, the weights of both trainings, what the captures give back, and every step's own exchange; and the
same of one process alone.
"""

import sys
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from lightleak.callbacks import intermediate_capture, intermediate_records
from lightleak.callbacks.intermediate_capture import IntermediateCapture
from lightleak.data.datamodule import BatchSampler
from lightleak.data.vertical import VerticalDataModule, VerticalRows
from lightleak.targets.optimizers import OptimizerConfig
from lightleak.targets.split import SplitClassifier, SplitSpec

SPEC = SplitSpec((3, 2), bottom_hidden=(5,), output_width=4, top_hidden=(4,))


class Witness(lightning.Callback):
    """Keeps what this rank exchanged."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, Tensor, Tensor, Tensor]] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        exchange = pl_module.exchange
        kept = (exchange.ids.clone(), exchange.outputs.clone(), exchange.gradients.clone())
        self.seen.append((trainer.current_epoch, *kept))


def train(
    data: lightning.LightningDataModule, *callbacks: lightning.Callback, devices: int = 2
) -> tuple[int, dict[str, Tensor]]:
    torch.manual_seed(5)
    model = SplitClassifier(SPEC, OptimizerConfig("adam", learning_rate=0.05), seed=0)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=devices,
        strategy="ddp" if devices > 1 else "auto",
        max_epochs=2,
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, datamodule=data)
    return trainer.global_rank, {name: value.clone() for name, value in model.state_dict().items()}


class Repeating(lightning.LightningDataModule):
    """Lightning's own way to deal rows out: 13 batches to two ranks, so that one is given to both."""

    def __init__(self, rows: VerticalRows) -> None:
        super().__init__()
        self.parts = TensorDataset(rows.inputs, rows.labels, rows.ids)

    def train_dataloader(self) -> DataLoader[Any]:
        order = BatchSampler(len(self.parts), 4, shuffle=True)
        return DataLoader(self.parts, sampler=order, batch_size=None, generator=torch.Generator())


def results(out: Path, data: lightning.LightningDataModule, devices: int = 2) -> dict[str, Any]:
    """Train without and with three captures; everything there is to compare."""
    plain = train(data, devices=devices)[1]
    witness = Witness()
    captures = {
        "C1": IntermediateCapture(1, 0, "C1", epochs=(0, 1)),
        "C2": IntermediateCapture(0, 1, "C2", epochs=(1,)),
        "disk": IntermediateCapture(1, 0, "C1", epochs=(0, 1), memory_bytes=0, folder=out),
    }
    rank, recorded = train(data, *captures.values(), witness, devices=devices)
    taken = {name: {epoch: capture.results(epoch) for epoch in capture.epochs} for name, capture in captures.items()}
    return {"rank": rank, "plain": plain, "recorded": recorded, "results": taken, "seen": witness.seen}


def main(out: Path) -> None:
    torch.set_num_threads(1)
    # Records are gathered and written a few at a time, so that all of it runs several times.
    intermediate_records.CHUNK_ROWS = intermediate_capture.CHUNK_ROWS = 7
    intermediate_capture.MIN_WINDOW_ROWS = 6
    draw = torch.Generator().manual_seed(0)
    n = 50
    ids = torch.randperm(200, generator=draw)[:n]
    rows = VerticalRows(torch.randn(n, 5, generator=draw), torch.randint(2, (n,), generator=draw), ids, SPEC.widths)
    for name, data in (("even", VerticalDataModule(rows, rows, 8, shuffle=True)), ("repeating", Repeating(rows))):
        found = results(out / f"disk-{name}", data)
        torch.save(found, out / f"{name}-{found['rank']}.pt")
    if found["rank"] == 0:
        alone = VerticalDataModule(rows, rows, 8, shuffle=True)
        torch.save(results(out / "disk-alone", alone, devices=1), out / "alone.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
