"""The FedAvg paper's figures: a client's images above what attacks reconstruct of them (Fig. 2 to 11)."""

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.fedavg.simulate.attack import FedAvgInversion
from lightleak.core.errors import UsageError
from lightleak.core.image_similarity import matched_psnr
from lightleak.core.seeds import derive_seed
from lightleak.experiments.unit import write_whole
from lightleak.reproductions.fedavg.clients import ImageClients
from lightleak.reproductions.fedavg.epochs import EpochInversion, epochs_of
from lightleak.reproductions.fedavg.job import attack_row, unit_id
from lightleak.reproductions.fedavg.notes import attack_note, stand_in
from lightleak.reproductions.fedavg.pictures import PictureBlock, order_of, to_bytes, write_figure
from lightleak.reproductions.fedavg.setting import AttackSetting, setting_of
from lightleak.reproductions.fedavg.tables import ImageStudy
from lightleak.reproductions.paper.values import PaperCell
from lightleak.reproductions.reproduction import CPU, Report, Row, Rows, Stage, Work

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
        """Cells of the chosen images; a stand-in stands beside the first dataset."""
        datasets, dataset = list(dict.fromkeys(cell.dataset for cell in self.table.drawn)), self.preset.dataset
        if not self.preset.is_stand_in and dataset not in datasets:
            raise UsageError(f"{self.table.name} shows {' and '.join(map(str, datasets))}, got --dataset {dataset}")
        beside, attacks = dataset if dataset in datasets else datasets[0], self.selection.attacks
        cells = [
            replace(cell, batch_size=self.preset.rows)
            for cell in self.table.drawn
            if cell.dataset == beside and (attacks is None or cell.attack in attacks)
        ]
        if not cells:
            raise UsageError(f"nothing of {self.table.name} is left to run with {self.selection.chosen()}")
        return cells

    @property
    def by_epoch(self) -> bool:
        """Whether the figure shows every local epoch."""
        return bool(self.table.options.get("by_epoch"))

    def stages(self) -> Sequence[Stage]:
        """The attacks."""
        return [Stage(self.attacks, "attacks on images")]

    def attacks(self, folder: Path, device: torch.device) -> list[Work]:
        """One attack per method, on the first client of the first seed."""
        clients = ImageClients(self.preset, self.selection.seeds[0], self.selection.data_folder)
        return [picture_work(clients, setting_of(cell, self.preset), self.by_epoch) for cell in self.cells]

    def values(self, cell: PaperCell, rows: Rows) -> list[float]:
        """The PSNR of the method."""
        return [row["psnr"] for row in rows if row["attack"] == cell.attack]

    def notes(self, rows: Rows) -> list[str]:
        """Where the pictures are."""
        found = [stand_in(self.preset)] if self.preset.is_stand_in else []
        found.append("One client; pictures of it and of what was made of it are in figure.html.")
        return [*found, attack_note(self.preset)]

    def leave(self, rows: Rows, folder: Path) -> None:
        """The pictures on a page."""
        notes = [stand_in(self.preset)] if self.preset.is_stand_in else []
        blocks = _blocks(folder, [row["unit"] for row in rows], self.table.options.get("shown"))
        write_figure(folder, self.table.title, notes, blocks)


def picture_work(clients: ImageClients, setting: AttackSetting, by_epoch: bool = False) -> Work:
    """One attack on the first client, with its pictures."""
    name = f"{setting.name}_by-epoch" if by_epoch else setting.name
    compute = partial(attack_with_pictures, clients, setting, name, by_epoch)
    return Work([unit_id(clients, name, 0)], compute, float(clients.preset.steps))


def attack_with_pictures(
    clients: ImageClients,
    setting: AttackSetting,
    name: str,
    by_epoch: bool,
    folder: Path,
    device: torch.device,
    report: Report,
) -> list[Row]:
    """Attack, score, and keep the pictures in the order of the client's images."""
    update, truth = clients.observe(setting.clients, 0)
    attack = setting.make_attack(clients.preset)
    assert isinstance(attack, FedAvgInversion)  # the five attacks of the paper
    if by_epoch:
        attack = EpochInversion(attack.name, attack.citation, attack.config)
    seed = derive_seed(clients.seed, "attack", 0)
    [found] = attack.run_many([update], [seed], device, lambda done: report(done * clients.preset.steps))
    rows, decode = found.encoded.unsqueeze(0), clients.dataset.scale.decode
    if by_epoch:
        n = len(truth.labels)
        rows = epochs_of(attack.codec(update, CPU), found, n)
        found = replace(found, encoded=rows.mean(0), labels=found.labels[:n])
    true, mean = decode(truth.inputs), decode(found.encoded.float())
    order = order_of(true, mean)
    blocks = [{"caption": TITLES[setting.attack], **_kept(mean[order], true)}]
    if by_epoch:
        blocks = [{"caption": f"epoch {e}", **_kept(decode(x.float())[order], true)} for e, x in enumerate(rows, 1)]
        blocks.append({"caption": "mean over the epochs", **_kept(mean[order], true)})
    kept = {"true": _kept(true, true), "blocks": blocks}
    write_whole(pictures_file(folder, unit_id(clients, name, 0)), json.dumps(kept))
    return [attack_row(clients, setting, name, 0, (update, truth), found)]


def pictures_file(folder: Path, unit: str) -> Path:
    """Where the pictures of a unit are kept."""
    return folder / "pictures" / f"{unit}.json"


def _kept(images: Tensor, true: Tensor) -> dict[str, Any]:
    """Images in [0, 1] ``[n, c, h, w]``, each in the place of its true one, and their mean PSNR."""
    pixels = to_bytes(images.cpu())
    psnr = float(matched_psnr(images.flatten(1), true.flatten(1)).mean())
    return {"shape": list(pixels.shape), "psnr": psnr, "pixels": base64.b64encode(pixels.numpy().tobytes()).decode()}


def _blocks(folder: Path, ids: Sequence[str], shown: int | None) -> list[PictureBlock]:
    found: list[PictureBlock] = []
    for unit in ids:
        kept = json.loads(pictures_file(folder, unit).read_text())
        if not found:
            found.append(PictureBlock("the client's images", _pixels(kept["true"])[:shown]))
        for one in kept["blocks"]:
            caption = f"{one['caption']}, mean PSNR {one['psnr']:.1f} dB"
            found.append(PictureBlock(caption, _pixels(one)[:shown]))
    return found


def _pixels(kept: dict[str, Any]) -> Tensor:
    raw = bytearray(base64.b64decode(kept["pixels"]))
    return torch.frombuffer(raw, dtype=torch.uint8).reshape(kept["shape"])
