"""The FedAvg paper's tables of attacks, restored labels and trainings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from lightleak.core.errors import UsageError
from lightleak.reproductions.fedavg.clients import ImageClients, rehearse, trained, training_work
from lightleak.reproductions.fedavg.job import attack_work, label_work
from lightleak.reproductions.fedavg.setting import PUBLISHED_STEPS, AttackSetting, ClientSetting, FedAvgPreset
from lightleak.reproductions.paper.values import PaperCell, note
from lightleak.reproductions.reproduction import FactTable, Reproduction, Row, Rows, Stage, Work
from lightleak.reproductions.settings import check_settings, selected, setting_name
from lightleak.targets.spec import build_network

UPDATES = 5
"""Updates behind every cell, unless ``--batches`` says otherwise; the paper has 100."""

LONG_STEPS = 500
"""Local steps from which a cell is run on a GPU, or where it is asked for."""

PAPER_CLIENTS = 100
"""Clients behind the hours of Table 11."""


class ImageStudy(Reproduction):
    """A table or figure on images, which may be stand-ins for the paper's."""

    noun = "attacks on images"

    @cached_property
    def preset(self) -> FedAvgPreset:
        """Settings of the dataset, with as many steps as are asked for.

        Raises:
            UsageError: an unknown dataset.
        """
        steps = self.selection.iterations or (PUBLISHED_STEPS if self.selection.as_published else None)
        return FedAvgPreset.of(self.selection.dataset, steps)

    @cached_property
    def presets(self) -> list[FedAvgPreset]:
        """Settings of all datasets."""
        return [self.preset]

    def preset_for(self, cell: PaperCell) -> FedAvgPreset:
        """Settings of the dataset that a cell is measured on."""
        return self.preset

    def stand_in(self, cell: PaperCell) -> str | None:
        """See `Reproduction.stand_in`."""
        return self.preset_for(cell).stand_in

    def is_comparable(self, cell: PaperCell) -> bool:
        """Stand-ins, and hours of another machine, are not judged."""
        return self.stand_in(cell) is None and cell.unit != "hours"

    def notes(self, rows: Rows) -> list[str]:
        """See `Reproduction.notes`; the note on the images comes first."""
        return [*(text for preset in self.presets for text in preset.stand_in_notes), *super().notes(rows)]


class ImageTable(ImageStudy):
    """A table about the updates of a few clients.

    Attributes:
        run: the cells that are run.
        left_out: cells that are not, as they take too long here.
        updates: updates behind every cell and seed.
        clients: who holds images, by root seed.
    """

    columns: ClassVar[Mapping[str, str]] = {"reconstructed_rate": "reconstructed_share", "hours": "seconds"}
    simulates: ClassVar[bool] = True
    """Local training is simulated in every step of an attack, which many steps make long."""

    def choose(self) -> list[PaperCell]:
        """All selected cells; `run` are those that do not take too long on this device."""
        asked = self.selection
        narrowed = replace(asked, dataset=self.preset.stands_for)
        of_dataset = [cell for cell in self.table.cells if cell.dataset == narrowed.dataset]
        check_settings(of_dataset, narrowed)
        cells = selected(self.table, of_dataset, narrowed, replace(asked, dataset=self.preset.dataset))
        waits = self.simulates and not asked.settings and self.device.type == "cpu"
        self.left_out = [c for c in cells if waits and ClientSetting.of(c).steps(self.preset.rows) >= LONG_STEPS]
        self.run = [cell for cell in cells if cell not in self.left_out]
        return cells

    def prepare(self) -> None:
        """Refuse wrong settings, and more updates than there are clients."""
        self.updates = self.selection.batches or UPDATES
        self.clients = [ImageClients(self.preset, seed, self.selection.data_folder) for seed in self.selection.seeds]
        for setting in self.attack_settings():
            setting.make_attack(self.preset)
        for cell in self.run:
            self.client_setting(cell).make_defense()
        together = max((cell.n_clients or 1 for cell in self.run), default=1)
        self.most = min(PAPER_CLIENTS, *(clients.size // together for clients in self.clients))
        for clients in self.clients:
            if self.updates * together > clients.size:
                raise UsageError(
                    f"--batches must be at most {clients.size // together}: {self.preset.dataset} has {clients.size} "
                    f"clients of {self.preset.rows} images, and an update is of {together} of them; got "
                    f"{self.updates}"
                )

    def setting(self, cell: PaperCell) -> AttackSetting:
        """The experiment behind a cell with an attack."""
        return AttackSetting.of(cell, self.preset, self.selection.as_published)

    def client_setting(self, cell: PaperCell) -> ClientSetting:
        """The clients behind a cell."""
        return ClientSetting.of(cell, self.selection.as_published)

    def attack_settings(self) -> list[AttackSetting]:
        """Each experiment once, in the order of the table."""
        return list(dict.fromkeys(self.setting(cell) for cell in self.run if cell.attack is not None))

    def rounds(self) -> list[int]:
        """Rounds that are attacked, counted from 1."""
        return sorted({s.clients.round for s in self.attack_settings() if s.clients.round is not None})

    def stages(self) -> Sequence[Stage]:
        """Trainings as far as the last round that is attacked, then the attacks."""
        rounds = self.rounds()
        if not rounds:
            return super().stages()
        weights = partial(rehearse, self.attacked_trainings(), rounds)
        return [Stage(self.trainings, "trainings", reported=False), Stage(self.packs, self.noun, rehearse=weights)]

    def attacked_trainings(self) -> list[tuple[ImageClients, ClientSetting]]:
        """Every training of which a round is attacked."""
        attacked = [s.clients for s in self.attack_settings() if s.clients.round is not None]
        return [(own, setting) for setting in dict.fromkeys(map(trained, attacked)) for own in self.clients]

    def trainings(self, folder: Path, device: torch.device) -> list[Work]:
        """Trainings that keep the weights before each round that is attacked."""
        rounds = self.rounds()
        return [training_work(*one, rounds[-1] - 1, rounds) for one in self.attacked_trainings()]

    def packs(self, folder: Path, device: torch.device) -> Sequence[Work]:
        """Every attack on every update."""
        return [
            work
            for setting in self.attack_settings()
            for own in self.clients
            for work in attack_work(own, setting, self.updates, device)
        ]

    def where(self, cell: PaperCell) -> Row | None:
        """The rows of the cell's setting; nothing for a cell that is not run here."""
        return None if cell in self.left_out else {"setting": self.rows_setting(cell)}

    def rows_setting(self, cell: PaperCell) -> str:
        """Name of the setting behind a cell."""
        return self.setting(cell).name

    def values(self, cell: PaperCell, rows: Rows) -> list[float]:
        """See `Reproduction.values`; hours are those of `PAPER_CLIENTS`."""
        hours = PAPER_CLIENTS / 3600 if cell.unit == "hours" else 1.0
        return [hours * value for value in super().values(cell, rows)]

    def remarks(self, rows: Rows) -> Mapping[str, bool | Mapping[str, Any]]:
        """What a reader of the comparison must know, the most important first."""
        is_attacked = bool(self.attack_settings())
        names = ",".join(dict.fromkeys(str(setting_name(cell)) for cell in self.left_out))
        other = ", ".join(sorted({str(cell.dataset) for cell in self.table.cells} - {self.preset.stands_for}))
        return {
            "own_network": self.table.name != "fedavg-table7",
            "updates": {"updates": self.updates, "rows": self.preset.rows},
            "same_updates": is_attacked,
            "attack": self.preset.attack_facts if is_attacked else False,
            "left_out": {"names": names, "steps": LONG_STEPS} if names else False,
            "other_datasets": {"names": other} if other else False,
        }


class DefendedImages(ImageTable):
    """Table 6: attacks on defended updates, and what each defense costs in accuracy."""

    def stages(self) -> Sequence[Stage]:
        """Trainings of defended clients, then the attacks."""
        return [Stage(self.trainings, "trainings"), Stage(self.packs, self.noun)]

    def trainings(self, folder: Path, device: torch.device) -> list[Work]:
        """One training per defense and seed."""
        settings = dict.fromkeys(self.client_setting(cell) for cell in self.run if cell.attack is None)
        return [training_work(own, setting, self.preset.rounds) for setting in settings for own in self.clients]

    def rows_setting(self, cell: PaperCell) -> str:
        """See `ImageTable.rows_setting`."""
        if cell.attack is not None:
            return super().rows_setting(cell)
        return f"training_{trained(self.client_setting(cell)).name}"

    def remarks(self, rows: Rows) -> Mapping[str, bool | Mapping[str, Any]]:
        """Also where defenses act."""
        where = note("fedavg", "defense_on_images" if self.selection.as_published else "defense_on_steps")
        preset = self.preset
        acts = {"where": where, "rounds": preset.rounds, "clients": preset.clients_per_round}
        return {**super().remarks(rows), "defense": acts}


class ImageLabels(ImageTable):
    """Table 2: labels of a client that are restored wrongly, by three methods."""

    noun = "clients"
    simulates = False

    def packs(self, folder: Path, device: torch.device) -> Sequence[Work]:
        """Every update of every setting."""
        settings = dict.fromkeys(map(self.client_setting, self.run))
        return [label_work(own, s, index) for s in settings for own in self.clients for index in range(self.updates)]

    def rows_setting(self, cell: PaperCell) -> str:
        """See `ImageTable.rows_setting`."""
        return f"{cell.variant}_{self.client_setting(cell).name}"


class NetworkFacts(ImageStudy, FactTable):
    """Sizes of every layer of the paper's two networks, or of a stand-in's network; as printed or as coded."""

    def choose(self) -> list[PaperCell]:
        """Cells of the chosen networks, one network after the other."""
        dataset = self.selection.dataset
        self.presets = [FedAvgPreset.of(name) for name in (("femnist", "cifar100") if dataset is None else (dataset,))]
        return [cell for preset in self.presets for cell in self.table.cells if cell.dataset == preset.stands_for]

    def fact(self, cell: PaperCell, rows: Rows) -> float:
        """See `FactTable.fact`."""
        layers = layers_of(self.preset_for(cell), 3 if self.selection.as_published else 1)
        return float(layers[str(cell.column)][cell.metric])

    def where(self, cell: PaperCell) -> Row:
        """See `FactTable.where`."""
        return super().where(cell) | {"dataset": self.preset_for(cell).dataset}

    def remarks(self, rows: Rows) -> Mapping[str, bool | Mapping[str, Any]]:
        """Which network it is."""
        is_published = self.selection.as_published
        return {"network": {"which": "the published code's, which is attacked" if is_published else "the printed one"}}

    def preset_for(self, cell: PaperCell) -> FedAvgPreset:
        """See `ImageStudy.preset_for`."""
        return next(preset for preset in self.presets if preset.stands_for == cell.dataset)


@cache
def layers_of(preset: FedAvgPreset, second_kernel: int) -> dict[str, Mapping[str, int]]:
    """Return the sizes of a network by layer, as Table 5 names them.

    Args:
        preset: settings of the dataset.
        second_kernel: side of the second convolution's kernel.

    >>> layers_of(FedAvgPreset.of("femnist"), second_kernel=1)["linear1"]
    {'in_features': 4096, 'out_features': 100}
    """
    found: dict[str, Mapping[str, int]] = {}
    spec = replace(preset.spec, options={**preset.spec.options, "second_kernel": second_kernel})
    for module in build_network(spec, seed=0).modules():
        if type(module) in LAYERS:
            kind, sizes = LAYERS[type(module)]
            number = sum(name.startswith(kind) for name in found) + 1
            found[f"{kind}{number}"] = {name: _one(getattr(module, name)) for name in sizes}
    return found


LAYERS: Mapping[type[nn.Module], tuple[str, tuple[str, ...]]] = {
    nn.Conv2d: ("conv", ("in_channels", "out_channels", "kernel_size", "stride", "padding")),
    nn.AvgPool2d: ("pool", ("kernel_size", "stride")),
    nn.Linear: ("linear", ("in_features", "out_features")),
}
"""Layers as Table 5 names them, with the sizes that it prints."""


def _one(size: Any) -> int:
    return int(size if isinstance(size, int) else size[0])
