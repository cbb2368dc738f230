"""TabLeak's tables and figures without a campaign of attacks: facts of the tables, and the spread of restarts."""

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.optimize.attack import GradientInversion
from lightleak.attacks.gradient_inversion.optimize.pooling import align, pool
from lightleak.attacks.gradient_inversion.tables.codec import TOLERANCE
from lightleak.core.seeds import derive_seed
from lightleak.data.encoder import TableEncoder
from lightleak.experiments.clients import FreshClients
from lightleak.metrics.cells import cell_hits
from lightleak.reproductions.paper.values import PaperCell
from lightleak.reproductions.reproduction import FactTable, Place, Reproduction, Row, Rows, Work
from lightleak.reproductions.tableak.attacked import BATCHES, NETWORK, experiment_of

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
