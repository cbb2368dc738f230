"""Networks trained on TabLeak's tables: accuracy (Table 9, Fig. 10), and noise on gradients (Table 6, Fig. 5 to 8)."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

import lightning
import torch
from lightning.pytorch.callbacks import LambdaCallback
from torch import Tensor

from lightleak.core.grouping import by_key
from lightleak.core.seeds import derive_seed, generator
from lightleak.data.datamodule import BatchSampler, TableDataModule
from lightleak.defenses.horizontal import UpdateDefense, defend_training
from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.experiments.pack import Pack
from lightleak.reproductions.paper.values import PaperCell
from lightleak.reproductions.reproduction import Place, Reproduction, Row, Rows, Work, fit, scale
from lightleak.reproductions.tableak.fedsgd import NETWORK, Setting, UpdateAttacks, at_hand, experiment_of, made_facts
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.optimizers import OptimizerConfig

EPOCHS, INITIALIZATIONS = 50, 5  # App. C.2


def trained_rows(
    cell: PaperCell,
    data_folder: str | None,
    optimizer: OptimizerConfig,
    batch_size: int,
    epochs: int,
    training: tuple[int, int],
    at: Place,
    cost: float = 1.0,
    defense: UpdateDefense | None = None,
    as_published: bool = False,
) -> Rows:
    """Train the network of a cell and return a row with its accuracy on the test rows for every epoch.

    Args:
        cell: names table and network.
        data_folder: holds one folder per dataset.
        optimizer: of the training.
        batch_size: rows of a step.
        epochs: number of epochs.
        training: root seed and number of the training; network, order of rows and noise depend on them alone.
        at: where it runs.
        cost: progress of an epoch, reported in shares.
        defense: what acts on the mean gradient of every batch.
        as_published: batches are `Remainders`.
    """
    (seed, index), dataset, network = training, str(cell.dataset), cell.network or NETWORK
    experiment = experiment_of(dataset, network, data_folder)
    # Validation rows are the test rows here: the paper shows test accuracy after every epoch.
    data = TableDataModule(
        experiment.table, experiment.encoder, batch_size, 0.0, seed=derive_seed(seed, "batches", index)
    )
    if as_published:
        data = data.drawn_by(Remainders(len(data.part("train")), batch_size, True, derive_seed(seed, "batches", index)))
    model = TabularClassifier(experiment.spec, optimizer, seed=derive_seed(seed, "network", index))
    curve: list[float] = []

    def record(trainer: lightning.Trainer, module: lightning.LightningModule) -> None:
        curve.append(float(trainer.callback_metrics["val/accuracy"]))

    callbacks: list[lightning.Callback] = [LambdaCallback(on_validation_epoch_end=record)]
    if defense is not None:
        callbacks += defend_training(defense, model, data, derive_seed(seed, "noise", index)).callbacks
    train, test = data.train_dataloader(), data.test_dataloader()
    fit(model, at, epochs, cost, callbacks, train_dataloaders=train, val_dataloaders=test)
    made = made_facts(dataset, data_folder)
    facts = {"dataset": dataset, **made, "target": network, "seed": seed, "seed_index": index}
    return [{**facts, "epoch": epoch, "test_accuracy": value} for epoch, value in enumerate(curve, 1)]


class NetworkAccuracy(Reproduction):
    """Table 9 and Fig. 10: test accuracy of six networks over 50 epochs of Adam, five initializations each."""

    noun = "trainings"
    most = INITIALIZATIONS
    matched: ClassVar[Mapping[str, str]] = {"dataset": "dataset", "target": "network"}

    def prepare(self) -> None:
        """Leave out the cells whose table is missing."""
        self.runnable = at_hand(self)

    def packs(self, folder: Path, device: torch.device) -> Sequence[Work]:
        """One training per cell, seed and initialization."""
        return [
            Work(
                [f"accuracy_{cell.dataset}_{cell.network}-s{seed}-{i:03d}"], partial(self.train, cell, seed, i), EPOCHS
            )
            for cell in self.runnable
            for seed, i in self.repeated(INITIALIZATIONS)
        ]

    def train(self, cell: PaperCell, seed: int, index: int, at: Place) -> list[Rows]:
        """A row for every epoch of one training."""
        batch_size, folder = 64 if cell.dataset == "german" else 256, self.selection.data_folder
        return [trained_rows(cell, folder, OptimizerConfig("adam", 1e-3), batch_size, EPOCHS, (seed, index), at)]

    def values(self, cell: PaperCell, rows: Rows) -> list[float]:
        """The peak of every training."""
        trainings = by_key(self.behind(cell, rows), itemgetter("seed", "seed_index")).values()
        return [max(scale(cell) * row["test_accuracy"] for row in of_training) for of_training in trainings]

    def remarks(self, rows: Rows) -> Mapping[str, bool | Mapping[str, Any]]:
        """What is counted."""
        return {"peak": True}


NOISED_EPOCHS, BATCH_SIZE, LEARNING_RATE = (10, 32, 0.01)
"""App. B, of the networks whose accuracy is shown with the noise."""
TRAININGS = 5
"""Trainings behind an accuracy; the published code takes 10."""
MOST_ROWS = 1024
TRAINING_COST = 1.5e6
"""About that of an attack by TabLeak on one batch of 32 rows."""


class Remainders(BatchSampler):
    """Batches from their first row to the end of the epoch, as the published code slices them for Table 6.

    Of more than `MOST_ROWS` that many are drawn, for time.
    """

    def batches(self, epoch: int) -> Iterator[Tensor]:
        """See `EpochSampler.batches`."""
        order, draws = self.order(epoch), generator(self.seed, "remainders", epoch)
        for first in range(0, self.n_rows, self.batch_size):
            rows = order[first:]
            yield rows[torch.randperm(len(rows), generator=draws)[:MOST_ROWS]]


class NoisedGradients(UpdateAttacks):
    """Attacks on noised gradients of fresh clients, and networks trained on noised gradients."""

    noun = "attacks and trainings"

    def setting(self, cell: PaperCell) -> Setting:
        """Gradients with the cell's noise."""
        return Setting.of(cell, {}, self.selection.as_published, labels="true", noise=float(cell.noise_scale or 0.0))

    def packs(self, folder: Path, device: torch.device) -> Sequence[Pack]:
        """Every attack and every training behind the cells, each once."""
        trained = [cell for cell in dict.fromkeys(self.runnable) if cell.attack is None]
        trainings = [
            Work([f"{_name(cell)}-s{seed}-{i:03d}"], partial(self.train, cell, seed, i), TRAINING_COST)
            for cell in trained
            for seed, i in self.repeated(TRAININGS)
            if i < TRAININGS
        ]
        return [*super().packs(folder, device), *trainings]

    def train(self, cell: PaperCell, seed: int, index: int, at: Place) -> Rows:
        """The accuracy of a network trained under noise; it and the order of rows are the same at every scale."""
        noise, cost = GaussianNoise(float(cell.noise_scale or 0.0)), TRAINING_COST / NOISED_EPOCHS
        optimizer, folder = OptimizerConfig("sgd", LEARNING_RATE), self.selection.data_folder
        published = self.selection.as_published
        rows = trained_rows(
            cell, folder, optimizer, BATCH_SIZE, NOISED_EPOCHS, (seed, index), at, cost, noise, published
        )
        return [
            {
                "unit": f"{_name(cell)}-s{seed}-{index:03d}",
                **self.where(cell),
                "metric": "test_accuracy",
                "protocol": "fedsgd",
                "defense": noise.name,
                "defense_strength": noise.scale,
                "batch_size": BATCH_SIZE,
                **rows[-1],
            }
        ]

    def where(self, cell: PaperCell) -> Row:
        """The rows of the cell's setting, or of its trainings."""
        return {"setting": _name(cell)} if cell.attack is None else super().where(cell)

    def remarks(self, rows: Rows) -> Mapping[str, bool | Mapping[str, Any]]:
        """How noise was added and how networks were trained."""
        trained = {
            "epochs": NOISED_EPOCHS,
            "learning_rate": LEARNING_RATE,
            "batch_size": BATCH_SIZE,
            "trainings": TRAININGS,
        }
        is_trained = any(cell.attack is None for cell in self.cells)
        return {"all_rows": True, "noise": True, "noised_accuracy": trained if is_trained else False}


def _name(cell: PaperCell) -> str:
    """File name of the trainings behind a cell."""
    return f"{cell.dataset}_{cell.network or NETWORK}_accuracy_noise-{float(cell.noise_scale or 0.0):g}"
