"""What rows say of an update: the same whether it is told by the config or by the update itself."""

import html
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lightleak.callbacks.capture_store import list_captures, load_update
from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.defenses.horizontal.privacy_accounting import gaussian_epsilon
from lightleak.experiments import row_facts
from lightleak.experiments.clients import FreshClients, FreshFedAvgClients
from lightleak.experiments.experiment import Experiment, prepare_experiment
from lightleak.experiments.federation_config import DefenseConfig, ProtocolConfig
from lightleak.experiments.kinds.updates.plan import fresh_clients, plan_units
from lightleak.experiments.row_facts import (
    STATISTICS_LEAVE,
    defense_facts,
    observed_defense,
    observed_facts,
    protocol_facts,
    release_facts,
)
from lightleak.experiments.run import run_audit
from lightleak.targets.normalization import moved_buffers
from lightleak.targets.spec import build_network


@pytest.fixture(scope="module")
def experiment(tiny: Any) -> Experiment:
    return prepare_experiment(tiny())


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"local_epochs": 3},
        {"local_epochs": 3, "local_batches": 4},
        {"local_batch_size": 3},
        {"local_batch_size": 32},
        {"local_epochs": 2, "local_batches": 2, "aggregate": 3},
    ],
)
def test_config_and_update_agree(experiment: Experiment, settings: dict[str, Any]) -> None:
    protocol = ProtocolConfig("fedavg", rounds=0, **settings)
    clients = FreshFedAvgClients(experiment.population, experiment.spec, 0, protocol, "counts")
    update, _ = clients.observe(8, 0)
    assert observed_facts(update) == protocol_facts(protocol, 8)
    without = replace(update, facts=replace(update.facts, local_steps=None))
    assert observed_facts(without) == observed_facts(update)


def test_a_gradient_is_one_step_of_one_client(experiment: Experiment) -> None:
    update, _ = FreshClients(experiment.population, experiment.spec, 0, True).observe(8, 0)
    assert observed_facts(update) == protocol_facts(ProtocolConfig(), 8)
    micro = replace(update, facts=replace(update.facts, batch_size=4))  # accumulated over two micro-batches
    assert observed_facts(micro) == observed_facts(update)


def test_what_an_update_does_not_say_is_none(experiment: Experiment) -> None:
    protocol = ProtocolConfig("fedavg", local_epochs=2)
    update, _ = FreshFedAvgClients(experiment.population, experiment.spec, 0, protocol, "none").observe(4, 0)
    unsaid = replace(update, facts=replace(update.facts, epochs=None, batch_size=None, n_clients=None))
    facts = observed_facts(unsaid)
    assert (facts["protocol"], facts["batch_size"]) == ("fedavg", 4)
    assert {facts[name] for name in ("local_epochs", "local_batches", "local_batch_size", "n_clients")} == {None}


def test_defense_of_an_update_is_what_it_says(experiment: Experiment) -> None:
    plain, _ = FreshClients(experiment.population, experiment.spec, 0, True).observe(4, 0)
    noised, _ = FreshClients(experiment.population, experiment.spec, 0, True, defense=GaussianNoise(0.5)).observe(4, 0)
    silent = replace(noised, facts=replace(noised.facts, defense="none"))
    found = [observed_defense(update) for update in (plain, replace(plain, state="clipped"), noised, silent)]
    assert found == ["none", "clipped", "Gaussian noise of scale 0.5", "noised"]


def test_a_filter_is_accounted_for_the_size_of_the_network(experiment: Experiment) -> None:
    size = sum(p.numel() for p in build_network(experiment.spec).parameters())
    found = release_facts(DefenseConfig("nvflare_svt", {"fraction": 1.0, "noise_var": 0.5}), experiment.spec, False)
    assert found == {"release_epsilon": pytest.approx(0.1 + 0.5 * size), "delta": 0.0, "privacy_unit": "client"}
    every_step = DefenseConfig("nvflare_svt", point="steps")  # several releases, whose epsilon is not that of one
    for config in (
        every_step,
        DefenseConfig(),
        DefenseConfig("clipping"),
        DefenseConfig("dp_sgd", {"noise_multiplier": 1.0}),
    ):
        assert release_facts(config, experiment.spec, False) == {}


@pytest.mark.parametrize("name", ["flower_local_dp", "nvflare_svt"])
def test_several_releases_of_the_same_rows_spend_more_than_one(tiny: Any, name: str) -> None:
    said = {}
    for releases in (1, 20):
        settings = {"initial__releases": releases, "training__epochs": 0, "capture__epochs": []}
        config = tiny(**settings, defense={"name": name}, labels="restored", attacks={"exact_joint": {}})
        unit, *_ = plan_units(config, prepare_experiment(config), Path("missing"))
        said[releases] = unit.facts["release_epsilon"]
    # mu of Gaussian differential privacy adds in squares (Dong et al. 2019, Corollary 3.3), a pure epsilon as it is.
    mu = 2 / math.sqrt(2 * math.log(1.25 / 1e-5))
    expected = 20 * said[1] if name == "nvflare_svt" else gaussian_epsilon(1 / (mu * math.sqrt(20)), 1e-5)
    assert said[20] == pytest.approx(expected)
    assert said[20] > 5 * said[1]


@pytest.mark.parametrize(
    ("norm", "attack", "is_granted"),
    [("batch", "gradinversion", False), ("batch", "tableak", True), ("none", "exact", True)],
)
def test_a_filter_guarantees_nothing_of_raw_statistics(tiny: Any, norm: str, attack: str, is_granted: bool) -> None:
    """They travel with the filtered gradient, where an attack is to know them."""
    target = {"network": "mlp", "options": {"hidden": [8], "norm": norm}}
    options = {"batch_statistics": True} if attack == "exact" else {}
    config = tiny(defense={"name": "flower_local_dp"}, target=target, attacks={attack: options})
    made = prepare_experiment(config)
    update, _ = fresh_clients(config, made).observe(4, 0)
    (facts, *_) = (unit.facts for unit in plan_units(config, made, Path("missing")))
    assert ("release_epsilon" in facts) is is_granted is not bool(update.batch_statistics)
    assert facts.get("no_guarantee") == (None if is_granted else STATISTICS_LEAVE)


@pytest.mark.parametrize(("protocol", "of_fresh"), [("fedsgd", True), ("fedavg", False)])
def test_a_filter_guarantees_nothing_where_running_statistics_leave_the_client(
    tiny: Any, tiny_fedavg: Any, silent: Any, tmp_path: Path, protocol: str, of_fresh: bool
) -> None:
    """The server of FedAvg averages them, and the next update of FedSGD carries them."""
    pytest.importorskip("flwr", reason="the extra flower brings it")
    settings = {"target__options": {"hidden": [8], "norm": "batch"}, "attacks": {"random": {}}}
    settings |= {"defense": {"name": "flower_local_dp"}}
    if protocol == "fedavg":
        config = tiny_fedavg(**settings, protocol__clients_per_round=1, capture__epochs=[0, 1])
    else:
        config = tiny(**settings, training__epochs=1, capture__epochs=[0], capture__per_epoch=2)
    run_audit(config, tmp_path / "run", console=silent)
    first, second, *_ = map(load_update, list_captures(tmp_path / "run" / "captures"))
    (name,) = (name for name in first.buffers if name.endswith("running_mean"))
    assert not torch.equal(first.buffers[name], second.buffers[name])  # what a client's batch has moved
    rows = json.loads((tmp_path / "run" / "results.json").read_text())["rows"]
    granted = {row["source"]: row.get("release_epsilon") is not None for row in rows}
    assert granted == {"initial": of_fresh, "training": False}
    assert all((row.get("no_guarantee") == STATISTICS_LEAVE) is not granted[row["source"]] for row in rows)
    assert "privacy_unit" not in next(row for row in rows if row["source"] == "training")
    assert STATISTICS_LEAVE in html.unescape((tmp_path / "run" / "report.html").read_text())


class Remembers(nn.Module):
    """Keeps the mean of the last batch, without any BatchNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.last = nn.Linear(width, 2)
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("constant", torch.ones(1))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean = rows.mean(0)
        found: torch.Tensor = self.last(rows * self.constant)
        return found


def test_buffers_of_other_layers_count_too(experiment: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Remembers(experiment.spec.layout.width)
    assert moved_buffers(network, experiment.spec.layout.width) == ["mean"]
    assert float(network.mean.sum()) == 0
    monkeypatch.setattr(row_facts, "build_network", lambda *_, **__: network)
    filtered = DefenseConfig("flower_local_dp")
    assert release_facts(filtered, experiment.spec, True) == {"no_guarantee": STATISTICS_LEAVE}
    assert "release_epsilon" in release_facts(filtered, experiment.spec, False)


def test_a_network_that_keeps_nothing_of_a_batch_has_its_guarantee(experiment: Experiment) -> None:
    assert "release_epsilon" in release_facts(DefenseConfig("flower_local_dp"), experiment.spec, True)


def test_privacy_is_that_of_the_finished_training(tmp_path: Path) -> None:
    config = DefenseConfig("clipping", {"max_norm": 2.0})
    said = {"defense": "clipping", "defense_strength": 2.0}
    assert defense_facts(config, tmp_path / "training.json") == said
    (tmp_path / "training.json").write_text(json.dumps({"epochs": 2, "epsilon": 3.5, "delta": 1e-5, "steps": 4}))
    assert defense_facts(config, tmp_path / "training.json") == said | {"epsilon": 3.5, "delta": 1e-5}
