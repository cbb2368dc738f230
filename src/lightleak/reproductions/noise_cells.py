"""TabLeak's noise on the gradient: what it takes from the attacks and what it costs (Table 6, Figures 5 to 8)."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import torch

from lightleak.core.seeds import derive_seed
from lightleak.data.datamodule import TableDataModule
from lightleak.defenses.horizontal import defend_training
from lightleak.defenses.horizontal.gaussian_noise import GaussianNoise
from lightleak.experiments.campaign import Pack, UpdatePack, rows_of, run_packs
from lightleak.experiments.clients import FreshClients
from lightleak.experiments.federation_config import ProtocolConfig
from lightleak.experiments.packing import find_sizes, plan_packs
from lightleak.experiments.results import write_results
from lightleak.experiments.row_facts import protocol_facts
from lightleak.experiments.unit import Observed, Unit, unit_file, write_whole
from lightleak.metrics.summary import summarize
from lightleak.reproductions.comparison import Compared
from lightleak.reproductions.paper.values import PaperCell, PaperTable
from lightleak.reproductions.settings import (
    BATCHES,
    TABLEAK_BATCH_SIZES,
    Selection,
    experiment_of,
    population_of,
    selected,
)
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.optimizers import OptimizerConfig
from lightleak.targets.trainer import alone_on, interrupts, quiet_lightning

EPOCHS, BATCH_SIZE, LEARNING_RATE = 10, 32, 0.01  # App. B, of the networks whose accuracy stands beside the noise
TRAININGS = 5
"""Trainings behind an accuracy; the published code takes 10."""
NOISE_SCALES = (0.001, 0.01, 0.1)  # App. C.1
FIGURES = {5: "adult", 6: "german", 7: "lawschool", 8: "health-heritage"}
NETWORK = "mlp-100-100"

Rows = list[dict[str, Any]]


def noise_table(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> tuple[list[Compared], Rows, list[str]]:
    """Attack noised gradients of fresh clients, and train networks on noised gradients."""
    cells = tuple(selected(table, table.cells or figure_cells(table), selection))
    plan = partial(noise_packs, cells, selection, folder)
    try:
        run_packs(plan, folder, device, workers, quiet, "attacks and trainings")
    finally:
        rows = rows_of([id for pack in plan(device) for id in pack.ids], folder)
        write_results(folder, rows, extra_keys=("setting", "metric"))
    compared = [Compared(cell, summarize(_values(cell, rows))) for cell in cells]
    return compared, rows, _notes(cells)


def figure_cells(table: PaperTable) -> list[PaperCell]:
    """What Figures 5 to 8 draw, as cells without a printed value."""
    base = PaperCell("cell_accuracy", "percent", float("nan"), network=NETWORK, protocol="fedsgd", labels="true")
    dataset = FIGURES[table.figure or 0]
    return [
        replace(base, dataset=dataset, attack=attack, batch_size=size, defense="gaussian_noise", noise_scale=scale)
        for scale in NOISE_SCALES
        for attack in ("tableak", "inverting_gradients")
        for size in TABLEAK_BATCH_SIZES
    ]


def noise_packs(cells: Sequence[PaperCell], selection: Selection, folder: Path, device: torch.device) -> list[Pack]:
    """Every attack and every training behind the cells, each once."""
    attacked = [cell for cell in dict.fromkeys(cells) if cell.attack is not None]
    trained = [cell for cell in dict.fromkeys(cells) if cell.attack is None]
    units = [
        _attack_unit(cell, selection.data_folder, seed, index)
        for cell in attacked
        for seed in selection.seeds
        for index in range(selection.batches or BATCHES)
    ]
    sizes = find_sizes(units, device, folder)
    packs: list[Pack] = [UpdatePack(members, "nothing") for members in plan_packs(units, device, sizes)]
    runs = min(selection.batches or TRAININGS, TRAININGS)
    packs += [
        NoisyTraining(_name(cell), *_experiment(cell), float(cell.noise_scale or 0.0), selection.data_folder, seed, i)
        for cell in trained
        for seed in selection.seeds
        for i in range(runs)
    ]
    return packs


def _attack_unit(cell: PaperCell, data_folder: str | None, seed: int, index: int) -> Unit:
    assert cell.attack is not None and cell.batch_size is not None  # `noise_packs` asks for no others
    dataset, network = _experiment(cell)
    known = {"restarts": cell.restarts, "steps": cell.steps}
    scale = float(cell.noise_scale or 0.0)
    return Unit(
        id=f"{_name(cell)}-s{seed}-{index:03d}",
        attack=cell.attack,
        options={name: value for name, value in known.items() if value is not None},
        observe=partial(_observe, dataset, network, scale, seed, data_folder, cell.batch_size, index),
        facts={
            "setting": _name(cell),
            "dataset": dataset,
            "target": network,
            "labels": "true",
            **protocol_facts(ProtocolConfig(), cell.batch_size),
            **_defense_facts(scale),
            "batch_index": index,
            "source": "initial",
            "epoch": 0,
        },
        seed=seed,
    )


def _name(cell: PaperCell) -> str:
    """A file name for what stands behind a cell."""
    told = [cell.attack or "accuracy", f"noise-{float(cell.noise_scale or 0.0):g}"]
    told += [f"{key}-{value}" for key in ("restarts", "steps") if (value := getattr(cell, key)) is not None]
    return "_".join([*_experiment(cell), *told, *([f"b{cell.batch_size}"] if cell.batch_size else [])])


def _experiment(cell: PaperCell) -> tuple[str, str]:
    assert cell.dataset is not None  # every cell of these tables names one
    return cell.dataset, cell.network or NETWORK


def _defense_facts(scale: float) -> dict[str, Any]:
    return {"defense": GaussianNoise.name, "defense_strength": scale}


def _observe(
    dataset: str, network: str, scale: float, seed: int, data_folder: str | None, batch_size: int, index: int
) -> Observed:
    experiment = experiment_of(dataset, network, data_folder)
    people = population_of(dataset, network, data_folder)
    clients = FreshClients(people, experiment.spec, seed, share_labels=True, defense=GaussianNoise(scale))
    return clients.observe(batch_size, index)


@dataclass(frozen=True)
class NoisyTraining:
    """One network trained on noised gradients: a pack of one unit, whose row holds its accuracy on the test rows.

    Attributes:
        setting: name of the cell.
        dataset: as cells name it.
        network: likewise.
        scale: of the noise.
        data_folder: where raw files lie.
        seed: root seed.
        index: number of the training; its network and its order of rows are the same at every scale.
    """

    setting: str
    dataset: str
    network: str
    scale: float
    data_folder: str | None
    seed: int
    index: int

    @property
    def ids(self) -> Sequence[str]:
        """Its one unit."""
        return [f"{self.setting}-s{self.seed}-{self.index:03d}"]

    @property
    def cost(self) -> float:
        """About that of an attack by TabLeak on one batch of 32 rows."""
        return 1.5e6

    def run(self, folder: Path, device: torch.device, report: Callable[[float], None]) -> None:
        """Train, test, and keep the row."""
        row = {
            "unit": self.ids[0],
            "setting": self.setting,
            "metric": "test_accuracy",
            "dataset": self.dataset,
            "target": self.network,
            "protocol": "fedsgd",
            **_defense_facts(self.scale),
            "batch_size": BATCH_SIZE,
            "epoch": EPOCHS,
            "seed": self.seed,
            "seed_index": self.index,
            "test_accuracy": self._test_accuracy(device, report),
        }
        write_whole(unit_file(folder, self.ids[0]), json.dumps(row))

    def _test_accuracy(self, device: torch.device, report: Callable[[float], None]) -> float:
        experiment = experiment_of(self.dataset, self.network, self.data_folder)
        data = TableDataModule(
            experiment.table, experiment.encoder, BATCH_SIZE, 0.0, seed=derive_seed(self.seed, "batches", self.index)
        )
        network_seed = derive_seed(self.seed, "network", self.index)
        model = TabularClassifier(experiment.spec, OptimizerConfig("sgd", LEARNING_RATE), seed=network_seed)
        defended = defend_training(GaussianNoise(self.scale), model, data, derive_seed(self.seed, "noise", self.index))
        with quiet_lightning():
            trainer = lightning.Trainer(
                max_epochs=EPOCHS,
                **alone_on(device),
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                callbacks=[*defended.callbacks, _ReportEpochs(report, self.cost / EPOCHS)],
            )
            with interrupts(trainer):
                trainer.fit(model, datamodule=defended.data)
                found = trainer.test(model, datamodule=defended.data, verbose=False)[0]
        return float(found["test/accuracy"])


class _ReportEpochs(lightning.Callback):
    def __init__(self, report: Callable[[float], None], cost: float) -> None:
        self.report, self.cost = report, cost

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self.report(self.cost)


def _values(cell: PaperCell, rows: Rows) -> list[float]:
    found = [row.get(cell.metric) for row in rows if row["setting"] == _name(cell)]
    return [100.0 * value for value in found if value is not None]


def _notes(cells: Sequence[PaperCell]) -> list[str]:
    notes = [
        "Encoder statistics, bounds and marginals are taken from all rows, as the published code does.",
        "Noise is added to the gradient of a fresh client's batch, a network of its own for each; without clipping no "
        "differential privacy follows.",
    ]
    if any(cell.attack is None for cell in cells):
        notes.append(
            f"Task accuracy: test rows after {EPOCHS} epochs of SGD at {LEARNING_RATE} in batches of {BATCH_SIZE}, "
            f"with noise on the mean gradient of every batch; n counts trainings (at most {TRAININGS} a seed). The "
            "published code slices its k-th batch up to the end of the data, so most of its steps are nearly "
            "full-batch ones."
        )
    return notes
