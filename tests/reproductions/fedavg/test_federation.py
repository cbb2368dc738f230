"""Federated trainings of a study: what they keep, and that an interrupted one continues to the same weights."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lightleak.experiments.unit import unit_file
from lightleak.protocols.federation import FederatedAveraging
from lightleak.reproductions.fedavg.clients import (
    ImageClients,
    accuracy_on_test_images,
    model_folder,
    trained,
    training_work,
    weights_file,
)
from lightleak.reproductions.fedavg.setting import ClientSetting
from lightleak.targets.spec import build_network

CPU = torch.device("cpu")
SETTING = ClientSetting(2, 2)


def silently(amount: float) -> None:
    """A progress bar nobody sees."""


def weights(
    folder: Path, clients: ImageClients, number: int, setting: ClientSetting = SETTING
) -> dict[str, torch.Tensor]:
    """Weights kept before a round."""
    return load_file(weights_file(model_folder(folder, clients, setting), number))


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether two networks are the same."""
    return all(torch.equal(value, other[name]) for name, value in one.items())


def test_weights_before_rounds_and_accuracy_are_kept(clients: ImageClients, tmp_path: Path) -> None:
    reported: list[float] = []
    pack = training_work(clients, SETTING, rounds=3, kept=(1, 3, 4))
    pack.run(tmp_path, CPU, reported.append)
    assert sum(reported) == pack.cost == 3 * 2 * 4  # rounds, clients, local steps
    first, third, last = (weights(tmp_path, clients, number) for number in (1, 3, 4))
    assert not equal(first, third) and not equal(third, last)
    row = json.loads(unit_file(tmp_path, pack.ids[0]).read_text())
    network = build_network(clients.preset.spec, seed=0)
    network.load_state_dict(last)
    assert row["test_accuracy"] == accuracy_on_test_images(network, clients)
    assert row["test_images"] == len(clients.dataset.test) and row["rounds"] == 3 and row["defense"] == "none"
    assert not list(tmp_path.rglob("*.ckpt"))


def test_an_interrupted_training_goes_on(
    clients: ImageClients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightleak.reproductions.fedavg.clients.CHECKPOINT_ROUNDS", 1)
    pack = training_work(clients, SETTING, rounds=3, kept=(1, 4))
    pack.run(tmp_path / "whole", CPU, silently)
    plain, rounds = FederatedAveraging.training_step, []

    def stops(self: FederatedAveraging, *args: object) -> None:
        rounds.append(self.current_epoch)
        if self.current_epoch == 2:
            raise KeyboardInterrupt
        plain(self, *args)  # type: ignore[arg-type]

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(FederatedAveraging, "training_step", stops)
        pack.run(tmp_path / "run", CPU, silently)
    assert not unit_file(tmp_path / "run", pack.ids[0]).is_file()

    def counted(self: FederatedAveraging, *args: object) -> None:
        rounds.append(self.current_epoch)
        plain(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(FederatedAveraging, "training_step", counted)
    pack.run(tmp_path / "run", CPU, silently)
    assert rounds == [0, 1, 2, 2]
    for number in (1, 4):
        assert equal(weights(tmp_path / "whole", clients, number), weights(tmp_path / "run", clients, number))


def test_a_client_of_a_round_starts_from_its_weights(clients: ImageClients, tmp_path: Path) -> None:
    training_work(clients, SETTING, rounds=1, kept=(1, 2)).run(tmp_path, CPU, silently)
    setting = ClientSetting(2, 2, share_labels="none", round=2)
    update, truth = clients.observe(setting, 1, tmp_path)
    assert equal(weights(tmp_path, clients, 2), dict(update.parameters))
    assert update.facts.epoch == 1 and update.labels is None
    assert torch.equal(truth.inputs, clients.rows(1)[0])
    first, _ = clients.observe(ClientSetting(2, 2, round=1), 0, tmp_path)
    assert equal(weights(tmp_path, clients, 1), dict(first.parameters))


def test_noise_enters_the_training(clients: ImageClients, tmp_path: Path) -> None:
    noisy = ClientSetting(2, 2, defense="gaussian_noise", strength=0.5)
    for setting in (SETTING, noisy):
        training_work(clients, setting, rounds=1, kept=(1, 2)).run(tmp_path, CPU, silently)
    assert equal(weights(tmp_path, clients, 1), weights(tmp_path, clients, 1, noisy))
    name = "layers.9.bias"
    moved = weights(tmp_path, clients, 2)[name] - weights(tmp_path, clients, 2, noisy)[name]
    # Four local steps of noise 0.5 at a learning rate of 0.004, averaged over two clients: 0.004 * 0.5 * sqrt(4 / 2).
    assert 0.2 * 0.0028 < float(moved.std()) < 5 * 0.0028
    row = json.loads(unit_file(tmp_path, training_work(clients, noisy, 1).ids[0]).read_text())
    assert "0.5" in row["defense"]


def test_a_training_does_not_depend_on_what_is_known_of_labels() -> None:
    assert trained(ClientSetting(2, 2, share_labels="none", round=3, n_clients=2, states_epochs=False)) == SETTING
    assert trained(ClientSetting(2, 2, defense="sign")) != SETTING
