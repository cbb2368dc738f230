"""TabLeak's noise on the gradient: what it takes from the attacks and what it costs (Table 6, Figures 5 to 8)."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from lightleak.core.seeds import derive_seed
from lightleak.data.datamodule import TableDataModule
from lightleak.defenses.horizontal import defend_training
from lightleak.defenses.horizontal.gaussian_noise import GaussianNoise
from lightleak.experiments.pack import Pack
from lightleak.experiments.unit import Unit
from lightleak.reproductions.paper.settings import note
from lightleak.reproductions.paper.values import PaperCell
from lightleak.reproductions.reproduction import Report, Reproduction, Row, Rows, Stage, Work
from lightleak.reproductions.tableak.attacked import (
    BATCHES,
    NETWORK,
    Setting,
    column,
    experiment_of,
    noise_facts,
    options_of,
    setting_of,
    stated,
    update_packs,
)
from lightleak.reproductions.training import fit
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.optimizers import OptimizerConfig
from lightleak.targets.trainer import interrupts, quiet_lightning

EPOCHS, BATCH_SIZE, LEARNING_RATE = 10, 32, 0.01  # App. B, of the networks whose accuracy is shown with the noise
TRAININGS = 5
"""Trainings behind an accuracy; the published code takes 10."""
TRAINING_COST = 1.5e6
"""About that of an attack by TabLeak on one batch of 32 rows."""


class NoisedGradients(Reproduction):
    """Attacks on noised gradients of fresh clients, and networks trained on noised gradients."""

    def stages(self) -> Sequence[Stage]:
        """Attacks and trainings side by side."""
        return [Stage(self.packs, "attacks and trainings")]

    def packs(self, folder: Path, device: torch.device) -> list[Pack]:
        """Every attack and every training behind the cells, each once."""
        seeds, number = self.selection.seeds, self.selection.batches
        trained = [cell for cell in dict.fromkeys(self.cells) if cell.attack is None]
        return [
            *update_packs(self.units(), folder, device),
            *(
                Work([f"{_name(cell)}-s{seed}-{i:03d}"], partial(self.train, cell, seed, i), TRAINING_COST)
                for cell in trained
                for seed in seeds
                for i in range(min(number or TRAININGS, TRAININGS))
            ),
        ]

    def units(self) -> list[Unit]:
        """The attacks."""
        return [
            noisy_setting_of(cell).unit(seed, index, self.selection.data_folder)
            for cell in dict.fromkeys(self.cells)
            if cell.attack is not None
            for seed in self.selection.seeds
            for index in range(self.selection.batches or BATCHES)
        ]

    def train(
        self,
        cell: PaperCell,
        seed: int,
        index: int,
        folder: Path,
        device: torch.device,
        report: Report,
    ) -> list[Row]:
        """The accuracy of a network trained under noise; it and the order of rows are the same at every scale."""
        dataset, network, scale = str(cell.dataset), cell.network or NETWORK, float(cell.noise_scale or 0.0)
        experiment = experiment_of(dataset, network, self.selection.data_folder)
        data = TableDataModule(
            experiment.table, experiment.encoder, BATCH_SIZE, 0.0, seed=derive_seed(seed, "batches", index)
        )
        network_seed = derive_seed(seed, "network", index)
        model = TabularClassifier(experiment.spec, OptimizerConfig("sgd", LEARNING_RATE), seed=network_seed)
        defended = defend_training(GaussianNoise(scale), model, data, derive_seed(seed, "noise", index))
        trainer = fit(
            model, device, EPOCHS, report, TRAINING_COST / EPOCHS, defended.callbacks, datamodule=defended.data
        )
        with quiet_lightning(), interrupts(trainer):
            tested = trainer.test(model, datamodule=defended.data, verbose=False)[0]
        return [
            {
                "unit": f"{_name(cell)}-s{seed}-{index:03d}",
                "setting": _name(cell),
                "metric": "test_accuracy",
                "dataset": dataset,
                "target": network,
                "protocol": "fedsgd",
                **noise_facts(scale),
                "batch_size": BATCH_SIZE,
                "epoch": EPOCHS,
                "seed": seed,
                "seed_index": index,
                "test_accuracy": float(tested["test/accuracy"]),
            }
        ]

    def values(self, cell: PaperCell, rows: Rows) -> list[float]:
        """A column of the rows behind the cell, in percent."""
        return column(rows, _name(cell), cell.metric, 100.0)

    def notes(self, rows: Rows) -> list[str]:
        """How noise was added and how networks were trained."""
        notes = [note("tableak", "all_rows"), note("tableak", "noise")]
        if any(cell.attack is None for cell in self.cells):
            trained = {"epochs": EPOCHS, "learning_rate": LEARNING_RATE, "batch_size": BATCH_SIZE}
            notes.append(note("tableak", "noised_accuracy", **trained, trainings=TRAININGS))
        return notes


def noisy_setting_of(cell: PaperCell) -> Setting:
    """The experiment whose result a cell with an attack prints."""
    noise = float(cell.noise_scale or 0.0)
    return replace(setting_of(cell), labels="true", noise=noise, options=options_of(stated(cell)))


def _name(cell: PaperCell) -> str:
    """Return a file name for the experiment behind a cell."""
    if cell.attack is not None:
        return noisy_setting_of(cell).name
    return "_".join([str(cell.dataset), cell.network or NETWORK, f"accuracy_noise-{float(cell.noise_scale or 0.0):g}"])
