"""TabLeak's tables whose attacks have weights of a prior: of FedAvg (2 and 21 to 24), and of networks (3, 10 to 13).

The paper prints the best of a grid of weights, chosen on the clients it reports. Here weights are chosen per cell and
attack on a validation client that no cell reports: first all of the search, then what is reported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import torch

from lightleak.core.grouping import by_key
from lightleak.core.seeds import derive_seed
from lightleak.core.stored import write_json
from lightleak.experiments.campaign import UpdatePack, finished_rows, update_packs
from lightleak.experiments.federation_config import ProtocolConfig
from lightleak.experiments.unit import Unit
from lightleak.reproductions.paper.values import PaperCell, note
from lightleak.reproductions.reproduction import Row, Rows, Stage
from lightleak.reproductions.settings import Selection, check_settings
from lightleak.reproductions.tableak.fedsgd import STRONGEST, Setting, UpdateAttacks, gradient_setting_of

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

GRID = (1.0, 0.1, 0.01, 0.001, 1e-4, 1e-5, 0.0)
"""Weights of each of GradInversion's priors in the published runs (``prior_params``)."""
WITH_STATISTICS = ("cnn", "resnet")
"""Networks with BatchNorm, of which GradInversion has a second prior."""

Weight = float | tuple[float, ...]
Weights = Mapping[Setting, Any]
"""Of every setting: a `Weight`, or None where the attack has none."""


class PriorSearch(UpdateAttacks):
    """Attacks on FedAvg clients with the weight that the search chose for each setting."""

    chosen_note: ClassVar[str] = "prior_chosen"

    def choose(self) -> list[PaperCell]:
        """The selected cells; settings that no cell has are refused."""
        check_settings(self.table.cells, self.selection)
        return super().choose()

    def setting(self, cell: PaperCell) -> Setting:
        """See `local_setting_of`."""
        return local_setting_of(cell, self.selection.as_published)

    def candidates(self, setting: Setting) -> Sequence[Weight]:
        """The weights that are tried; none where no epochs are tied together by a prior, or the attack has none."""
        has_prior = setting.protocol.local_epochs > 1 and setting.attack not in WITHOUT_PRIOR
        return PRIOR_WEIGHTS if has_prior else ()

    def usual(self, setting: Setting) -> Weight | None:
        """The weight where none was tried; None leaves the attack unchanged."""
        return None if setting.attack in WITHOUT_PRIOR else 0.0

    def weighted(self, setting: Setting, weight: Any) -> Setting:
        """The setting with a weight of the epoch prior; None leaves the attack unchanged."""
        return setting if weight is None else setting.with_options(epoch_prior=weight)

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

    def trials(self) -> dict[Setting, dict[Any, Setting]]:
        """Return what the search runs, by weight, for every setting with a prior."""
        most = self.selection.search_restarts or VALIDATION_RESTARTS
        return {
            setting: {weight: self.weighted(_with_restarts(setting, most), weight) for weight in tried}
            for setting in self.settings()
            if (tried := self.candidates(setting))
        }

    def search_units(self) -> list[Unit]:
        """Return attacks with every weight on one validation client per cell; none of these clients is reported."""
        seed = derive_seed(self.selection.seeds[0], "validation")
        trials = [trial for of_setting in self.trials().values() for trial in of_setting.values()]
        return [trial.unit(seed, 0, self.selection.data_folder, "search-") for trial in trials]

    def reported_units(self, weights: Weights) -> list[Unit]:
        """The clients of every cell, attacked with the chosen weight."""
        return [
            self.weighted(setting, weight).unit(seed, index, self.selection.data_folder)
            for setting, weight in weights.items()
            for seed, index in self.repeated(CLIENTS)
        ]

    def weights(self, folder: Path) -> Weights:
        """Return the weight of every setting by the finished part of the search; the usual one without any."""
        accuracy = {row["setting"]: row["cell_accuracy"] for row in finished_rows(self.search_units(), folder)}
        trials = self.trials()
        return {one: best_weight(trials.get(one, {}), accuracy, self.usual(one)) for one in self.settings()}

    def leave(self, rows: Rows, folder: Path) -> None:
        """Write a summary of the search, with the chosen weights."""
        self.chosen, trials = self.weights(folder), self.trials()
        tried = [of_setting.get(self.chosen[setting]) for setting, of_setting in trials.items()]
        chosen = {one.name for one in tried if one is not None}
        keys = ("dataset", "target", "attack", "local_epochs", "local_batches", "epoch_prior", "cell_accuracy", "seed")
        weights = ("restarts", "l2_prior", "batch_norm_prior")
        units = self.search_units()
        finished = finished_rows(units, folder)
        self.unfinished = len(units) - len(finished)
        record = [
            {key: row[key] for key in keys if key in row}
            | {key: row["options"].get(key) for key in weights}
            | {"chosen": row["setting"] in chosen}
            for row in finished
        ]
        write_json(folder / SEARCH_FILE, record, indent=1)

    def where(self, cell: PaperCell) -> Row:
        """The rows of the cell's setting with its weight."""
        setting = self.setting(cell)
        return {"setting": self.weighted(setting, self.chosen[setting]).name}

    def remarks(self, rows: Rows) -> Mapping[str, bool | Mapping[str, Any]]:
        """How clients and weights were chosen."""
        return {
            "clients": {"clients": self.selection.batches or CLIENTS},
            "all_rows": True,
            "bounds": True,
            "random_per_client": any(setting.attack == "random" for setting in self.chosen),
            **self.search_remarks("prior_search", ", ".join(map(str, PRIOR_WEIGHTS))),
        }

    def search_remarks(self, name: str, weights: str) -> Mapping[str, bool | Mapping[str, Any]]:
        """How weights were chosen, under the name of the note on it, and what of the search is missing."""
        restarts = self.selection.search_restarts or VALIDATION_RESTARTS
        search = {"weights": weights, "restarts": restarts, "file": SEARCH_FILE}
        left = {"unfinished": self.unfinished, "planned": len(self.search_units())}
        searched = any(map(self.candidates, self.chosen))
        return {name: search if searched else False, "prior_unfinished": left if self.unfinished else False}

    def notes(self, rows: Rows) -> list[str]:
        """Also the chosen weights, by attack."""
        searched = [setting for setting in self.chosen if self.candidates(setting)]
        chosen = [
            note("tableak", self.chosen_note, attack=attack, chosen=", ".join(map(self.chosen_words, settings)))
            for attack, settings in by_key(searched, lambda setting: setting.attack).items()
        ]
        return [*super().notes(rows), *chosen]

    def chosen_words(self, setting: Setting) -> str:
        """What was chosen for a setting."""
        return f"{setting.protocol.local_epochs}x{setting.protocol.local_batches}: {self.chosen[setting]:g}"


class GradInversionSearch(PriorSearch):
    """Attacks on gradients of several networks, GradInversion with the weights that the search chose for each."""

    chosen_note = "grid_chosen"

    def choose(self) -> list[PaperCell]:
        """The selected cells."""
        return UpdateAttacks.choose(self)

    def setting(self, cell: PaperCell) -> Setting:
        """See `gradient_setting_of`."""
        return gradient_setting_of(cell, self.selection.as_published)

    def candidates(self, setting: Setting) -> Sequence[Weight]:
        """See `PriorSearch.candidates`."""
        if setting.attack != "gradinversion":
            return ()
        return list(product(GRID, repeat=2 if setting.network in WITH_STATISTICS else 1))

    def usual(self, setting: Setting) -> Weight | None:
        """See `PriorSearch.usual`."""
        return None

    def weighted(self, setting: Setting, weight: Any) -> Setting:
        """See `PriorSearch.weighted`."""
        return setting.with_options(**dict(zip(("l2_prior", "batch_norm_prior"), weight or (), strict=False)))

    def remarks(self, rows: Rows) -> Mapping[str, bool | Mapping[str, Any]]:
        """See `UpdateAttacks.remarks`."""
        is_random = any(cell.attack == "random" for cell in self.cells)
        search = self.search_remarks("grid_search", ", ".join(f"{weight:g}" for weight in GRID))
        return {"network": True, "statistics": True, "random": is_random, **search}

    def chosen_words(self, setting: Setting) -> str:
        """See `PriorSearch.chosen_words`."""
        found = self.chosen[setting]
        said = "the usual ones" if found is None else " and ".join(f"{weight:g}" for weight in found)
        return f"{setting.network}: {said}"


def local_setting_of(cell: PaperCell, as_published: bool = False) -> Setting:
    """The experiment whose result a cell prints, without the weight of its prior; see `Setting.of`.

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
    return Setting.of(cell, {}, as_published, labels="true", protocol=protocol)


def best_weight(trials: Mapping[Any, Setting], accuracy: Mapping[str, float], usual: Any = 0.0) -> Any:
    """Return the weight of the most accurate trial, the first of equal ones; the usual one where none has finished.

    Args:
        trials: by weight.
        accuracy: of the finished trials, by name.
        usual: see `PriorSearch.usual`.
    """
    found = {weight: accuracy[trial.name] for weight, trial in trials.items() if trial.name in accuracy}
    return max(found, key=lambda weight: found[weight], default=usual)


def _with_restarts(setting: Setting, most: int) -> Setting:
    restarts = setting.options.get("restarts")
    return setting if restarts is None else setting.with_options(restarts=min(restarts, most))
