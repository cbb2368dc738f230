"""What image clients hold, and what leaves them."""

from dataclasses import replace

import pytest
import torch

from lightleak.core.errors import DataError, UsageError
from lightleak.data.image_scale import ImageScale
from lightleak.protocols import fedavg
from lightleak.reproductions.fedavg.clients import ImageClients
from lightleak.reproductions.fedavg.setting import PRESETS, ClientSetting, FedAvgPreset


def test_no_two_clients_share_an_image() -> None:
    clients = ImageClients(PRESETS["digits"], seed=0)
    held = torch.cat([clients.positions(client) for client in range(clients.size)])
    # A fifth of the 1,797 digits is held out for accuracy; 50 images each.
    assert clients.size == 28 and len(held.unique()) == len(held) == 28 * 50
    assert not torch.equal(ImageClients(PRESETS["digits"], seed=1).positions(0), clients.positions(0))


def test_rows_are_standardised_images(clients: ImageClients) -> None:
    rows, labels = clients.rows(2)
    images = clients.dataset.train.take(clients.positions(2))
    assert rows.shape == (4, 64) and torch.equal(labels, images.labels)
    assert torch.allclose(clients.dataset.scale.decode(rows), images.pixels.float() / 255, atol=1e-6)


def test_an_index_means_the_same_images_and_network_in_every_setting(clients: ImageClients) -> None:
    one, truth = clients.observe(ClientSetting(2, 2), 1)
    other, same = clients.observe(ClientSetting(1, 4, share_labels="none"), 1)
    assert torch.equal(truth.inputs, same.inputs)
    assert all(torch.equal(value, other.parameters[name]) for name, value in one.parameters.items())
    assert one.labels is not None and torch.equal(one.labels, truth.labels.sort().values) and other.labels is None
    third, _ = clients.observe(ClientSetting(2, 2), 2)
    assert not torch.equal(third.parameters["layers.0.weight"], one.parameters["layers.0.weight"])
    again, _ = clients.observe(ClientSetting(2, 2), 1)
    assert all(torch.equal(value, again.update[name]) for name, value in one.update.items())


def test_update_is_the_protocols_own(clients: ImageClients, tiny: FedAvgPreset) -> None:
    setting = ClientSetting(3, 2, share_labels="batches", reshuffle=False)
    update, _ = clients.observe(setting, 0)
    facts = update.facts
    assert (facts.epochs, facts.batch_size, facts.local_steps, facts.learning_rate) == (3, 2, 6, tiny.learning_rate)
    assert update.batch_labels is not None and update.batch_labels.shape == (1, 3, 4)
    assert torch.equal(update.batch_labels[0, 0], update.batch_labels[0, 2])  # fixed batches
    assert ImageScale.from_state(update.encoder) == clients.dataset.scale


def test_aggregate_is_the_mean_of_clients_of_its_own(clients: ImageClients) -> None:
    update, truth = clients.observe(ClientSetting(1, 4, n_clients=2), 1)
    singles = [clients.rows(client) for client in (2, 3)]
    assert torch.equal(truth.inputs, torch.cat([rows for rows, _ in singles]))
    assert torch.equal(truth.labels, torch.cat([labels for _, labels in singles]))
    assert update.facts.n_clients == 2 and update.facts.n_rows == 8


def test_epochs_can_stay_unknown(clients: ImageClients) -> None:
    update, _ = clients.observe(ClientSetting(2, 2, states_epochs=False), 0)
    assert (update.facts.epochs, update.facts.batch_size, update.facts.local_steps) == (None, None, 4)
    assert update.batch_labels is None


def test_defense_acts_on_every_local_step(clients: ImageClients, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    plain = fedavg.client_update
    monkeypatch.setattr(
        "lightleak.reproductions.fedavg.clients.client_update",
        lambda *args, **kwargs: seen.append(kwargs) or plain(*args, **kwargs),  # type: ignore[func-returns-value]
    )
    update, _ = clients.observe(ClientSetting(1, 2, defense="gaussian_noise", strength=0.5), 0)
    assert update.state == "noised" and "0.5" in update.facts.defense
    assert [call["defend"] for call in seen] == ["steps"]


def test_clients_that_are_not_there(clients: ImageClients, tmp_path: object) -> None:
    with pytest.raises(UsageError, match=r"digits has 359 clients of 4 images, numbered from 0; got client 359"):
        clients.positions(359)
    elsewhere = ImageClients(replace(clients.preset, dataset="cifar100"), 0, str(tmp_path))
    with pytest.raises(DataError, match=r"train\.bin"):
        elsewhere.positions(0)
