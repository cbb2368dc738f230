"""TabLeak's noise on the gradient: its effect on attacks and on accuracy (Table 6, Figures 5 to 8)."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.experiments.pack import Pack
from lightleak.reproductions.paper.values import PaperCell
from lightleak.reproductions.reproduction import Place, Row, Rows, Work
from lightleak.reproductions.tableak.attacked import NETWORK, Setting, experiment_of, noise_facts, setting_of
from lightleak.reproductions.tableak.fedsgd import UpdateAttacks
from lightleak.reproductions.tableak.trainings import accuracy_curve
from lightleak.targets.optimizers import OptimizerConfig

EPOCHS, BATCH_SIZE, LEARNING_RATE = 10, 32, 0.01  # App. B, of the networks whose accuracy is shown with the noise
TRAININGS = 5
"""Trainings behind an accuracy; the published code takes 10."""
TRAINING_COST = 1.5e6
"""About that of an attack by TabLeak on one batch of 32 rows."""


class NoisedGradients(UpdateAttacks):
    """Attacks on noised gradients of fresh clients, and networks trained on noised gradients."""

    noun = "attacks and trainings"

    def setting(self, cell: PaperCell) -> Setting:
        """Gradients with the cell's noise."""
        return setting_of(cell, {}, labels="true", noise=float(cell.noise_scale or 0.0))

    def packs(self, folder: Path, device: torch.device) -> Sequence[Pack]:
        """Every attack and every training behind the cells, each once."""
        trained = [cell for cell in dict.fromkeys(self.cells) if cell.attack is None]
        trainings = [
            Work([f"{_name(cell)}-s{seed}-{i:03d}"], partial(self.train, cell, seed, i), TRAINING_COST)
            for cell in trained
            for seed, i in self.repeated(TRAININGS)
            if i < TRAININGS
        ]
        return [*super().packs(folder, device), *trainings]

    def train(self, cell: PaperCell, seed: int, index: int, at: Place) -> Rows:
        """The accuracy of a network trained under noise; it and the order of rows are the same at every scale."""
        dataset, network, scale = str(cell.dataset), cell.network or NETWORK, float(cell.noise_scale or 0.0)
        experiment, optimizer = (
            experiment_of(dataset, network, self.selection.data_folder),
            OptimizerConfig("sgd", LEARNING_RATE),
        )
        cost, noise = TRAINING_COST / EPOCHS, GaussianNoise(scale)
        curve = accuracy_curve(experiment, optimizer, BATCH_SIZE, EPOCHS, (seed, index), at, cost, noise)
        return [
            {
                "unit": f"{_name(cell)}-s{seed}-{index:03d}",
                **self.where(cell),
                "metric": "test_accuracy",
                "dataset": dataset,
                "target": network,
                "protocol": "fedsgd",
                **noise_facts(scale),
                "batch_size": BATCH_SIZE,
                "epoch": EPOCHS,
                "seed": seed,
                "seed_index": index,
                "test_accuracy": curve[-1],
            }
        ]

    def where(self, cell: PaperCell) -> Row:
        """The rows of the cell's setting, or of its trainings."""
        return {"setting": _name(cell)} if cell.attack is None else super().where(cell)

    def remarks(self, rows: Rows) -> Mapping[str, bool | Mapping[str, Any]]:
        """How noise was added and how networks were trained."""
        trained = {"epochs": EPOCHS, "learning_rate": LEARNING_RATE, "batch_size": BATCH_SIZE, "trainings": TRAININGS}
        is_trained = any(cell.attack is None for cell in self.cells)
        return {"all_rows": True, "noise": True, "noised_accuracy": trained if is_trained else False}


def _name(cell: PaperCell) -> str:
    """File name of the trainings behind a cell."""
    return f"{cell.dataset}_{cell.network or NETWORK}_accuracy_noise-{float(cell.noise_scale or 0.0):g}"
