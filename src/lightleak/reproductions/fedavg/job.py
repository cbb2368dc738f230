"""The units of work behind the FedAvg paper's tables: one attack on a few clients, or their labels restored."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.fedavg.simulate.label_counts import FedAvgLabelMethod, restore_whole_counts
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.image_similarity import matched_psnr
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import derive_seed, generator
from lightleak.experiments.campaign import ROWS_PER_PACK
from lightleak.metrics.images import ImagePSNR, ReconstructedShare
from lightleak.reproductions.fedavg.clients import ImageClients, Observed
from lightleak.reproductions.fedavg.setting import AttackSetting, ClientSetting
from lightleak.reproductions.reproduction import Place, Row, Work
from lightleak.targets.spec import NetworkSpec

LABEL_METHODS: tuple[FedAvgLabelMethod, ...] = ("interpolated", "geng_server", "geng_client")
DUMMY_IMAGES = 3000
"""Random images over which the statistics of Eq. 2 are means, as in the paper's code."""


def attack_work(clients: ImageClients, setting: AttackSetting, number: int, device: torch.device) -> list[Work]:
    """Return the work of one attack on a number of updates; the size of a pack depends on the device alone."""
    rows = rows_of_one(clients, setting.clients)
    size = max(1, ROWS_PER_PACK[device.type] // rows)
    packs = [range(i, min(i + size, number)) for i in range(0, number, size)]
    return [
        Work(
            [unit_id(clients, setting.name, index) for index in indices],
            partial(attack_updates, clients, setting, indices),
            float(len(indices) * rows * clients.preset.steps),
        )
        for indices in packs
    ]


def attack_updates(clients: ImageClients, setting: AttackSetting, indices: Sequence[int], at: Place) -> list[Row]:
    """Attack updates in one call and return a row for each."""
    observed = [clients.observe(setting.clients, index, at.folder) for index in indices]
    attack = setting.make_attack(clients.preset)
    # The same for all attacks on an update: they begin with one split of the labels (Sec. 5.1).
    seeds = [derive_seed(clients.seed, "attack", index) for index in indices]
    cost = rows_of_one(clients, setting.clients) * clients.preset.steps
    found = attack.run_many([update for update, _ in observed], seeds, at.device, lambda done: at.report(done * cost))
    return [
        attack_row(clients, setting, setting.name, index, seen, one)
        for index, seen, one in zip(indices, observed, found, strict=True)
    ]


def attack_row(
    clients: ImageClients, setting: AttackSetting, name: str, index: int, seen: Observed, found: Reconstruction
) -> Row:
    """The row of an attacked update."""
    update, truth = seen
    return facts(clients, setting.clients, name, index, update) | {
        "attack": setting.attack,
        **image_scores(clients, found, truth),
        "seconds": found.seconds,
        "loss": found.loss,
        "threat_model": found.threat_model.describe(),
        "options": setting.make_attack(clients.preset).options(),
    }


def label_work(clients: ImageClients, setting: ClientSetting, index: int) -> Work:
    """Return the work of restoring an update's label counts in three ways (Table 2), one unit per method."""
    ids = [unit_id(clients, _label_name(method, setting), index) for method in LABEL_METHODS]
    return Work(ids, partial(restore_labels, clients, setting, index), float(setting.steps(clients.preset.rows)))


def restore_labels(clients: ImageClients, setting: ClientSetting, index: int, at: Place) -> Iterator[Row]:
    """Restore the labels, count the errors and yield a row for every method."""
    update, truth = clients.observe(setting, index, at.folder)
    for method in LABEL_METHODS:
        counts = restored_counts(update, method, clients.seed, index, at.device)
        yield facts(clients, setting, _label_name(method, setting), index, update) | {
            "attack": "label_counts",
            "variant": method,
            "label_errors": label_errors(counts, truth.labels),
        }


def _label_name(method: str, setting: ClientSetting) -> str:
    return f"{method}_{setting.name}"


def rows_of_one(clients: ImageClients, setting: ClientSetting) -> int:
    """Return the number of rows in a full simulation of one update."""
    return setting.n_clients * setting.epochs * clients.preset.rows


def unit_id(clients: ImageClients, name: str, index: int) -> str:
    """Return the id of a unit, which is also a file name."""
    return f"{clients.preset.dataset}_{name}-s{clients.seed}-{index:03d}"


def facts(clients: ImageClients, setting: ClientSetting, name: str, index: int, update: ClientUpdate) -> dict[str, Any]:
    """Return everything in the row of a unit except its scores."""
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
    assert update.facts.local_steps is not None  # a client's own update states them
    width = NetworkSpec.from_dict(update.network).layout.width
    dummy = torch.randn(DUMMY_IMAGES, width, generator=generator(seed, "label images", index)).to(device)
    return restore_whole_counts(update, update.facts.local_steps, dummy, method)
