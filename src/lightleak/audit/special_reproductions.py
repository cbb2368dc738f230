"""Reproductions that no attack campaign covers: facts of a table, accuracy of networks, the variance study."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import torch

from lightleak.attacks.gradient_inversion.attack import GradientInversion
from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.pooling import TOLERANCE, align, pool
from lightleak.audit.clients import FreshClients
from lightleak.audit.comparison import Compared
from lightleak.audit.config import AuditConfig, DataConfig, TargetConfig
from lightleak.audit.experiment import Experiment, prepare_experiment
from lightleak.audit.paper.values import PaperCell, PaperTable
from lightleak.audit.reproduction_settings import (
    NETWORKS_BY_SIZE,
    TABLEAK_DATASETS,
    Selection,
    dataset_options,
    network_spec,
)
from lightleak.core.seeds import derive_seed
from lightleak.data.datamodule import TableDataModule
from lightleak.metrics.cells import cell_hits
from lightleak.metrics.summary import Summary, summarise
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.optimizers import OptimizerConfig

Rows = list[dict[str, Any]]
Special = Callable[[PaperTable, Selection, Path, torch.device, int, bool], tuple[list[Compared], Rows, list[str]]]

EPOCHS, INITIALISATIONS = 50, 5  # App. C.2
ENSEMBLE, MINI_ENSEMBLE = 30, 5  # App. E.1: 30 restarts, pooled in six ensembles of 5


def table_facts(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> tuple[list[Compared], Rows, list[str]]:
    """Table 7 (tolerance of each column) and Table 8 (columns, encoded width, rows): read off the loaded tables."""
    compared, rows, notes = [], [], []
    for cell in table.cells:
        if not selection.keeps(cell) or cell.dataset is None:
            continue
        try:
            experiment = _experiment(cell.dataset, "mlp-100-100", selection)
        except Exception as error:  # a table nobody holds is reported, not fatal: the others are still compared
            notes.append(f"{cell.dataset}: {error}")
            compared.append(Compared(cell, summarise([])))
            continue
        value = _fact(experiment, cell)
        compared.append(Compared(cell, Summary(value, float("nan"), 1, float("nan"), float("nan"))))
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
    cells = [cell for cell in cells if selection.keeps(cell)]
    runs = selection.batches or INITIALISATIONS
    compared, rows = [], []
    for cell in cells:
        curves = [_accuracy_curve(cell, selection, seed, folder) for seed in range(runs)]
        compared.append(Compared(cell, summarise([100 * max(curve) for curve in curves])))
        rows += [
            {
                "dataset": cell.dataset,
                "target": cell.network,
                "seed_index": seed,
                "epoch": epoch,
                "test_accuracy": accuracy,
            }
            for seed, curve in enumerate(curves)
            for epoch, accuracy in enumerate(curve, 1)
        ]
    return compared, rows, ["The peak over epochs on the test rows, as in the paper; n counts initialisations."]


def _accuracy_curve(cell: PaperCell, selection: Selection, seed: int, folder: Path) -> list[float]:
    """Test accuracy after each epoch; kept in the folder, so that an interrupted run goes on."""
    kept = folder / "curves" / f"{cell.dataset}_{cell.network}_{seed}.json"
    if kept.is_file():
        curve: list[float] = json.loads(kept.read_text())
        return curve
    assert cell.dataset is not None and cell.network is not None  # cells of Table 9 name both
    experiment = _experiment(cell.dataset, cell.network, selection)
    # Validation rows are the test rows here: the paper shows test accuracy after every epoch.
    table = experiment.table
    data = TableDataModule(table, experiment.encoder, 64 if cell.dataset == "german" else 256, 0.0, seed=seed)
    model = TabularClassifier(experiment.spec, OptimizerConfig("adam", 1e-3), seed=derive_seed(seed, "network"))
    record = _RecordAccuracy()
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
    trainer.fit(model, data.train_dataloader(), data.test_dataloader())
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps(record.curve))
    return record.curve


class _RecordAccuracy(lightning.Callback):
    def __init__(self) -> None:
        self.curve: list[float] = []

    def on_validation_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self.curve.append(float(trainer.callback_metrics["val/accuracy"]))


def variance_study(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> tuple[list[Compared], Rows, list[str]]:
    """Fig. 13: deviation of the accuracy within one batch, over 30 restarts and over six ensembles of 5."""
    attack = GradientInversion("tableak", "", InversionConfig(restarts=ENSEMBLE, numerical="none", keep_ensemble=True))
    compared, rows = [], []
    for discrete in range(0, 11, 2):
        name = f"synthetic-d{discrete}-c{10 - discrete}"
        experiment = _experiment(name, "mlp-100-100", selection)
        clients = FreshClients(experiment.population(), experiment.spec, selection.seeds[0], share_labels=True)
        single, pooled = [], []
        for index in range(selection.batches or 50):
            update, truth = clients.observe(32, index)
            found = attack.run(update, derive_seed(selection.seeds[0], name, index), device)
            assert found.ensemble is not None  # the configuration keeps it
            encoder = experiment.encoder
            true_rows = encoder.decode(truth.inputs, clamp=False)
            accuracies = torch.tensor([_accuracy(encoder, true_rows, one) for one in found.ensemble])
            minis = [
                _accuracy(encoder, true_rows, pool(align(encoder, part, 0), 0, "median"))
                for part in found.ensemble.split(MINI_ENSEMBLE)
            ]
            single.append(100 * float(accuracies.std()))
            pooled.append(100 * float(torch.tensor(minis).std()))
            rows.append(
                {
                    "dataset": name,
                    "batch_index": index,
                    "std_restarts": single[-1] / 100,
                    "std_ensembles": pooled[-1] / 100,
                }
            )
        for restarts, values in ((1, single), (MINI_ENSEMBLE, pooled)):
            cell = PaperCell(
                table.metric, "percent", float("nan"), dataset=name, attack="tableak", batch_size=32, restarts=restarts
            )
            compared.append(Compared(cell, summarise(values)))
    note = (
        "restarts 1: deviation over 30 single restarts; 5: over six median-pooled ensembles. No sigmoid, as in App. E."
    )
    return compared, rows, [note]


def _accuracy(encoder: Any, true_rows: Any, encoded: torch.Tensor) -> float:
    hits, _ = cell_hits(encoder, true_rows, encoder.decode(encoded))
    return float(hits.double().mean())


def _experiment(dataset: str, network: str, selection: Selection) -> Experiment:
    name, options = dataset_options(dataset)
    kind, widths = network_spec(network)
    data = DataConfig(name=name, folder=selection.data_folder, options=options, statistics="all", marginals="all")
    return prepare_experiment(AuditConfig(data=data, target=TargetConfig(kind, widths)))


SPECIAL: dict[str, Special] = {
    "tableak-table7": table_facts,
    "tableak-table8": table_facts,
    "tableak-table9": network_accuracy,
    "tableak-fig10": network_accuracy,
    "tableak-fig13": variance_study,
}
