"""TabLeak's attacks on FedSGD gradients, the facts of its tables, and the spread of restarts."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from scipy.stats import kendalltau

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.optimize.attack import GradientInversion
from lightleak.attacks.gradient_inversion.optimize.pooling import align, pool
from lightleak.attacks.gradient_inversion.tables.codec import TOLERANCE
from lightleak.core.errors import UsageError
from lightleak.core.seeds import derive_seed
from lightleak.core.summary import Summary
from lightleak.data.encoder import TableEncoder
from lightleak.experiments.campaign import update_packs
from lightleak.experiments.clients import Federation, FreshClients
from lightleak.experiments.pack import Pack
from lightleak.experiments.unit import Unit
from lightleak.metrics.cells import cell_hits
from lightleak.reproductions.paper.values import PaperCell
from lightleak.reproductions.reproduction import FactTable, Place, Reproduction, Row, Rows, Work
from lightleak.reproductions.tableak.attacked import BATCHES, NETWORK, ROW_METRICS, Setting, experiment_of, setting_of

FEDERATION_RESTARTS = 15  # ensemble of the published runs behind Tables 5 and 15
GERMAN_ROWS = 16
"""Rows of a client of German Credit's federation, in the published code as here (see `Federation`)."""


class UpdateAttacks(Reproduction):
    """Attacks on the updates of clients, one setting after the other."""

    columns = ROW_METRICS

    @abstractmethod
    def setting(self, cell: PaperCell) -> Setting:
        """The experiment whose result a cell with an attack prints."""

    def settings(self) -> list[Setting]:
        """Each experiment once, in the order of the cells."""
        return list(dict.fromkeys(self.setting(cell) for cell in self.cells if cell.attack is not None))

    def units(self) -> list[Unit]:
        """The attacks."""
        return [
            setting.unit(*one, self.selection.data_folder)
            for setting in self.settings()
            for one in self.repeated(BATCHES)
        ]

    def packs(self, folder: Path, device: torch.device) -> Sequence[Pack]:
        """The attacks in packs; nothing is kept of their cells."""
        return update_packs(self.units(), "nothing", folder, device)

    def where(self, cell: PaperCell) -> Row:
        """The rows of the cell's setting."""
        return {"setting": self.setting(cell).name}


class GradientAttacks(UpdateAttacks):
    """Attacks on gradients of fresh clients, or of those of a small federation."""

    def setting(self, cell: PaperCell) -> Setting:
        """See `gradient_setting_of`."""
        return gradient_setting_of(cell)

    def prepare(self) -> None:
        """Refuse more clients than there are, wrong settings of an attack, and a table that is missing."""
        settings, batches, clients = self.settings(), self.selection.batches or BATCHES, Federation.clients
        if batches > clients and any(setting.epoch for setting in settings):
            raise UsageError(f"--batches must be at most {clients}, the clients of the federation; got {batches}")
        for setting in settings:
            ATTACKS.get(setting.attack)(**dict(setting.options))
        for dataset, network in dict.fromkeys((setting.dataset, setting.network) for setting in settings):
            experiment_of(dataset, network, self.selection.data_folder)

    def measured(self, cell: PaperCell, rows: Rows) -> Summary:
        """Mean over batches; a rank correlation is one number over all of them."""
        if cell.metric != "kendall_tau":
            return super().measured(cell, rows)
        return rank_correlation(self.behind(cell, rows), cell.feature_kind or "categorical")

    def remarks(self, rows: Rows) -> Mapping[str, bool | Mapping[str, Any]]:
        """Where a run departs from the paper or from our defaults, and why; only what concerns these cells."""
        return {
            "network": True,
            "statistics": True,
            "random": any(cell.attack == "random" for cell in self.cells),
            "gradinversion": any(cell.attack == "gradinversion" for cell in self.cells),
            "training_epochs": any(cell.training_epochs for cell in self.cells),
        }


def rank_correlation(rows: Rows, kind: str) -> Summary:
    """Kendall's tau over batches between mean entropy and mean accuracy (Tables 25 to 28)."""
    pairs = [(row[f"mean_entropy_{kind}"], row[f"{kind}_accuracy"]) for row in rows]
    known = [(entropy, accuracy) for entropy, accuracy in pairs if entropy is not None and accuracy is not None]
    tau = float(kendalltau(*zip(*known, strict=True)).statistic) if len(known) > 1 else math.nan
    return Summary(mean=tau, std=math.nan, n=len(known), low=math.nan, high=math.nan)


def gradient_setting_of(cell: PaperCell) -> Setting:
    """The experiment whose result a cell about a gradient prints."""
    options: dict[str, Any] = {}
    if cell.labels == "restored":
        options["labels"] = "geng"
    if cell.pooling is not None:
        options["pooling"] = cell.pooling
    if cell.sigmoid_bounds is False:
        options["numerical"] = "none"
    if cell.training_epochs is not None and cell.attack == "tableak":
        options["restarts"] = FEDERATION_RESTARTS
    setting = setting_of(cell, options, epoch=cell.training_epochs or 0)
    return replace(setting, batch_size=GERMAN_ROWS) if setting.epoch and cell.dataset == "german" else setting


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


class RestartSpread(Reproduction):
    """Fig. 13: deviation of the accuracy within one batch, over 30 restarts and over their small ensembles."""

    noun = "batches"

    def packs(self, folder: Path, device: torch.device) -> Sequence[Work]:
        """One attack per table, seed and batch."""
        return [
            Work([f"{name}-s{seed}-{index:03d}"], partial(self.attack, name, seed, index))
            for name in dict.fromkeys(str(cell.dataset) for cell in self.cells)
            for seed, index in self.repeated(BATCHES)
        ]

    def attack(self, name: str, seed: int, index: int, at: Place) -> Rows:
        """The deviation over the restarts of one batch, and over their ensembles."""
        attack = GradientInversion("tableak", "", self.config())
        experiment = experiment_of(name, NETWORK, self.selection.data_folder)
        clients = FreshClients(experiment.population(), experiment.spec, seed, share_labels=True)
        update, truth = clients.observe(32, index)
        found = attack.run_many([update], [derive_seed(seed, name, index)], at.device, at.report)[0]
        assert found.ensemble is not None  # the configuration keeps it
        encoder = experiment.encoder
        true_rows = encoder.decode(truth.inputs, clamp=False)
        pooled = [pool(align(encoder, part, 0), 0, "median") for part in found.ensemble.split(self.ensemble_size)]
        spread = {
            "std_restarts": _deviation(encoder, true_rows, found.ensemble),
            "std_ensembles": _deviation(encoder, true_rows, pooled),
        }
        return [{"dataset": name, "seed": seed, "batch_index": index, **spread}]

    def config(self) -> InversionConfig:
        """Settings of the attack: no sigmoid, and all restarts are kept."""
        return InversionConfig(restarts=ENSEMBLE, numerical="none", keep_ensemble=True)

    @property
    def ensemble_size(self) -> int:
        """Restarts of an ensemble, as the cells say."""
        return max(cell.restarts or 1 for cell in self.table.drawn)

    def where(self, cell: PaperCell) -> Row:
        """Every batch of the cell's table."""
        return {"dataset": cell.dataset}

    def column(self, cell: PaperCell) -> str:
        """See `Reproduction.column`."""
        return "std_restarts" if cell.restarts == 1 else "std_ensembles"


def _deviation(encoder: TableEncoder, true_rows: Any, candidates: Iterable[torch.Tensor]) -> float:
    """The deviation of the accuracy over candidates."""
    accuracies = [cell_hits(encoder, true_rows, encoder.decode(one))[0].double().mean() for one in candidates]
    return float(torch.tensor([float(one) for one in accuracies]).std())
