"""The units of work: scores, seeds, packs, and what of a pack is done again."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.fedavg.simulate.attack import FedAvgInversion
from lightleak.core.reconstruction import Reconstruction
from lightleak.experiments.took import TOOK
from lightleak.experiments.unit import unit_file
from lightleak.protocols.client_training import LocalTraining
from lightleak.protocols.fedavg import client_update
from lightleak.reproductions.fedavg.clients import ImageClients
from lightleak.reproductions.fedavg.job import (
    LABEL_METHODS,
    attack_updates,
    attack_work,
    image_scores,
    label_errors,
    label_work,
    restored_counts,
)
from lightleak.reproductions.fedavg.setting import PRESETS, AttackSetting, ClientSetting
from lightleak.reproductions.reproduction import Place, Work
from lightleak.targets.spec import build_network

CPU = torch.device("cpu")
SETTING = AttackSetting(ClientSetting(2, 2), "fedavg_prior")


def silently(amount: float) -> None:
    """A progress bar nobody sees."""


def rows_of(pack: Work, folder: Path) -> list[dict[str, object]]:
    """Rows that a pack left."""
    return [json.loads(unit_file(folder, unit).read_text()) for unit in pack.ids]


@pytest.fixture(scope="module")
def found(clients: ImageClients) -> Reconstruction:
    """What a short attack finds of the first client."""
    update, _ = clients.observe(SETTING.clients, 0)
    return ATTACKS.get("fedavg_prior")(**SETTING.options(clients.preset)).run(update)


def test_scores_are_of_matched_images_in_pixels(clients: ImageClients, found: Reconstruction) -> None:
    _, truth = clients.observe(SETTING.clients, 0)
    perfect = replace(found, encoded=truth.inputs[[2, 0, 3, 1]], labels=truth.labels)
    assert image_scores(clients, perfect, truth) == {"psnr": 100, "reconstructed_share": 1, "label_errors": 0}
    # A quarter of the images is off by 0.2 in every pixel: -10 log10(0.04) = 14 dB, not reconstructed.
    scale = clients.dataset.scale
    pixels = scale.decode(truth.inputs)
    pixels[1] += torch.where(pixels[1] > 0.5, -0.2, 0.2)
    one_off = replace(perfect, encoded=scale.encode(pixels), labels=truth.labels)
    scores = image_scores(clients, one_off, truth)
    assert scores["reconstructed_share"] == 0.75
    assert scores["psnr"] == pytest.approx((300 + 13.979) / 4, abs=0.01)


def test_wrong_labels_are_counted_once() -> None:
    true = torch.tensor([0, 0, 1, 2])
    assert label_errors(torch.tensor([2, 1, 1]), true) == 0
    assert label_errors(torch.tensor([0, 4]), true) == 3
    assert label_errors(torch.tensor([2, 1, 0, 0, 1]), true) == 1


def test_rows_say_what_was_attacked(clients: ImageClients, tmp_path: Path) -> None:
    [pack] = attack_work(clients, SETTING, 2, CPU)
    reported: list[float] = []
    pack.run(tmp_path, CPU, reported.append)
    first, second = rows_of(pack, tmp_path)
    assert sum(reported) == pytest.approx(pack.cost)
    assert (first["batch_index"], second["batch_index"]) == (0, 1) and first["psnr"] != second["psnr"]
    expected = {
        "setting": "fedavg_prior_2x2",
        "dataset": "digits",
        "target": "image_cnn",
        "protocol": "fedavg",
        "labels": "true",
        "defense": "none",
        "batch_size": 4,
        "local_epochs": 2,
        "local_batches": 2,
        "local_batch_size": 2,
        "n_clients": 1,
        "source": "initial",
        "epoch": 0,
        "seed": 3,
        "attack": "fedavg_prior",
    }
    assert expected.items() <= first.items()
    assert isinstance(first["options"], dict) and first["options"]["steps"] == clients.preset.steps


def test_all_attacks_on_an_update_have_one_seed(
    clients: ImageClients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: dict[str, list[int]] = {}
    plain: Callable[..., list[Reconstruction]] = FedAvgInversion.run_many

    def noted(self: FedAvgInversion, updates: object, given: list[int], *rest: object) -> list[Reconstruction]:
        seeds[self.name] = list(given)
        return plain(self, updates, given, *rest)

    monkeypatch.setattr(FedAvgInversion, "run_many", noted)
    for name in ("fedavg_shared", "fedavg_fedsgd"):
        attack_updates(clients, replace(SETTING, attack=name), (0, 1), Place(tmp_path, CPU, silently))
    assert seeds["fedavg_shared"] == seeds["fedavg_fedsgd"]
    assert len(set(seeds["fedavg_shared"])) == 2


def test_a_finished_row_is_not_written_again(clients: ImageClients, tmp_path: Path) -> None:
    [pack] = attack_work(clients, SETTING, 2, CPU)
    pack.run(tmp_path, CPU, silently)
    before = rows_of(pack, tmp_path)
    kept, lost = (unit_file(tmp_path, unit) for unit in pack.ids)
    stamp = kept.stat().st_mtime_ns
    lost.unlink()
    pack.run(tmp_path, CPU, silently)
    assert kept.stat().st_mtime_ns == stamp
    again = rows_of(pack, tmp_path)
    timed = TOOK
    assert [{k: v for k, v in row.items() if k not in timed} for row in again] == [
        {k: v for k, v in row.items() if k not in timed} for row in before
    ]


def test_packs_do_not_depend_on_the_number_of_updates() -> None:
    big = AttackSetting(ClientSetting(10, 5, n_clients=1), "fedavg_prior")  # 500 rows each; a pack takes 1,024

    def indices(setting: AttackSetting, number: int) -> list[list[int]]:
        packs = attack_work(ImageClients(PRESETS["digits"], 0), setting, number, CPU)
        return [[int(unit.rpartition("-")[2]) for unit in pack.ids] for pack in packs]

    assert indices(big, 5) == [[0, 1], [2, 3], [4]]
    assert indices(big, 6) == [[0, 1], [2, 3], [4, 5]]
    assert indices(replace(big, clients=replace(big.clients, n_clients=4)), 2) == [[0], [1]]


def test_label_counts_are_those_of_the_attack_on_the_same_dummies(clients: ImageClients, tmp_path: Path) -> None:
    setting = ClientSetting(2, 2, share_labels="none")
    packs = [label_work(clients, setting, index) for index in (0, 2)]
    for pack in packs:
        pack.run(tmp_path, CPU, silently)
    rows = [row for pack in packs for row in rows_of(pack, tmp_path)]
    assert [(row["batch_index"], row["variant"]) for row in rows] == [(i, m) for i in (0, 2) for m in LABEL_METHODS]
    assert {row["labels"] for row in rows} == {"restored"}
    update, truth = clients.observe(setting, 2)
    for row in rows[3:]:
        counts = restored_counts(update, row["variant"], clients.seed, 2, CPU)  # type: ignore[arg-type]
        assert int(counts.sum()) == 4
        assert row["label_errors"] == label_errors(counts, truth.labels)


def test_labels_of_a_client_of_one_class_are_found(clients: ImageClients) -> None:
    # With one step on a whole batch of one class, the gradient of the last layer points at that class alone.
    preset = clients.preset
    update, _ = client_update(
        build_network(preset.spec, seed=5),
        preset.spec,
        clients.dataset.scale,
        clients.rows(0)[0],
        torch.full((4,), 7),
        LocalTraining(1, 4, preset.learning_rate),
        share_labels="none",
        seed=0,
    )
    for method in LABEL_METHODS:
        assert int(restored_counts(update, method, 0, 0, CPU).argmax()) == 7
