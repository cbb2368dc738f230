"""Run by test_ranks.py: trains a split network on two gloo processes; leaves what each rank saw."""

import sys
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import Tensor

from lightleak.core.errors import UsageError
from lightleak.data.vertical import VerticalDataModule, VerticalRows
from lightleak.targets.optimizers import OptimizerConfig
from lightleak.targets.split import SplitClassifier, SplitSpec, Transform

EPOCHS = 2


def flip_even(ids: Tensor, labels: Tensor) -> Tensor:
    return torch.where(ids % 2 == 0, 1 - labels, labels)


class Scaled(Transform):
    """Depends on the size of the gradients, which are those of the mean over the rows of all ranks."""

    def gradients(self, gradients: Tensor, outputs: Tensor) -> Tensor:
        return gradients.clamp(-0.01, 0.01)


class Exchanges(lightning.Callback):
    def __init__(self) -> None:
        self.ids: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.gradients: list[Tensor] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        self.ids.append(pl_module.exchange.ids)
        self.outputs.append(pl_module.exchange.outputs)
        self.gradients.append(pl_module.exchange.gradients)


class OwnStep(lightning.Callback):
    """One party steps on rows that every rank holds."""

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        inputs = torch.linspace(-1, 1, 12).view(4, 3)
        pl_module.step_party(1, torch.full((4, 16), 0.1), inputs)


def data() -> VerticalDataModule:
    """33 rows in batches of 8: the last batch has one row, so that a second rank has none of it."""
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(33, 8, generator=draw)
    rows = VerticalRows(inputs, (inputs.sum(1) > 0).long(), 100 + torch.randperm(33, generator=draw), (5, 3))
    return VerticalDataModule(rows, rows, batch_size=8, shuffle=True, validation=rows.select(torch.arange(21)))


def train(devices: int) -> dict[str, Any]:
    optimizer = OptimizerConfig("sgd", 0.1, momentum=0.9, weight_decay=0.01)
    module = SplitClassifier(SplitSpec((5, 3)), optimizer, decay=0.5, seed=0)
    module.relabel, module.transform = flip_even, Scaled()
    seen = Exchanges()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=devices,
        strategy="auto" if devices == 1 else "ddp",
        max_epochs=EPOCHS,
        callbacks=[seen, OwnStep()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, data())
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    metrics |= trainer.test(module, data(), verbose=False)[0]
    refused = ""
    if devices > 1:
        try:
            trainer.test(module, data().test_dataloader(), verbose=False)
        except UsageError as error:
            refused = str(error)
    return {
        "weights": {name: value.detach().clone() for name, value in module.network.state_dict().items()},
        "metrics": metrics,
        "rank": trainer.global_rank,
        "refused": refused,
        "ids": seen.ids,
        "outputs": seen.outputs,
        "gradients": seen.gradients,
    }


def main(out: Path) -> None:
    torch.set_num_threads(1)
    result = train(2)
    torch.save(result, out / f"rank-{result['rank']}.pt")
    if result["rank"] == 0:
        torch.distributed.destroy_process_group()
        torch.save(train(1), out / "one.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
