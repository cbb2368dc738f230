"""A tiny study: four digits a client, attacks of three steps, trainings of two rounds."""

import io
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from lightleak.reproductions.fedavg.clients import ImageClients
from lightleak.reproductions.fedavg.setting import PRESETS, FedAvgPreset

CPU = torch.device("cpu")


@pytest.fixture(scope="session")
def tiny() -> FedAvgPreset:
    """The digits' preset with little work."""
    digits = PRESETS["digits"]
    network = {**digits.network, "channels": [4, 6], "hidden": 12}
    return replace(digits, network=network, rows=4, steps=3, rounds=2, clients_per_round=2)


@pytest.fixture
def study(tiny: FedAvgPreset, monkeypatch: pytest.MonkeyPatch) -> FedAvgPreset:
    """The tiny preset in the place of the digits' and of the default's."""
    for name in ("digits", "framed_digits"):
        monkeypatch.setitem(PRESETS, name, tiny)
    return tiny


@pytest.fixture(scope="session")
def clients(tiny: FedAvgPreset) -> ImageClients:
    """Clients of the tiny preset."""
    return ImageClients(tiny, seed=3)


@pytest.fixture(scope="session")
def silent() -> Console:
    """A console nobody sees."""
    return Console(file=io.StringIO())
