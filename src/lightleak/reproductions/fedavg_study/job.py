"""The units of work behind the FedAvg paper's tables: one attack on a few clients, or their labels restored."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.fedavg.simulate.label_counts import FedAvgLabelMethod, restore_fedavg_counts
from lightleak.attacks.gradient_inversion.network.client import client_network
from lightleak.attacks.gradient_inversion.optimize.labels import round_counts
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.image_similarity import matched_psnr
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import derive_seed, generator
from lightleak.experiments.packing import ROWS_PER_PACK
from lightleak.experiments.unit import unit_file, without_nan, write_whole
from lightleak.metrics.images import ImagePSNR, ReconstructedShare
from lightleak.reproductions.fedavg_study.clients import ImageClients
from lightleak.reproductions.fedavg_study.federation import observe_round
from lightleak.reproductions.fedavg_study.setting import AttackSetting, ClientSetting
from lightleak.targets.spec import NetworkSpec

LABEL_METHODS: tuple[FedAvgLabelMethod, ...] = ("interpolated", "geng_server", "geng_client")
DUMMY_IMAGES = 3000
"""Random images over which the statistics of Eq. 2 are means, as in the paper's code."""

Observed = tuple[ClientUpdate, GroundTruth]


@dataclass(frozen=True)
class AttackPack:
    """One attack on a few updates in one call.

    Attributes:
        clients: who holds the images.
        setting: the attack, and what leaves the clients.
        indices: numbers of the updates.
    """

    clients: ImageClients
    setting: AttackSetting
    indices: tuple[int, ...]

    @property
    def ids(self) -> Sequence[str]:
        """One unit per update."""
        return [unit_id(self.clients, self.setting.name, index) for index in self.indices]

    @property
    def cost(self) -> float:
        """Steps of the attack times rows that it simulates."""
        rows = rows_of_one(self.clients, self.setting.clients)
        return float(len(self.indices) * rows * self.clients.preset.steps)

    def run(self, folder: Path, device: torch.device, report: Callable[[float], None]) -> None:
        """Attack and score; every update's row is kept."""
        setting, preset = self.setting, self.clients.preset
        observed = [observe(self.clients, setting.clients, index, folder) for index in self.indices]
        attack = ATTACKS.get(setting.attack)(**setting.options(preset))
        # The same for all attacks on an update: they begin with one split of the labels (Sec. 5.1).
        seeds = [derive_seed(self.clients.seed, "attack", index) for index in self.indices]
        share = self.cost / len(self.indices)
        found = attack.run_many([u for u, _ in observed], seeds, device, lambda done: report(done * share))
        for index, (update, truth), reconstruction in zip(self.indices, observed, found, strict=True):
            file = unit_file(folder, unit_id(self.clients, setting.name, index))
            if not file.is_file():
                row = facts(self.clients, setting.clients, setting.name, index, update) | {
                    "attack": setting.attack,
                    **image_scores(self.clients, reconstruction, truth),
                    "seconds": reconstruction.seconds,
                    "loss": reconstruction.loss,
                    "threat_model": reconstruction.threat_model.describe(),
                    "options": attack.options(),
                }
                write_whole(file, json.dumps(without_nan(row)))


@dataclass(frozen=True)
class LabelPack:
    """Label counts of a few updates, restored in three ways (Table 2).

    Attributes:
        clients: who holds the images.
        setting: what leaves them.
        indices: numbers of the updates.
    """

    clients: ImageClients
    setting: ClientSetting
    indices: tuple[int, ...]

    @property
    def ids(self) -> Sequence[str]:
        """One unit per update and method."""
        return [self._id(method, index) for index in self.indices for method in LABEL_METHODS]

    @property
    def cost(self) -> float:
        """Local steps of the clients."""
        return float(len(self.indices) * self.setting.steps(self.clients.preset.rows))

    def run(self, folder: Path, device: torch.device, report: Callable[[float], None]) -> None:
        """Restore and count the errors; every update's rows are kept."""
        for index in self.indices:
            update, truth = observe(self.clients, self.setting, index, folder)
            for method in LABEL_METHODS:
                counts = restored_counts(update, method, self.clients.seed, index, device)
                row = facts(self.clients, self.setting, self._name(method), index, update) | {
                    "attack": "label_counts",
                    "variant": method,
                    "label_errors": label_errors(counts, truth.labels),
                }
                write_whole(unit_file(folder, self._id(method, index)), json.dumps(without_nan(row)))
            report(self.cost / len(self.indices))

    def _name(self, method: str) -> str:
        return f"{method}_{self.setting.name}"

    def _id(self, method: str, index: int) -> str:
        return unit_id(self.clients, self._name(method), index)


def attack_packs(clients: ImageClients, setting: AttackSetting, number: int, device: torch.device) -> list[AttackPack]:
    """As many updates in a pack as the device takes well; their number does not depend on how many there are."""
    size = max(1, ROWS_PER_PACK[device.type] // rows_of_one(clients, setting.clients))
    return [AttackPack(clients, setting, tuple(range(i, min(i + size, number)))) for i in range(0, number, size)]


def rows_of_one(clients: ImageClients, setting: ClientSetting) -> int:
    """Rows that a full simulation of one update takes."""
    return setting.n_clients * setting.epochs * clients.preset.rows


def unit_id(clients: ImageClients, name: str, index: int) -> str:
    """A unit, and a file name."""
    return f"{clients.preset.dataset}_{name}-s{clients.seed}-{index:03d}"


def observe(clients: ImageClients, setting: ClientSetting, index: int, folder: Path) -> Observed:
    """Update ``index`` of a setting: of an untrained network, or of a round of the training kept in ``folder``."""
    if setting.round is None:
        return clients.observe(setting, index)
    return observe_round(clients, setting, index, folder)


def facts(clients: ImageClients, setting: ClientSetting, name: str, index: int, update: ClientUpdate) -> dict[str, Any]:
    """What the row of a unit says besides its scores."""
    rows = clients.preset.rows
    return {
        "unit": unit_id(clients, name, index),
        "setting": name,
        "dataset": clients.preset.dataset,
        "target": clients.preset.spec.name,
        "protocol": "fedavg",
        "labels": "restored" if setting.share_labels == "none" else "true",
        "defense": update.facts.defense,
        "defense_strength": setting.strength,
        "batch_size": update.facts.n_rows,
        "batch_index": index,
        "local_epochs": setting.epochs,
        "local_batches": -(-rows // setting.batch_size),
        "local_batch_size": setting.batch_size,
        "n_clients": setting.n_clients,
        "source": "initial" if setting.round is None else "training",
        "epoch": update.facts.epoch,
        "seed": clients.seed,
    }


def image_scores(clients: ImageClients, reconstruction: Reconstruction, truth: GroundTruth) -> dict[str, float]:
    """PSNR and share of the images that were reconstructed, in pixels from 0 to 1, and labels that were wrong."""
    scale = clients.dataset.scale
    found, true = (scale.decode(rows).flatten(1) for rows in (reconstruction.encoded.float(), truth.inputs))
    psnr = matched_psnr(found, true)
    return {
        "psnr": float(ImagePSNR()(psnr)),
        "reconstructed_share": float(ReconstructedShare(clients.preset.threshold)(psnr)),
        "label_errors": label_errors(torch.bincount(reconstruction.labels), truth.labels),
    }


def label_errors(counts: Tensor, labels: Tensor) -> float:
    """Labels of a client that were restored wrongly: half the distance of the two counts, as in the paper's code.

    >>> label_errors(torch.tensor([2, 0, 1]), torch.tensor([0, 1, 2]))
    1.0
    """
    classes = max(len(counts), int(labels.max()) + 1)
    true = torch.bincount(labels, minlength=classes)
    found = torch.nn.functional.pad(counts, (0, classes - len(counts)))
    return float((found - true).abs().sum()) / 2


def restored_counts(
    update: ClientUpdate, method: FedAvgLabelMethod, seed: int, index: int, device: torch.device
) -> Tensor:
    """Whole label counts, LongTensor ``[classes]``, from the same random images for every method."""
    told, network = update.facts, client_network(update).to(device)
    steps, rate = told.local_steps, told.learning_rate
    assert steps is not None and rate is not None  # a client's own update states both
    before, buffers = ({k: v.to(device) for k, v in held.items()} for held in (update.parameters, update.buffers))
    after = {name: value + update.update[name].to(device) for name, value in before.items()}
    width = NetworkSpec.from_dict(update.network).layout.width
    dummy = torch.randn(DUMMY_IMAGES, width, generator=generator(seed, "label images", index)).to(device)
    sgd = told.momentum, told.weight_decay
    counts = restore_fedavg_counts(network, before, after, buffers, told.n_rows, rate, steps, dummy, method, *sgd)
    return round_counts(counts.cpu(), told.n_rows)
