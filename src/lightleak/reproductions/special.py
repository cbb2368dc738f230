"""Reproductions that no attack campaign covers: facts of a table, accuracy of networks, the variance study."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import torch

from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.optimize.attack import GradientInversion
from lightleak.attacks.gradient_inversion.optimize.pooling import align, pool
from lightleak.attacks.gradient_inversion.tables.codec import TOLERANCE
from lightleak.core.errors import LightLeakError
from lightleak.core.seeds import derive_seed
from lightleak.data.datamodule import TableDataModule
from lightleak.experiments.campaign import progress_bar
from lightleak.experiments.clients import FreshClients
from lightleak.experiments.experiment import Experiment
from lightleak.experiments.unit import unit_file, write_whole
from lightleak.metrics.cells import cell_hits
from lightleak.metrics.summary import Summary, summarize
from lightleak.reproductions.comparison import Compared
from lightleak.reproductions.fedavg_cells import fedavg_table
from lightleak.reproductions.noise_cells import noise_table
from lightleak.reproductions.paper.values import PaperCell, PaperTable
from lightleak.reproductions.settings import (
    BATCHES,
    NETWORKS_BY_SIZE,
    TABLEAK_DATASETS,
    Selection,
    experiment_of,
    selected,
)
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.optimizers import OptimizerConfig
from lightleak.targets.trainer import interrupts

Rows = list[dict[str, Any]]
Special = Callable[[PaperTable, Selection, Path, torch.device, int, bool], tuple[list[Compared], Rows, list[str]]]

EPOCHS, INITIALISATIONS = 50, 5  # App. C.2
SYNTHETIC_TABLES = tuple(f"synthetic-d{n}-c{10 - n}" for n in range(0, 11, 2))  # App. E.1
ENSEMBLE, MINI_ENSEMBLE = 30, 5  # App. E.1: 30 restarts, pooled in six ensembles of 5


def table_facts(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> tuple[list[Compared], Rows, list[str]]:
    """Table 7 (tolerance of each column) and Table 8 (columns, encoded width, rows): read off the loaded tables."""
    compared, rows, notes = [], [], []
    for cell in selected(table, table.cells, selection):
        assert cell.dataset is not None  # cells of both tables name one
        try:
            experiment = experiment_of(cell.dataset, "mlp-100-100", selection.data_folder)
        except LightLeakError as error:  # a table nobody holds is reported, not fatal: the others are still compared
            notes.append(f"{cell.dataset}: {error}")
            compared.append(Compared(cell, summarize([])))
            continue
        value = _fact(experiment, cell)
        compared.append(Compared(cell, Summary(value, float("nan"), 1, float("nan"), float("nan")), is_fact=True))
        rows.append({"dataset": cell.dataset, "metric": cell.metric, "column": cell.column, "value": value})
    return compared, rows, sorted(set(notes))


def _fact(experiment: Experiment, cell: PaperCell) -> float:
    schema = experiment.table.schema
    if cell.metric == "tolerance":
        names = [column.name for column in schema.numerical]
        return TOLERANCE * float(experiment.encoder.deviation[names.index(str(cell.column))])
    return float(
        {
            "features": len(schema.columns),
            "discrete_features": len(schema.categorical),
            "continuous_features": len(schema.numerical),
            "encoded_features": experiment.encoder.width,
            "data_points": len(experiment.table.train) + len(experiment.table.test),
        }[cell.metric]
    )


def network_accuracy(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> tuple[list[Compared], Rows, list[str]]:
    """Table 9 and Fig. 10: test accuracy of six networks over 50 epochs of Adam, five initialisations each."""
    cells = list(table.cells) or [
        PaperCell("test_accuracy", "percent", float("nan"), dataset=d, network=n)
        for d in TABLEAK_DATASETS
        for n in NETWORKS_BY_SIZE
    ]
    cells = selected(table, cells, selection)
    runs = [(seed, i) for seed in selection.seeds for i in range(selection.batches or INITIALISATIONS)]
    compared, rows = [], []
    with progress_bar("training", len(cells) * len(runs) * EPOCHS, quiet) as report:
        for cell in cells:
            curves = [_accuracy_curve(cell, selection, seed, index, folder, report) for seed, index in runs]
            compared.append(Compared(cell, summarize([100 * max(curve) for curve in curves])))
            rows += [
                {
                    "dataset": cell.dataset,
                    "target": cell.network,
                    "seed": seed,
                    "seed_index": index,
                    "epoch": epoch,
                    "test_accuracy": accuracy,
                }
                for (seed, index), curve in zip(runs, curves, strict=True)
                for epoch, accuracy in enumerate(curve, 1)
            ]
    return compared, rows, ["The peak over epochs on the test rows, as in the paper; n counts initialisations."]


def _accuracy_curve(
    cell: PaperCell, selection: Selection, seed: int, index: int, folder: Path, report: Callable[[float], None]
) -> list[float]:
    """Test accuracy after each epoch; kept in the folder, so that an interrupted run goes on."""
    kept = unit_file(folder, f"{cell.dataset}_{cell.network}-s{seed}-{index:03d}")
    if kept.is_file():
        report(EPOCHS)
        curve: list[float] = json.loads(kept.read_text())
        return curve
    assert cell.dataset is not None and cell.network is not None  # cells of Table 9 name both
    experiment = experiment_of(cell.dataset, cell.network, selection.data_folder)
    # Validation rows are the test rows here: the paper shows test accuracy after every epoch.
    batch_size = 64 if cell.dataset == "german" else 256
    data = TableDataModule(
        experiment.table, experiment.encoder, batch_size, 0.0, seed=derive_seed(seed, "batches", index)
    )
    model = TabularClassifier(experiment.spec, OptimizerConfig("adam", 1e-3), seed=derive_seed(seed, "network", index))
    record = _RecordAccuracy(report)
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[record],
    )
    with warnings.catch_warnings(), interrupts(trainer):
        # Lightning advises on loader workers and log intervals; one tensor in memory needs neither.
        warnings.filterwarnings("ignore", module="lightning")
        trainer.fit(model, data.train_dataloader(), data.test_dataloader())
    write_whole(kept, json.dumps(record.curve))
    return record.curve


class _RecordAccuracy(lightning.Callback):
    def __init__(self, report: Callable[[float], None]) -> None:
        self.curve: list[float] = []
        self.report = report

    def on_validation_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self.curve.append(float(trainer.callback_metrics["val/accuracy"]))
        self.report(1)


def variance_study(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> tuple[list[Compared], Rows, list[str]]:
    """Fig. 13: deviation of the accuracy within one batch, over 30 restarts and over six ensembles of 5."""
    attack = GradientInversion("tableak", "", InversionConfig(restarts=ENSEMBLE, numerical="none", keep_ensemble=True))
    cells = [
        PaperCell(table.metric, "percent", float("nan"), dataset=name, attack="tableak", batch_size=32, restarts=n)
        for name in SYNTHETIC_TABLES
        for n in (1, MINI_ENSEMBLE)
    ]
    cells = selected(table, cells, selection)
    draws = [(seed, index) for seed in selection.seeds for index in range(selection.batches or BATCHES)]
    names = list(dict.fromkeys(str(cell.dataset) for cell in cells))
    rows: Rows = []
    with progress_bar("batches", len(names) * len(draws), quiet) as report:
        for name in names:
            experiment = experiment_of(name, "mlp-100-100", selection.data_folder)
            for seed, index in draws:
                kept = unit_file(folder, f"{name}-s{seed}-{index:03d}")
                if not kept.is_file():
                    write_whole(kept, json.dumps(_spread(attack, experiment, name, seed, index, device)))
                rows.append(json.loads(kept.read_text()))
                report(1)
    compared = []
    for cell in cells:
        measured = "std_restarts" if cell.restarts == 1 else "std_ensembles"
        values = [100 * row[measured] for row in rows if row["dataset"] == cell.dataset]
        compared.append(Compared(cell, summarize(values)))
    note = (
        "restarts 1: deviation over 30 single restarts; 5: over six median-pooled ensembles. No sigmoid, as in App. E."
    )
    return compared, rows, [note]


def _spread(
    attack: GradientInversion, experiment: Experiment, name: str, seed: int, index: int, device: torch.device
) -> dict[str, Any]:
    """Deviation of the accuracy over the restarts of one batch, and over their small ensembles."""
    clients = FreshClients(experiment.population(), experiment.spec, seed, share_labels=True)
    update, truth = clients.observe(32, index)
    found = attack.run(update, derive_seed(seed, name, index), device)
    assert found.ensemble is not None  # the configuration keeps it
    encoder = experiment.encoder
    true_rows = encoder.decode(truth.inputs, clamp=False)
    single = torch.tensor([_accuracy(encoder, true_rows, one) for one in found.ensemble])
    parts = found.ensemble.split(MINI_ENSEMBLE)
    pooled = torch.tensor([_accuracy(encoder, true_rows, pool(align(encoder, part, 0), 0, "median")) for part in parts])
    return {
        "dataset": name,
        "seed": seed,
        "batch_index": index,
        "std_restarts": float(single.std()),
        "std_ensembles": float(pooled.std()),
    }


def _accuracy(encoder: Any, true_rows: Any, encoded: torch.Tensor) -> float:
    hits, _ = cell_hits(encoder, true_rows, encoder.decode(encoded))
    return float(hits.double().mean())


SPECIAL: dict[str, Special] = {
    **dict.fromkeys((f"tableak-table{n}" for n in (2, 21, 22, 23, 24)), fedavg_table),
    **dict.fromkeys(("tableak-table6", *(f"tableak-fig{n}" for n in (5, 6, 7, 8))), noise_table),
    "tableak-table7": table_facts,
    "tableak-table8": table_facts,
    "tableak-table9": network_accuracy,
    "tableak-fig10": network_accuracy,
    "tableak-fig13": variance_study,
}
