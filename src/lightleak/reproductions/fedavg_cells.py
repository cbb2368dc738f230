"""TabLeak's tables of FedAvg (2 and 21 to 24).

The paper prints the best of seven weights of the epoch prior, chosen on the clients it reports. Here a weight is chosen
per cell and attack on a validation client that no cell reports: first all of the search, then what is reported.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lightleak.attacks.random_baseline import AS_PUBLISHED
from lightleak.core.seeds import derive_seed
from lightleak.experiments.campaign import finished_rows, run_units
from lightleak.experiments.clients import FreshFedAvgClients
from lightleak.experiments.federation_config import ProtocolConfig
from lightleak.experiments.results import write_results
from lightleak.experiments.row_facts import protocol_facts
from lightleak.experiments.unit import Observed, Unit, write_whole
from lightleak.metrics.summary import summarize
from lightleak.reproductions.comparison import Compared
from lightleak.reproductions.paper.values import PaperCell, PaperTable
from lightleak.reproductions.settings import (
    ROW_METRICS,
    Selection,
    check_settings,
    experiment_of,
    population_of,
    selected,
)

CLIENTS = 5
"""Clients per cell by default; the paper has 50."""
PRIOR_WEIGHTS = (0.0, 0.5, 0.1, 0.05, 0.01, 0.005, 0.001)
"""lambda_inv of the published runs (``epoch_prior_params``)."""
VALIDATION_RESTARTS = 5
"""Restarts of the search: it only ranks seven weights, with the steps of the reported attack."""
LEARNING_RATE = 0.01  # App. B
ON_UPDATES = {"tableak": "tableak_fedavg", "inverting_gradients": "inverting_gradients_fedavg", "random": "random"}
"""What attacks FedAvg updates, by the name of the paper's cells."""
SEARCH_FILE = "validation.json"

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class LocalSetting:
    """One attack on clients of one kind.

    Attributes:
        dataset: name as in the paper's cells.
        network: name with widths.
        attack: name as in the paper's cells.
        rows: rows of a client.
        epochs: local epochs.
        batches: local batches per epoch.
        restarts: of the reported attack; None: its own default.
        steps: likewise.
        weight: of the epoch prior; None while it is not chosen.
    """

    dataset: str
    network: str
    attack: str
    rows: int
    epochs: int = 1
    batches: int = 1
    restarts: int | None = None
    steps: int | None = None
    weight: float | None = None

    @classmethod
    def of(cls, cell: PaperCell) -> "LocalSetting":
        """The setting whose result a cell prints."""
        assert cell.dataset is not None and cell.attack is not None and cell.batch_size is not None
        return cls(
            cell.dataset,
            cell.network or "mlp-100-100",
            cell.attack,
            cell.batch_size,
            cell.local_epochs or 1,
            cell.local_batches or 1,
            cell.restarts,
            cell.steps,
        )

    @property
    def has_prior(self) -> bool:
        """Whether there are several epochs to hold together; the baseline has none."""
        return self.epochs > 1 and self.attack != "random"

    @property
    def protocol(self) -> ProtocolConfig:
        """The clients' training: batches that stay the same over the epochs, as in the published code."""
        return ProtocolConfig(
            "fedavg",
            local_epochs=self.epochs,
            local_batches=self.batches,
            learning_rate=LEARNING_RATE,
            reshuffle=False,
            label_order="batches",
        )

    @property
    def options(self) -> dict[str, Any]:
        """Settings of the attack."""
        if self.attack == "random":
            return dict(AS_PUBLISHED)
        known = {"restarts": self.restarts, "steps": self.steps, "epoch_prior": self.weight}
        given = {name: value for name, value in known.items() if value is not None}
        return {"labels": "true", "label_order": "batches", **given}

    @property
    def name(self) -> str:
        """A file name."""
        options = [f"{key}-{value}" for key, value in sorted(self.options.items()) if key not in _SAME_EVERYWHERE]
        parts = [self.dataset, self.network, self.attack, f"{self.epochs}x{self.batches}", *options, f"b{self.rows}"]
        return "_".join(parts)


_SAME_EVERYWHERE = ("labels", "label_order")


def fedavg_table(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> tuple[list[Compared], Rows, list[str]]:
    """Choose the weights of the epoch prior on validation clients, then attack the reported ones."""
    check_settings(table.cells, selection)
    cells = selected(table, table.cells, selection)
    settings = tuple(dict.fromkeys(LocalSetting.of(cell) for cell in cells))
    search = validation_units(settings, selection)
    run_units(partial(validation_units, settings, selection), folder, device, workers, "nothing", quiet)
    found = finished_rows(search, folder)
    weights = chosen_weights(settings, found)
    write_whole(folder / SEARCH_FILE, json.dumps(_search_record(found, weights), indent=1))
    units = reported_units(weights, selection)
    try:
        run_units(partial(reported_units, weights, selection), folder, device, workers, "nothing", quiet)
    finally:
        rows = finished_rows(units, folder)
        write_results(folder, rows, extra_keys=("setting", "epoch_prior"))
    compared = [Compared(cell, summarize(_values(cell, weights, rows))) for cell in cells]
    return compared, rows, _notes(weights, selection)


def validation_units(settings: Sequence[LocalSetting], selection: Selection) -> list[Unit]:
    """Every weight on one client per cell and attack, from a stream of clients that none is reported of."""
    restarts = selection.search_restarts or VALIDATION_RESTARTS
    seed = derive_seed(selection.seeds[0], "validation")
    return [
        _unit(
            replace(s, weight=weight, restarts=s.restarts and min(s.restarts, restarts)), selection, seed, 0, "search-"
        )
        for s in settings
        if s.has_prior
        for weight in PRIOR_WEIGHTS
    ]


def chosen_weights(settings: Sequence[LocalSetting], search: Rows) -> dict[LocalSetting, LocalSetting]:
    """Each setting with the weight of its most accurate validation run; of equal ones the first of `PRIOR_WEIGHTS`."""
    chosen = {}
    for setting in settings:
        runs = [row for row in search if _coordinates(row) == _coordinates_of(setting)]
        best = max(runs, key=lambda row: row["cell_accuracy"], default={"epoch_prior": 0.0})
        chosen[setting] = setting if setting.attack == "random" else replace(setting, weight=best["epoch_prior"])
    return chosen


def reported_units(weights: Mapping[LocalSetting, LocalSetting], selection: Selection) -> list[Unit]:
    """The clients of every cell, attacked with the chosen weight."""
    return [
        _unit(setting, selection, seed, index)
        for setting in weights.values()
        for seed in selection.seeds
        for index in range(selection.batches or CLIENTS)
    ]


def _unit(setting: LocalSetting, selection: Selection, seed: int, index: int, prefix: str = "") -> Unit:
    return Unit(
        id=f"{prefix}{setting.name}-s{seed}-{index:03d}",
        attack=ON_UPDATES[setting.attack],
        options=setting.options,
        observe=partial(_observe, setting, seed, selection.data_folder, index),
        facts={
            "setting": setting.name,
            "dataset": setting.dataset,
            "target": setting.network,
            "labels": "true",
            "defense": "none",
            **protocol_facts(setting.protocol, setting.rows),
            "batch_index": index,
            "source": "initial",
            "epoch": 0,
            "epoch_prior": setting.weight,
        },
        seed=seed,
    )


def _observe(setting: LocalSetting, seed: int, data_folder: str | None, index: int) -> Observed:
    experiment = experiment_of(setting.dataset, setting.network, data_folder)
    people = population_of(setting.dataset, setting.network, data_folder)
    clients = FreshFedAvgClients(people, experiment.spec, seed, setting.protocol, share_labels="batches")
    return clients.observe(setting.rows, index)


def _coordinates(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[key] for key in ("dataset", "target", "attack", "batch_size", "local_epochs", "local_batches"))


def _coordinates_of(setting: LocalSetting) -> tuple[Any, ...]:
    attack = ON_UPDATES[setting.attack]
    return setting.dataset, setting.network, attack, setting.rows, setting.epochs, setting.batches


def _values(cell: PaperCell, weights: Mapping[LocalSetting, LocalSetting], rows: Rows) -> list[float]:
    name = weights[LocalSetting.of(cell)].name
    found = [row.get(ROW_METRICS[cell.metric]) for row in rows if row["setting"] == name]
    return [100.0 * value for value in found if value is not None]


def _search_record(search: Rows, weights: Mapping[LocalSetting, LocalSetting]) -> Rows:
    """Every validation run in short, with whether its weight was chosen."""
    chosen = {_coordinates_of(setting): setting.weight for setting in weights.values()}
    keys = ("dataset", "target", "attack", "local_epochs", "local_batches", "epoch_prior", "cell_accuracy", "seed")
    return [
        {key: row[key] for key in keys}
        | {"restarts": row["options"].get("restarts"), "chosen": row["epoch_prior"] == chosen[_coordinates(row)]}
        for row in search
    ]


def _notes(weights: Mapping[LocalSetting, LocalSetting], selection: Selection) -> list[str]:
    restarts = selection.search_restarts or VALIDATION_RESTARTS
    notes = [
        f"Clients per cell: {selection.batches or CLIENTS} (the paper has 50), each with a network of its own and "
        "batches that stay the same over its epochs, as in the published code; the server knows the labels of every "
        "batch.",
        "Encoder statistics, bounds and marginals are taken from all rows, as the published code does.",
    ]
    searched = [setting for setting in weights.values() if setting.has_prior]
    if searched:
        notes.append(
            f"The weight of the epoch prior is the most accurate of {', '.join(map(str, PRIOR_WEIGHTS))} on one "
            f"validation client per cell and attack, with at most {restarts} restarts, which no cell reports; the "
            f"paper prints the best on the clients it reports. All of the search: {SEARCH_FILE}."
        )
    for attack in dict.fromkeys(setting.attack for setting in searched):
        chosen = [f"{s.epochs}x{s.batches}: {s.weight:g}" for s in searched if s.attack == attack]
        notes.append(f"Chosen for {attack} (epochs x batches; one epoch needs no prior): {', '.join(chosen)}.")
    if any(setting.attack == "random" for setting in weights):
        notes.append("Random draws one number per column for the whole client, as the published code does.")
    return notes
