"""The FedAvg paper's figures: a client's images above what attacks reconstruct of them (Fig. 2 to 11)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.fedavg.simulate.attack import FedAvgInversion
from lightleak.attacks.gradient_inversion.fedavg.simulate.problem import schedule_of
from lightleak.attacks.gradient_inversion.optimize.pooling import align_rows
from lightleak.attacks.gradient_inversion.optimize.shell import Posed
from lightleak.attacks.gradient_inversion.tables.codec import RowCodec
from lightleak.core.errors import UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import derive_seed
from lightleak.experiments.unit import write_whole
from lightleak.reproductions.fedavg.clients import ImageClients
from lightleak.reproductions.fedavg.job import attack_row, unit_id
from lightleak.reproductions.fedavg.pictures import kept_pictures, order_of, pictures_file, write_figure
from lightleak.reproductions.fedavg.setting import AttackSetting, setting_of
from lightleak.reproductions.fedavg.tables import ImageStudy, attack_facts, stand_in_notes
from lightleak.reproductions.paper.values import PaperCell
from lightleak.reproductions.reproduction import CPU, Place, Row, Rows, Work
from lightleak.reproductions.settings import selected

TITLES = {
    "fedavg_prior": "Ours (prior)",
    "fedavg_no_prior": "Ours (no prior)",
    "fedavg_shared": "Shared",
    "fedavg_epoch": "FedSGD-Epoch",
    "fedavg_fedsgd": "FedSGD",
}
"""Attacks as the paper calls them."""


class PictureGrid(ImageStudy):
    """Fig. 2 to 11 for the first client: ``figure.html`` in the run folder.

    Options of a figure: ``by_epoch``, what the full method finds in every local epoch instead of what each method finds
    in the end; ``shown``, the number of images, by default all of the client's.
    """

    def choose_cells(self) -> list[PaperCell]:
        """Cells of the chosen images; a stand-in is compared with the first dataset."""
        datasets, dataset = list(dict.fromkeys(cell.dataset for cell in self.table.drawn)), self.preset.dataset
        if not self.preset.is_stand_in and dataset not in datasets:
            raise UsageError(f"{self.table.name} shows {' and '.join(map(str, datasets))}, got --dataset {dataset}")
        shown = dataset if dataset in datasets else datasets[0]
        asked = replace(self.selection, batch_sizes=None)
        cells = selected(self.table, self.table.drawn, replace(asked, dataset=shown), asked)
        return [replace(cell, batch_size=self.preset.rows) for cell in cells]

    def packs(self, folder: Path, device: torch.device) -> Sequence[Work]:
        """One attack per method, on the first client of the first seed."""
        clients = ImageClients(self.preset, self.selection.seeds[0], self.selection.data_folder)
        by_epoch = bool(self.table.options.get("by_epoch"))
        return [picture_work(clients, setting_of(cell, self.preset), by_epoch) for cell in self.cells]

    def where(self, cell: PaperCell) -> Row:
        """The row of the method."""
        return {"attack": cell.attack}

    def column(self, cell: PaperCell) -> str:
        """See `Reproduction.column`."""
        return "psnr"

    def remarks(self, rows: Rows) -> Mapping[str, bool | Mapping[str, Any]]:
        """Where the pictures are."""
        return {"figure": True, "attack": attack_facts(self.preset)}

    def leave(self, rows: Rows, folder: Path) -> None:
        """Write the page of pictures."""
        units = [row["unit"] for row in rows]
        write_figure(folder, self.table.title, stand_in_notes(self.preset), units, self.table.options.get("shown"))


def picture_work(clients: ImageClients, setting: AttackSetting, by_epoch: bool = False) -> Work:
    """Return the work of one attack on the first client, with its pictures."""
    name = f"{setting.name}_by-epoch" if by_epoch else setting.name
    compute = partial(attack_with_pictures, clients, setting, name, by_epoch)
    return Work([unit_id(clients, name, 0)], compute, float(clients.preset.steps))


def attack_with_pictures(
    clients: ImageClients, setting: AttackSetting, name: str, by_epoch: bool, at: Place
) -> list[Row]:
    """Attack, score, and keep the pictures in the order of the client's images."""
    update, truth = clients.observe(setting.clients, 0)
    attack = setting.make_attack(clients.preset)
    assert isinstance(attack, FedAvgInversion)  # the five attacks of the paper
    if by_epoch:
        attack = EpochInversion(attack.name, attack.citation, attack.config)
    seed = derive_seed(clients.seed, "attack", 0)
    [found] = attack.run_many([update], [seed], at.device, lambda done: at.report(done * clients.preset.steps))
    rows, decode = found.encoded.unsqueeze(0), clients.dataset.scale.decode
    if by_epoch:
        n = len(truth.labels)
        rows = epochs_of(attack.codec(update, CPU), found, n)
        found = replace(found, encoded=rows.mean(0), labels=found.labels[:n])
    true, mean = decode(truth.inputs), decode(found.encoded.float())
    order = order_of(true, mean)
    shown = {TITLES[setting.attack]: mean}
    if by_epoch:
        epochs = {f"epoch {number}": decode(images.float()) for number, images in enumerate(rows, 1)}
        shown = epochs | {"mean over the epochs": mean}
    kept = [kept_pictures("the client's images", true)]
    kept += [kept_pictures(caption, images[order], true) for caption, images in shown.items()]
    write_whole(pictures_file(at.folder, unit_id(clients, name, 0)), json.dumps(kept))
    return [attack_row(clients, setting, name, 0, (update, truth), found)]


class EpochInversion(FedAvgInversion):
    """`FedAvgInversion` of one client that returns the rows of every local epoch, one epoch after the other."""

    def pose(
        self, pairs: Sequence[tuple[ClientUpdate, int]], codec: RowCodec, device: torch.device, dtype: torch.dtype
    ) -> Posed:
        """Pose the same problem with its variables as rows."""
        posed = super().pose(pairs, codec, device, dtype)
        copies = schedule_of(pairs[0][0], self.config).copies
        return replace(posed, labels=posed.labels.repeat(1, copies), rows=_unchanged, variables_of=_unchanged)


def epochs_of(codec: RowCodec, found: Reconstruction, n_rows: int) -> Tensor:
    """Return the epochs that an `EpochInversion` found, ``[epochs, n, d]``; their mean is that of `FedAvgInversion`.

    Args:
        codec: of the update.
        found: with the rows of all epochs.
        n_rows: rows of an epoch.
    """
    epochs = found.encoded.unflatten(0, (-1, n_rows))
    return align_rows(codec.similarity, epochs[:1], epochs)


def _unchanged(rows: Tensor) -> Tensor:
    return rows
