"""Run by test_optimizer_ddp.py: trains defended on two gloo processes and leaves what each rank saw and became."""

import sys
from pathlib import Path

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from lightleak.data.layout import EncodedLayout
from lightleak.defenses.horizontal import DefendedOptimizer, UpdateDefense
from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.defenses.horizontal.rounding import Clipping
from lightleak.targets import NetworkSpec
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.optimizers import OptimizerConfig

SEED = 3
DEFENSES: dict[str, UpdateDefense] = {"noise": GaussianNoise(0.1), "clipping": Clipping(0.05)}


class Witness(lightning.Callback):
    """Keeps this rank's batches, and the weights before every step."""

    def __init__(self) -> None:
        self.batches: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.weights: list[dict[str, torch.Tensor]] = []

    def on_train_batch_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, batch: list, batch_idx: int
    ) -> None:
        self.batches.append((batch[0].clone(), batch[1].clone()))
        self.weights.append(copy_of(pl_module))


def copy_of(module: lightning.LightningModule) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in module.network.named_parameters()}


def train(name: str, accumulate: int, out: Path) -> None:
    draws = torch.Generator().manual_seed(0)
    rows = TensorDataset(torch.randn(32, 3, generator=draws), torch.randint(2, (32,), generator=draws))
    spec = NetworkSpec("mlp", 2, EncodedLayout.of_numerical(3), {"hidden": [5]})

    def wrap(optimizer: torch.optim.Optimizer, network: torch.nn.Module) -> DefendedOptimizer:
        return DefendedOptimizer(optimizer, network, DEFENSES[name], SEED)

    model = TabularClassifier(spec, OptimizerConfig("sgd", 0.5), seed=0, wrap_optimizer=wrap)
    witness = Witness()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=1,
        accumulate_grad_batches=accumulate,
        callbacks=[witness],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(rows, batch_size=4))
    left = {"batches": witness.batches, "weights": [*witness.weights, copy_of(model)]}
    torch.save(left, out / f"{name}-{accumulate}-{trainer.global_rank}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    assert "opacus" not in sys.modules  # an optional package, imported by what needs it
    for name, accumulate in (("noise", 1), ("clipping", 2)):
        train(name, accumulate, Path(sys.argv[1]))
