"""TabLeak's tables and figures without a campaign of attacks: facts, accuracy of networks, spread of restarts."""

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import torch

from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.optimize.attack import GradientInversion
from lightleak.attacks.gradient_inversion.optimize.pooling import align, pool
from lightleak.attacks.gradient_inversion.tables.codec import TOLERANCE
from lightleak.core.seeds import derive_seed
from lightleak.data.datamodule import TableDataModule
from lightleak.data.encoder import TableEncoder
from lightleak.experiments.clients import FreshClients
from lightleak.metrics.cells import cell_hits
from lightleak.reproductions.paper.values import PaperCell
from lightleak.reproductions.reproduction import FactTable, Report, Reproduction, Row, Rows, Stage, Work
from lightleak.reproductions.tableak.attacked import BATCHES, NETWORK, experiment_of
from lightleak.reproductions.training import fit
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.optimizers import OptimizerConfig

EPOCHS, INITIALIZATIONS = 50, 5  # App. C.2
ENSEMBLE = 30  # App. E.1: restarts, pooled in ensembles as large as the cells say


class TableFacts(FactTable):
    """Table 7 (tolerance of each column) and Table 8 (columns, encoded width, rows): read off the loaded tables."""

    def fact(self, cell: PaperCell, rows: Rows) -> float:
        """See `FactTable.fact`."""
        experiment = experiment_of(str(cell.dataset), NETWORK, self.selection.data_folder)
        schema = experiment.table.schema
        if cell.metric == "tolerance":
            names = [column.name for column in schema.numerical]
            return TOLERANCE * float(experiment.encoder.deviation[names.index(str(cell.column))])
        numbers = {
            "features": len(schema.columns),
            "discrete_features": len(schema.categorical),
            "continuous_features": len(schema.numerical),
            "encoded_features": experiment.encoder.width,
            "data_points": len(experiment.table.train) + len(experiment.table.test),
        }
        return float(numbers[cell.metric])


class NetworkAccuracy(Reproduction):
    """Table 9 and Fig. 10: test accuracy of six networks over 50 epochs of Adam, five initializations each."""

    def stages(self) -> Sequence[Stage]:
        """Every training."""
        return [Stage(self.packs, "trainings")]

    def packs(self, folder: Path, device: torch.device) -> list[Work]:
        """One training per cell, seed and initialization."""
        return [
            Work([f"{_name(cell)}-s{seed}-{i:03d}"], partial(self.train, cell, seed, i), EPOCHS)
            for cell in self.cells
            for seed in self.selection.seeds
            for i in range(self.selection.batches or INITIALIZATIONS)
        ]

    def train(
        self,
        cell: PaperCell,
        seed: int,
        index: int,
        folder: Path,
        device: torch.device,
        report: Report,
    ) -> list[list[Row]]:
        """A row for every epoch of one training."""
        assert cell.dataset is not None and cell.network is not None  # cells of these tables name both
        experiment = experiment_of(cell.dataset, cell.network, self.selection.data_folder)
        # Validation rows are the test rows here: the paper shows test accuracy after every epoch.
        batch_size = 64 if cell.dataset == "german" else 256
        data = TableDataModule(
            experiment.table, experiment.encoder, batch_size, 0.0, seed=derive_seed(seed, "batches", index)
        )
        network_seed = derive_seed(seed, "network", index)
        model = TabularClassifier(experiment.spec, OptimizerConfig("adam", 1e-3), seed=network_seed)
        record = _RecordAccuracy()
        train, test = data.train_dataloader(), data.test_dataloader()
        fit(model, device, EPOCHS, report, callbacks=[record], train_dataloaders=train, val_dataloaders=test)
        told = {"dataset": cell.dataset, "target": cell.network, "seed": seed, "seed_index": index}
        return [[{**told, "epoch": epoch, "test_accuracy": value} for epoch, value in enumerate(record.curve, 1)]]

    def values(self, cell: PaperCell, rows: Rows) -> list[float]:
        """The peak of every training, in percent."""
        peaks: dict[tuple[int, int], float] = {}
        for row in rows:
            if (row["dataset"], row["target"]) == (cell.dataset, cell.network):
                training = row["seed"], row["seed_index"]
                peaks[training] = max(peaks.get(training, 0.0), 100 * row["test_accuracy"])
        return list(peaks.values())

    def notes(self, rows: Rows) -> list[str]:
        """What is counted."""
        return ["The peak over epochs on the test rows, as in the paper; n counts initializations."]


def _name(cell: PaperCell) -> str:
    return f"accuracy_{cell.dataset}_{cell.network}"


class _RecordAccuracy(lightning.Callback):
    def __init__(self) -> None:
        self.curve: list[float] = []

    def on_validation_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self.curve.append(float(trainer.callback_metrics["val/accuracy"]))


class RestartSpread(Reproduction):
    """Fig. 13: deviation of the accuracy within one batch, over 30 restarts and over their small ensembles."""

    def stages(self) -> Sequence[Stage]:
        """Every batch."""
        return [Stage(self.packs, "batches")]

    def packs(self, folder: Path, device: torch.device) -> list[Work]:
        """One attack per table, seed and batch."""
        return [
            Work([f"{name}-s{seed}-{index:03d}"], partial(self.attack, name, seed, index))
            for name in dict.fromkeys(str(cell.dataset) for cell in self.cells)
            for seed in self.selection.seeds
            for index in range(self.selection.batches or BATCHES)
        ]

    def attack(self, name: str, seed: int, index: int, folder: Path, device: torch.device, report: Report) -> list[Row]:
        """The deviation over the restarts of one batch, and over their ensembles."""
        attack = GradientInversion("tableak", "", self.config())
        experiment = experiment_of(name, NETWORK, self.selection.data_folder)
        clients = FreshClients(experiment.population(), experiment.spec, seed, share_labels=True)
        update, truth = clients.observe(32, index)
        found = attack.run_many([update], [derive_seed(seed, name, index)], device, report)[0]
        assert found.ensemble is not None  # the configuration keeps it
        encoder = experiment.encoder
        true_rows = encoder.decode(truth.inputs, clamp=False)
        parts = found.ensemble.split(self.ensemble_size)
        pooled = [pool(align(encoder, part, 0), 0, "median") for part in parts]
        return [
            {
                "dataset": name,
                "seed": seed,
                "batch_index": index,
                "std_restarts": _deviation(encoder, true_rows, found.ensemble),
                "std_ensembles": _deviation(encoder, true_rows, pooled),
            }
        ]

    def config(self) -> InversionConfig:
        """Settings of the attack: no sigmoid, and all restarts are kept."""
        return InversionConfig(restarts=ENSEMBLE, numerical="none", keep_ensemble=True)

    @property
    def ensemble_size(self) -> int:
        """Restarts of an ensemble, as the cells say."""
        return max(cell.restarts or 1 for cell in self.table.drawn)

    def values(self, cell: PaperCell, rows: Rows) -> list[float]:
        """The deviation of every batch, in percent."""
        measured = "std_restarts" if cell.restarts == 1 else "std_ensembles"
        return [100 * row[measured] for row in rows if row["dataset"] == cell.dataset]


def _deviation(encoder: TableEncoder, true_rows: Any, candidates: Iterable[torch.Tensor]) -> float:
    """The deviation of the accuracy over candidates."""
    accuracies = [cell_hits(encoder, true_rows, encoder.decode(one))[0].double().mean() for one in candidates]
    return float(torch.tensor([float(one) for one in accuracies]).std())
