"""The rows of every local epoch, before they are averaged."""

import torch

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.fedavg.simulate.attack import FedAvgInversion
from lightleak.reproductions.fedavg.clients import ImageClients
from lightleak.reproductions.fedavg.epochs import EpochInversion, epochs_of
from lightleak.reproductions.fedavg.setting import ClientSetting


def test_mean_of_the_epochs_is_what_the_attack_returns(clients: ImageClients) -> None:
    update, _ = clients.observe(ClientSetting(3, 2), 0)
    attack = ATTACKS.get("fedavg_prior")(**clients.preset.attack_options("fedavg_prior", 3, 2))
    assert isinstance(attack, FedAvgInversion)
    usual = attack.run(update, seed=1)
    apart = EpochInversion(attack.name, attack.citation, attack.config).run(update, seed=1)
    assert apart.encoded.shape == (3 * 4, 64)
    epochs = epochs_of(attack.codec(update, torch.device("cpu")), apart, 4)
    assert epochs.shape == (3, 4, 64) and not torch.allclose(epochs[0], epochs[1])
    assert torch.allclose(epochs.mean(0), usual.encoded, atol=1e-6)
    assert torch.equal(apart.labels[:4], usual.labels)
