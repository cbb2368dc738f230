"""The FedAvg paper's figures: a client's images above what attacks reconstruct of them (Fig. 2 to 11)."""

import base64
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.fedavg.simulate.attack import FedAvgInversion
from lightleak.core.errors import UsageError
from lightleak.core.image_similarity import matched_psnr
from lightleak.core.seeds import derive_seed
from lightleak.experiments.campaign import rows_of, run_packs
from lightleak.experiments.unit import unit_file, without_nan, write_whole
from lightleak.metrics.summary import summarize
from lightleak.reproductions.comparison import Compared
from lightleak.reproductions.fedavg_study.clients import ImageClients
from lightleak.reproductions.fedavg_study.epochs import EpochInversion, epochs_of
from lightleak.reproductions.fedavg_study.job import facts, image_scores, unit_id
from lightleak.reproductions.fedavg_study.notes import attack_note, stand_in
from lightleak.reproductions.fedavg_study.pictures import PictureBlock, order_of, to_bytes, write_figure
from lightleak.reproductions.fedavg_study.preset import FedAvgPreset
from lightleak.reproductions.fedavg_study.setting import AttackSetting, setting_of
from lightleak.reproductions.fedavg_study.study import beside, chosen_preset
from lightleak.reproductions.paper.values import PaperCell, PaperTable
from lightleak.reproductions.settings import Selection

Result = tuple[list[Compared], list[dict[str, Any]], list[str]]

TITLES = {
    "fedavg_prior": "Ours (prior)",
    "fedavg_no_prior": "Ours (no prior)",
    "fedavg_shared": "Shared",
    "fedavg_epoch": "FedSGD-Epoch",
    "fedavg_fedsgd": "FedSGD",
}
"""Attacks as the paper calls them."""

FEW = 4
EPOCHS, BATCH_SIZE = 10, 5


@dataclass(frozen=True)
class Figure:
    """What a figure shows.

    Attributes:
        datasets: the paper's, whose images it shows.
        labels: ``true`` or ``restored``.
        epochs: what the full method finds in every local epoch; else what each method finds in the end.
        shown: images; None: all of the client's.
    """

    datasets: tuple[str, ...]
    labels: Literal["true", "restored"]
    epochs: bool = False
    shown: int | None = None


FIGURES = {
    "fedavg-fig2": Figure(("femnist", "cifar100"), "restored", shown=FEW),
    "fedavg-fig3": Figure(("cifar100",), "restored", epochs=True, shown=FEW),
    "fedavg-fig4": Figure(("femnist",), "true"),
    "fedavg-fig5": Figure(("femnist",), "restored"),
    "fedavg-fig6": Figure(("cifar100",), "true"),
    "fedavg-fig7": Figure(("cifar100",), "restored"),
    "fedavg-fig8": Figure(("femnist",), "true", epochs=True),
    "fedavg-fig9": Figure(("femnist",), "restored", epochs=True),
    "fedavg-fig10": Figure(("cifar100",), "true", epochs=True),
    "fedavg-fig11": Figure(("cifar100",), "restored", epochs=True),
}


@dataclass(frozen=True)
class PicturePack:
    """One attack on the first client, with its pictures.

    Attributes:
        clients: who holds the images.
        setting: the attack, and what leaves the client.
        epochs: keep what is found in every local epoch.
    """

    clients: ImageClients
    setting: AttackSetting
    epochs: bool = False

    @property
    def name(self) -> str:
        """Setting of the row."""
        return f"{self.setting.name}_by-epoch" if self.epochs else self.setting.name

    @property
    def ids(self) -> Sequence[str]:
        """One unit."""
        return [unit_id(self.clients, self.name, 0)]

    @property
    def cost(self) -> float:
        """Steps of the attack."""
        return float(self.clients.preset.steps)

    def run(self, folder: Path, device: torch.device, report: Callable[[float], None]) -> None:
        """Attack, score, and keep the pictures in the order of the client's images."""
        clients, setting = self.clients, self.setting
        update, truth = clients.observe(setting.clients, 0)
        attack = ATTACKS.get(setting.attack)(**setting.options(clients.preset))
        assert isinstance(attack, FedAvgInversion)  # the five attacks of the paper
        if self.epochs:
            attack = EpochInversion(attack.name, attack.citation, attack.config)
        seed = derive_seed(clients.seed, "attack", 0)
        [found] = attack.run_many([update], [seed], device, lambda done: report(done * self.cost))
        rows, decode = found.encoded.unsqueeze(0), clients.dataset.scale.decode
        if self.epochs:
            n = len(truth.labels)
            rows = epochs_of(attack.codec(update, torch.device("cpu")), found, n)
            found = replace(found, encoded=rows.mean(0), labels=found.labels[:n])
        true, mean = decode(truth.inputs), decode(found.encoded.float())
        order = order_of(true, mean)
        blocks = [{"caption": TITLES[setting.attack], **_kept(mean[order], true)}]
        if self.epochs:
            blocks = [{"caption": f"epoch {e}", **_kept(decode(x.float())[order], true)} for e, x in enumerate(rows, 1)]
            blocks.append({"caption": "mean over the epochs", **_kept(mean[order], true)})
        row = facts(clients, setting.clients, self.name, 0, update) | {
            "attack": setting.attack,
            **image_scores(clients, found, truth),
            "seconds": found.seconds,
            "loss": found.loss,
            "threat_model": found.threat_model.describe(),
            "options": attack.options(),
        }
        kept = {"true": _kept(true, true), "blocks": blocks}
        write_whole(pictures_file(folder, self.ids[0]), json.dumps(kept))
        write_whole(unit_file(folder, self.ids[0]), json.dumps(without_nan(row)))


def picture_grid(
    table: PaperTable, selection: Selection, folder: Path, device: torch.device, workers: int, quiet: bool
) -> Result:
    """Fig. 2 to 11 for the first client: ``figure.html`` in the run folder."""
    figure, preset = FIGURES[table.name], chosen_preset(selection)
    if not preset.is_stand_in and preset.dataset not in figure.datasets:
        raise UsageError(f"{table.name} shows {' and '.join(figure.datasets)}, got --dataset {preset.dataset}")
    clients = ImageClients(preset, selection.seeds[0], selection.data_folder)
    cells = [cell for cell in _cells(figure, preset) if selection.attacks is None or cell.attack in selection.attacks]
    if not cells:
        raise UsageError(f"nothing of {table.name} is left to run with {selection.chosen()}")
    packs = [PicturePack(clients, setting_of(cell, preset), figure.epochs) for cell in cells]
    ids = run_packs(partial(_packs, tuple(packs)), folder, device, workers, quiet, "attacks on images")
    rows = rows_of(ids, folder)
    notes = [stand_in(preset)] if preset.is_stand_in else []
    notes += ["One client; pictures of it and of what was made of it are in figure.html.", attack_note(preset)]
    write_figure(folder, table.title, notes[:1] if preset.is_stand_in else [], _blocks(folder, ids, figure.shown))
    compared = [beside(cell, preset, summarize([row["psnr"]])) for cell, row in zip(cells, rows, strict=True)]
    return compared, rows, notes


def pictures_file(folder: Path, unit: str) -> Path:
    """Where the pictures of a unit are kept."""
    return folder / "pictures" / f"{unit}.json"


def _cells(figure: Figure, preset: FedAvgPreset) -> list[PaperCell]:
    """What the figure shows, as cells without a printed value."""
    base = PaperCell(
        "psnr",
        "dB",
        math.nan,
        dataset=preset.dataset if preset.dataset in figure.datasets else figure.datasets[0],
        protocol="fedavg",
        labels=figure.labels,
        batch_size=preset.rows,
        local_epochs=EPOCHS,
        local_batch_size=BATCH_SIZE,
    )
    return [replace(base, attack=attack) for attack in (["fedavg_prior"] if figure.epochs else TITLES)]


def _packs(packs: Sequence[PicturePack], device: torch.device) -> Sequence[PicturePack]:
    return packs


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
