"""The FedAvg paper's figures: a client's images above what attacks reconstruct of them (Fig. 2 to 11)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.fedavg.simulate.attack import FedAvgInversion
from lightleak.attacks.gradient_inversion.fedavg.simulate.problem import schedule_of
from lightleak.attacks.gradient_inversion.optimize.pooling import align_rows
from lightleak.attacks.gradient_inversion.optimize.shell import Posed
from lightleak.attacks.gradient_inversion.tables.codec import RowCodec
from lightleak.core.errors import UsageError
from lightleak.core.image_similarity import matched_psnr, psnr
from lightleak.core.matching import match_rows
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import CPU, derive_seed
from lightleak.core.stored import read_json, write_json, write_whole
from lightleak.report.blocks import Block, Page, Section
from lightleak.report.page import fill, render
from lightleak.report.sections.pictures import PictureRow, picture_row
from lightleak.reproductions.fedavg.clients import ImageClients
from lightleak.reproductions.fedavg.job import attack_row, unit_id
from lightleak.reproductions.fedavg.setting import AttackSetting
from lightleak.reproductions.fedavg.tables import ImageStudy
from lightleak.reproductions.paper.values import PaperCell, paper_settings
from lightleak.reproductions.reproduction import Place, Rows, Work
from lightleak.reproductions.settings import selected

FILE_NAME = "figure.html"
PER_LINE = 10


def kept_pictures(name: str, images: Tensor, true: Tensor | None = None) -> dict[str, Any]:
    """Images in [0, 1] ``[n, c, h, w]`` as a unit keeps them, with their mean PSNR where the true ones are given."""
    if true is not None:
        name += f", mean PSNR {float(matched_psnr(images.flatten(1), true.flatten(1)).mean()):.1f} dB"
    return picture_row(name, to_bytes(images.cpu()).numpy(), private=True)


def pictures_file(folder: Path, unit: str) -> Path:
    """Where the pictures of a unit are kept."""
    return folder / "pictures" / f"{unit}.json"


def write_figure(folder: Path, title: str, notes: Sequence[str], units: Sequence[str], shown: int | None) -> None:
    """Write the page of the pictures that units have kept.

    Args:
        folder: the run folder.
        title: heading of the page.
        notes: paragraphs above the pictures.
        units: each has kept the client's images and then what an attack made of them.
        shown: number of images that are shown; None: all of them.
    """
    kept = [read_json(pictures_file(folder, unit)) for unit in units]
    rows = [row for i, of_unit in enumerate(kept) for row in (of_unit if i == 0 else of_unit[1:])]
    blocks = [_block(row["name"], row["png"][:shown]) for row in rows]
    section = Section("pictures", "Pictures", (*notes, *blocks))
    page = render(Page(title, "images", [section], private="It shows a client's images.", genre="reproduction"))
    write_whole(folder / FILE_NAME, page)


def _block(title: str, images: Sequence[str]) -> Block:
    starts = range(0, len(images), PER_LINE)
    rows = [PictureRow(f"from {start + 1}", True, tuple(images[start : start + PER_LINE])) for start in starts]
    return fill("sections", "picture_table", title, rows)


def to_bytes(images: Tensor) -> Tensor:
    """Images in [0, 1] as uint8; what lies outside is clipped.

    >>> to_bytes(torch.tensor([-1.0, 0.5, 1.0]))
    tensor([  0, 128, 255], dtype=torch.uint8)
    """
    return (images.clamp(0, 1) * 255).round().to(torch.uint8)


def order_of(true: Tensor, made: Tensor) -> Tensor:
    """For each true image the one of ``made`` it is paired with, by total PSNR; both ``[n, c, h, w]`` in [0, 1]."""
    return match_rows(psnr(true.flatten(1), made.flatten(1)))


TITLES: dict[str, str] = paper_settings("fedavg")["titles"]
"""Attacks as the paper calls them."""


class PictureGrid(ImageStudy):
    """Fig. 2 to 11 for the first client: ``figure.html`` in the run folder.

    Options of a figure: ``by_epoch``, what the full method finds in every local epoch instead of what each method finds
    in the end; ``shown``, the number of images, by default all of the client's.
    """

    matched: ClassVar[Mapping[str, str]] = {"attack": "attack"}

    def choose(self) -> list[PaperCell]:
        """Cells of the chosen images; a stand-in is compared with the first dataset."""
        datasets, dataset = list(dict.fromkeys(cell.dataset for cell in self.table.drawn)), self.preset.dataset
        if self.preset.stand_in is None and dataset not in datasets:
            raise UsageError(f"{self.table.name} shows {' and '.join(map(str, datasets))}, got --dataset {dataset}")
        shown = dataset if dataset in datasets else datasets[0]
        asked = replace(self.selection, batch_sizes=None)
        cells = selected(self.table, self.table.drawn, replace(asked, dataset=shown), asked)
        return [replace(cell, batch_size=self.preset.rows) for cell in cells]

    def packs(self, folder: Path, device: torch.device) -> Sequence[Work]:
        """One attack per method, on the first client of the first seed."""
        clients = ImageClients(self.preset, self.selection.seeds[0], self.selection.data_folder)
        by_epoch = bool(self.table.options.get("by_epoch"))
        return [picture_work(clients, AttackSetting.of(cell, self.preset), by_epoch) for cell in self.cells]

    def remarks(self, rows: Rows) -> Mapping[str, bool | Mapping[str, Any]]:
        """Where the pictures are."""
        return {"figure": True, "attack": self.preset.attack_facts}

    def leave(self, rows: Rows, folder: Path) -> None:
        """Write the page of pictures."""
        units = [row["unit"] for row in rows]
        write_figure(folder, self.table.title, self.preset.stand_in_notes, units, self.table.options.get("shown"))


def picture_work(clients: ImageClients, setting: AttackSetting, by_epoch: bool = False) -> Work:
    """Return the work of one attack on the first client, with its pictures."""
    name = f"{setting.name}_by-epoch" if by_epoch else setting.name
    compute = partial(attack_with_pictures, clients, setting, name, by_epoch)
    return Work([unit_id(clients, name, 0)], compute, float(clients.preset.steps))


def attack_with_pictures(clients: ImageClients, setting: AttackSetting, name: str, by_epoch: bool, at: Place) -> Rows:
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
    write_json(pictures_file(at.folder, unit_id(clients, name, 0)), kept)
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
