"""One of the FedAvg paper's tables with what of it is run: cells, settings, clients."""

from dataclasses import dataclass, replace

import torch

from lightleak.attacks import ATTACKS
from lightleak.core.errors import UsageError
from lightleak.metrics.summary import Summary
from lightleak.reproductions.comparison import Compared
from lightleak.reproductions.fedavg_study.clients import ImageClients
from lightleak.reproductions.fedavg_study.preset import PUBLISHED_STEPS, FedAvgPreset, local_settings, preset_of
from lightleak.reproductions.fedavg_study.setting import AttackSetting, ClientSetting, clients_of, setting_of
from lightleak.reproductions.paper.values import PaperCell, PaperTable
from lightleak.reproductions.settings import Selection

UPDATES = 5
"""Updates behind every cell, unless ``--batches`` says otherwise; the paper has 100."""

LONG_STEPS = 500
"""Local steps from which a cell is run on a GPU, or where it is asked for."""


@dataclass(frozen=True)
class Study:
    """What of a table is run.

    Attributes:
        table: the paper's.
        preset: settings of the dataset.
        clients: who holds images, by root seed.
        cells: what is run.
        left_out: what is not, as it takes too long here.
        updates: updates behind every cell and seed.
        each_image: clients defend the gradient of every image.
    """

    table: PaperTable
    preset: FedAvgPreset
    clients: tuple[ImageClients, ...]
    cells: tuple[PaperCell, ...]
    left_out: tuple[PaperCell, ...] = ()
    updates: int = UPDATES
    each_image: bool = False

    def setting(self, cell: PaperCell) -> AttackSetting:
        """The experiment behind a cell with an attack."""
        return setting_of(cell, self.preset, self.each_image)

    def client_setting(self, cell: PaperCell) -> ClientSetting:
        """The clients behind a cell."""
        return clients_of(cell, self.each_image)

    @property
    def attack_settings(self) -> tuple[AttackSetting, ...]:
        """Each experiment once, in the order of the table."""
        return tuple(dict.fromkeys(self.setting(cell) for cell in self.cells if cell.attack is not None))


def beside(cell: PaperCell, preset: FedAvgPreset, ours: Summary) -> Compared:
    """A cell beside ours, which on a stand-in, or in another machine's hours, are not judged."""
    name = f"{preset.dataset} (stand-in)" if preset.is_stand_in else None
    return Compared(cell, ours, same_data=name is None and cell.unit != "hours", stand_in=name)


def chosen_preset(selection: Selection) -> FedAvgPreset:
    """The preset of a selection, with as many steps as it asks for.

    Raises:
        UsageError: an unknown dataset.
    """
    return preset_of(selection.dataset, selection.iterations or (PUBLISHED_STEPS if selection.as_published else None))


def prepare(table: PaperTable, selection: Selection, device: torch.device, simulates: bool = True) -> Study:
    """What of a table a selection runs on a device; nothing is run yet.

    Args:
        table: the paper's.
        selection: what of it is asked for.
        device: where it runs.
        simulates: local training is simulated in every step of an attack, which many steps make long.

    Raises:
        UsageError: nothing is selected, an unknown name, or more updates than there are clients.
        DataError: files of the dataset are missing.
    """
    preset = chosen_preset(selection)
    narrowed = replace(selection, dataset=preset.stands_for, settings=None)
    cells = [cell for cell in table.cells if narrowed.keeps(cell)]
    if not cells:
        chosen = replace(selection, dataset=preset.dataset).chosen()
        raise UsageError(f"nothing of {table.name} is left to run with {chosen}")
    named = local_settings(selection.settings or ())
    if unknown := [setting for setting in named if setting not in {_local(cell) for cell in cells}]:
        known = ", ".join(f"{epochs}x{size}" for epochs, size in dict.fromkeys(_local(cell) for cell in cells))
        raise UsageError(f"--settings must be among {known}, got {unknown[0][0]}x{unknown[0][1]}")
    if named:
        cells = [cell for cell in cells if _local(cell) in named]
    waits = simulates and not named and device.type == "cpu"
    long = [cell for cell in cells if waits and _steps(cell, preset) >= LONG_STEPS]
    study = Study(
        table,
        preset,
        tuple(ImageClients(preset, seed, selection.data_folder) for seed in selection.seeds),
        tuple(cell for cell in cells if cell not in long),
        tuple(long),
        selection.batches or UPDATES,
        selection.as_published,
    )
    _check(study)
    return study


def _check(study: Study) -> None:
    for setting in study.attack_settings:
        ATTACKS.get(setting.attack)(**setting.options(study.preset))
    for cell in study.cells:
        study.client_setting(cell).make_defense()
    together = max((cell.n_clients or 1 for cell in study.cells), default=1)
    for clients in study.clients:
        if study.updates * together > clients.size:
            raise UsageError(
                f"--batches must be at most {clients.size // together}: {study.preset.dataset} has {clients.size} "
                f"clients of {study.preset.rows} images, and {together} of them stand behind an update; got "
                f"{study.updates}"
            )


def _local(cell: PaperCell) -> tuple[int, int]:
    return cell.local_epochs or 0, cell.local_batch_size or 0


def _steps(cell: PaperCell, preset: FedAvgPreset) -> int:
    return clients_of(cell).steps(preset.rows)
