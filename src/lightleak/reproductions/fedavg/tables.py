"""The FedAvg paper's tables that attacks, restored labels and trainings stand behind."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from lightleak.core.errors import UsageError
from lightleak.reproductions.comparison import Compared
from lightleak.reproductions.fedavg.clients import ImageClients
from lightleak.reproductions.fedavg.federation import trained, training_work
from lightleak.reproductions.fedavg.job import attack_work, label_work
from lightleak.reproductions.fedavg.notes import attack_note, defense_note, stand_in
from lightleak.reproductions.fedavg.preset import PUBLISHED_STEPS, FedAvgPreset, local_settings, preset_of
from lightleak.reproductions.fedavg.setting import AttackSetting, ClientSetting, clients_of, setting_of
from lightleak.reproductions.paper.values import PaperCell
from lightleak.reproductions.reproduction import Reproduction, Rows, Stage, Work
from lightleak.reproductions.settings import Selection

UPDATES = 5
"""Updates behind every cell, unless ``--batches`` says otherwise; the paper has 100."""

LONG_STEPS = 500
"""Local steps from which a cell is run on a GPU, or where it is asked for."""

PAPER_CLIENTS = 100
"""Clients behind the hours of Table 11."""

ROW_METRICS = {
    "psnr": ("psnr", 1.0),
    "reconstructed_rate": ("reconstructed_share", 100.0),
    "hours": ("seconds", PAPER_CLIENTS / 3600),
}
"""Column of results.json behind each metric, and what it is multiplied by."""


def chosen_preset(selection: Selection) -> FedAvgPreset:
    """The preset of a selection, with as many steps as it asks for.

    Raises:
        UsageError: an unknown dataset.
    """
    return preset_of(selection.dataset, selection.iterations or (PUBLISHED_STEPS if selection.as_published else None))


class ImageStudy(Reproduction):
    """A table or figure on images, which may be a stand-in for the paper's."""

    def choose(self) -> list[PaperCell]:
        """See `Reproduction.choose`."""
        self.preset = chosen_preset(self.selection)
        return self.choose_cells()

    def choose_cells(self) -> list[PaperCell]:
        """The cells that the preset stands beside."""
        raise NotImplementedError

    def compare(self, rows: Rows) -> list[Compared]:
        """Cells beside ours, which on a stand-in, or in another machine's hours, are not judged."""
        name = self.preset.stand_in
        return [
            replace(one, same_data=name is None and one.cell.unit != "hours", stand_in=name)
            for one in super().compare(rows)
        ]


class ImageTable(ImageStudy):
    """A table about the updates of a few clients.

    Attributes:
        preset: settings of the dataset.
        run: the cells that are run.
        left_out: cells that are not, as they take too long here.
        updates: updates behind every cell and seed.
        clients: who holds images, by root seed.
    """

    simulates = True
    """Local training is simulated in every step of an attack, which many steps make long."""

    def choose_cells(self) -> list[PaperCell]:
        """All selected cells; `run` are those that do not take too long on this device."""
        narrowed = replace(self.selection, dataset=self.preset.stands_for, settings=None)
        cells = [cell for cell in self.table.cells if narrowed.keeps(cell)]
        if not cells:
            chosen = replace(self.selection, dataset=self.preset.dataset).chosen()
            raise UsageError(f"nothing of {self.table.name} is left to run with {chosen}")
        named = local_settings(self.selection.settings or ())
        known = dict.fromkeys(map(_local, cells))
        if unknown := [setting for setting in named if setting not in known]:
            listed = ", ".join(f"{epochs}x{size}" for epochs, size in known)
            raise UsageError(f"--settings must be among {listed}, got {unknown[0][0]}x{unknown[0][1]}")
        cells = [cell for cell in cells if not named or _local(cell) in named]
        waits = self.simulates and not named and self.device.type == "cpu"
        self.left_out = [c for c in cells if waits and clients_of(c).steps(self.preset.rows) >= LONG_STEPS]
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
        for clients in self.clients:
            if self.updates * together > clients.size:
                raise UsageError(
                    f"--batches must be at most {clients.size // together}: {self.preset.dataset} has {clients.size} "
                    f"clients of {self.preset.rows} images, and {together} of them stand behind an update; got "
                    f"{self.updates}"
                )

    def setting(self, cell: PaperCell) -> AttackSetting:
        """The experiment behind a cell with an attack."""
        return setting_of(cell, self.preset, self.selection.as_published)

    def client_setting(self, cell: PaperCell) -> ClientSetting:
        """The clients behind a cell."""
        return clients_of(cell, self.selection.as_published)

    def attack_settings(self) -> list[AttackSetting]:
        """Each experiment once, in the order of the table."""
        return list(dict.fromkeys(self.setting(cell) for cell in self.run if cell.attack is not None))

    def rounds(self) -> list[int]:
        """Rounds that are attacked, counted from 1."""
        return sorted({s.clients.round for s in self.attack_settings() if s.clients.round is not None})

    def stages(self) -> Sequence[Stage]:
        """Trainings as far as the last round that is attacked, then the attacks."""
        trainings = [Stage(self.trainings, "trainings", reported=False)] if self.rounds() else []
        return [*trainings, Stage(self.attacks, "attacks on images")]

    def trainings(self, folder: Path, device: torch.device) -> list[Work]:
        """Trainings that keep the weights before each round that is attacked."""
        rounds = self.rounds()
        attacked = [s.clients for s in self.attack_settings() if s.clients.round is not None]
        settings = dict.fromkeys(map(trained, attacked))
        return [training_work(own, setting, rounds[-1] - 1, rounds) for setting in settings for own in self.clients]

    def attacks(self, folder: Path, device: torch.device) -> list[Work]:
        """Every attack on every update."""
        return [
            work
            for setting in self.attack_settings()
            for own in self.clients
            for work in attack_work(own, setting, self.updates, device)
        ]

    def values(self, cell: PaperCell, rows: Rows) -> list[float]:
        """A column of the rows of the cell's setting; nothing for a cell that is not run here."""
        if cell in self.left_out:
            return []
        column, scale, name = self.column_of(cell)
        return [scale * row[column] for row in rows if row["setting"] == name]

    def column_of(self, cell: PaperCell) -> tuple[str, float, str]:
        """The column of a cell's metric, what it is multiplied by, and the setting of its rows."""
        return *ROW_METRICS[cell.metric], self.setting(cell).name

    def notes(self, rows: Rows) -> list[str]:
        """What a reader of the comparison must know, the most important first."""
        preset = self.preset
        found = [stand_in(preset)] if preset.is_stand_in else []
        network = "" if self.table.name == "fedavg-table7" else "Each update has an untrained network of its own. "
        found.append(
            f"{network}Ours are {self.updates} updates a cell and seed (the paper: 100), with {preset.rows} images of "
            "each client; n counts them, and the interval is over them."
        )
        if self.attack_settings():
            found.append("All attacks see the same updates and begin with the same split of the labels.")
            found.append(attack_note(preset))
        found += [*self.told(), *super().notes(rows)]
        if self.left_out:
            names = list(dict.fromkeys(f"{cell.local_epochs}x{cell.local_batch_size}" for cell in self.left_out))
            found.append(
                f"Not run here: {', '.join(names)} (epochs x batch size), whose clients make {LONG_STEPS} steps; it is "
                f"run on a GPU, or where --settings {','.join(names)} asks for it."
            )
        if other := {str(cell.dataset) for cell in self.table.cells} - {preset.stands_for}:
            found.append(f"Cells of {', '.join(sorted(other))} are run with --dataset, from a folder of its files.")
        return found

    def told(self) -> list[str]:
        """What is said of this table alone."""
        return []


class DefendedImages(ImageTable):
    """Table 6: attacks on defended updates, and what each defense costs in accuracy."""

    def stages(self) -> Sequence[Stage]:
        """Trainings of defended clients, then the attacks."""
        return [Stage(self.trainings, "trainings"), Stage(self.attacks, "attacks on images")]

    def trainings(self, folder: Path, device: torch.device) -> list[Work]:
        """One training per defense and seed."""
        settings = dict.fromkeys(self.client_setting(cell) for cell in self.run if cell.attack is None)
        return [training_work(own, setting, self.preset.rounds) for setting in settings for own in self.clients]

    def column_of(self, cell: PaperCell) -> tuple[str, float, str]:
        """See `ImageTable.column_of`."""
        if cell.attack is not None:
            return super().column_of(cell)
        return "test_accuracy", 100.0, f"training_{trained(self.client_setting(cell)).name}"

    def told(self) -> list[str]:
        """Where defenses act."""
        return [defense_note(self.preset, self.selection.as_published)]


class ImageLabels(ImageTable):
    """Table 2: labels of a client that are restored wrongly, by three methods."""

    simulates = False

    def stages(self) -> Sequence[Stage]:
        """The clients."""
        return [Stage(self.restorations, "clients")]

    def restorations(self, folder: Path, device: torch.device) -> list[Work]:
        """Every update of every setting."""
        settings = dict.fromkeys(map(self.client_setting, self.run))
        return [label_work(own, s, index) for s in settings for own in self.clients for index in range(self.updates)]

    def column_of(self, cell: PaperCell) -> tuple[str, float, str]:
        """See `ImageTable.column_of`."""
        return "label_errors", 1.0, f"{cell.variant}_{self.client_setting(cell).name}"


def _local(cell: PaperCell) -> tuple[int, int]:
    return cell.local_epochs or 0, cell.local_batch_size or 0
