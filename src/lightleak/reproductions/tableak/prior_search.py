"""TabLeak's tables of FedAvg (2 and 21 to 24).

The paper prints the best of seven weights of the epoch prior, chosen on the clients it reports. Here a weight is chosen
per cell and attack on a validation client that no cell reports: first all of the search, then what is reported.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lightleak.core.grouping import by_key
from lightleak.core.seeds import derive_seed
from lightleak.experiments.campaign import UpdatePack, finished_rows, update_packs
from lightleak.experiments.federation_config import ProtocolConfig
from lightleak.experiments.unit import Unit, write_whole
from lightleak.reproductions.paper.values import PaperCell, note
from lightleak.reproductions.reproduction import Row, Rows, Stage
from lightleak.reproductions.settings import Selection, check_settings
from lightleak.reproductions.tableak.fedsgd import STRONGEST, Setting, UpdateAttacks, options_of, setting_of

CLIENTS = 5
"""Clients per cell by default; the paper has 50."""
WITHOUT_PRIOR = ("random", STRONGEST)
"""Attacks without a weight to choose."""
PRIOR_WEIGHTS = (0.0, 0.5, 0.1, 0.05, 0.01, 0.005, 0.001)
"""lambda_inv of the published runs (``epoch_prior_params``)."""
VALIDATION_RESTARTS = 5
"""Restarts of the search: it only ranks seven weights, with the steps of the reported attack."""
SEARCH_SHARE = 1 / 3
"""Of the time of a run within a budget, what the search may take."""
LEARNING_RATE = 0.01  # App. B
SEARCH_FILE = "validation.json"

Weights = Mapping[Setting, float | None]


class PriorSearch(UpdateAttacks):
    """Attacks on FedAvg clients with the weight that the search chose for each setting."""

    def choose(self) -> list[PaperCell]:
        """The selected cells; settings that no cell has are refused."""
        check_settings(self.table.cells, self.selection)
        return super().choose()

    def setting(self, cell: PaperCell) -> Setting:
        """See `local_setting_of`."""
        return local_setting_of(cell)

    def stages(self) -> list[Stage]:
        """The search, then the reported attacks, whose plan reads what the search found."""
        search = Stage(self.search, "attacks on validation clients", reported=False, share=SEARCH_SHARE)
        return [search, Stage(self.packs)]

    def in_part(self) -> Selection:
        """See `Reproduction.in_part`; the search has one restart, unless more are asked for."""
        return replace(super().in_part(), search_restarts=self.selection.search_restarts or 1)

    def search(self, folder: Path, device: torch.device) -> list[UpdatePack]:
        """The attacks of the search in packs."""
        return update_packs(self.search_units(), "nothing", folder, device)

    def packs(self, folder: Path, device: torch.device) -> list[UpdatePack]:
        """The reported attacks in packs."""
        return update_packs(self.reported_units(self.weights(folder)), "nothing", folder, device)

    def trials(self) -> dict[Setting, dict[float, Setting]]:
        """Return what the search runs, by weight, for every setting with a prior."""
        most = self.selection.search_restarts or VALIDATION_RESTARTS
        return {
            setting: {weight: weighted(_with_restarts(setting, most), weight) for weight in PRIOR_WEIGHTS}
            for setting in filter(has_prior, self.settings())
        }

    def search_units(self) -> list[Unit]:
        """Return attacks with every weight on one validation client per cell; none of these clients is reported."""
        seed = derive_seed(self.selection.seeds[0], "validation")
        trials = [trial for of_setting in self.trials().values() for trial in of_setting.values()]
        return [trial.unit(seed, 0, self.selection.data_folder, "search-") for trial in trials]

    def reported_units(self, weights: Weights) -> list[Unit]:
        """The clients of every cell, attacked with the chosen weight."""
        return [
            weighted(setting, weight).unit(seed, index, self.selection.data_folder)
            for setting, weight in weights.items()
            for seed, index in self.repeated(CLIENTS)
        ]

    def weights(self, folder: Path) -> Weights:
        """Return the weight of every setting by the finished part of the search; 0 without any."""
        accuracy = {row["setting"]: row["cell_accuracy"] for row in finished_rows(self.search_units(), folder)}
        trials = self.trials()
        return {
            setting: None if setting.attack in WITHOUT_PRIOR else best_weight(trials.get(setting, {}), accuracy)
            for setting in self.settings()
        }

    def leave(self, rows: Rows, folder: Path) -> None:
        """Write a summary of the search, with the chosen weights."""
        self.chosen, trials = self.weights(folder), self.trials()
        chosen = {of_setting[self.chosen[setting] or 0.0].name for setting, of_setting in trials.items()}
        keys = ("dataset", "target", "attack", "local_epochs", "local_batches", "epoch_prior", "cell_accuracy", "seed")
        units = self.search_units()
        finished = finished_rows(units, folder)
        self.unfinished = len(units) - len(finished)
        record = [
            {key: row[key] for key in keys}
            | {"restarts": row["options"].get("restarts"), "chosen": row["setting"] in chosen}
            for row in finished
        ]
        write_whole(folder / SEARCH_FILE, json.dumps(record, indent=1))

    def where(self, cell: PaperCell) -> Row:
        """The rows of the cell's setting with its weight."""
        setting = self.setting(cell)
        return {"setting": weighted(setting, self.chosen[setting]).name}

    def remarks(self, rows: Rows) -> Mapping[str, bool | Mapping[str, Any]]:
        """How clients and weights were chosen."""
        restarts = self.selection.search_restarts or VALIDATION_RESTARTS
        searched = any(map(has_prior, self.chosen))
        search = {"weights": ", ".join(map(str, PRIOR_WEIGHTS)), "restarts": restarts, "file": SEARCH_FILE}
        left = {"unfinished": self.unfinished, "planned": len(self.search_units())}
        return {
            "clients": {"clients": self.selection.batches or CLIENTS},
            "all_rows": True,
            "prior_search": search if searched else False,
            "prior_unfinished": left if self.unfinished else False,
            "random_per_client": any(setting.attack == "random" for setting in self.chosen),
        }

    def notes(self, rows: Rows) -> list[str]:
        """Also the chosen weights, by attack."""
        chosen = [
            note("tableak", "prior_chosen", attack=attack, chosen=", ".join(map(self._chosen_words, settings)))
            for attack, settings in by_key(filter(has_prior, self.chosen), lambda setting: setting.attack).items()
        ]
        return [*super().notes(rows), *chosen]

    def _chosen_words(self, setting: Setting) -> str:
        return f"{setting.protocol.local_epochs}x{setting.protocol.local_batches}: {self.chosen[setting]:g}"


def local_setting_of(cell: PaperCell) -> Setting:
    """The experiment whose result a cell prints, without the weight of its prior.

    Batches of a client stay the same over the epochs, as in the published code.
    """
    protocol = ProtocolConfig(
        "fedavg",
        local_epochs=cell.local_epochs or 1,
        local_batches=cell.local_batches or 1,
        learning_rate=LEARNING_RATE,
        reshuffle=False,
        label_order="batches",
    )
    return setting_of(cell, {}, labels="true", protocol=protocol)


def has_prior(setting: Setting) -> bool:
    """Return whether there are several epochs for a prior to tie together; the baseline has none."""
    return setting.protocol.local_epochs > 1 and setting.attack not in WITHOUT_PRIOR


def weighted(setting: Setting, weight: float | None) -> Setting:
    """The setting with a weight of the epoch prior; None leaves the attack unchanged."""
    if weight is None:
        return setting
    return replace(setting, options=options_of(dict(setting.options) | {"epoch_prior": weight}))


def best_weight(trials: Mapping[float, Setting], accuracy: Mapping[str, float]) -> float:
    """Return the weight of the most accurate trial, the first of equal ones; 0 where none has finished.

    Args:
        trials: by weight.
        accuracy: of the finished trials, by name.
    """
    found = {weight: accuracy[trial.name] for weight, trial in trials.items() if trial.name in accuracy}
    return max(found, key=lambda weight: found[weight], default=0.0)


def _with_restarts(setting: Setting, most: int) -> Setting:
    options = dict(setting.options)
    if "restarts" not in options:
        return setting
    return replace(setting, options=options_of(options | {"restarts": min(options["restarts"], most)}))
