"""What rows say of an update: the same whether it is told by the config or by the update itself."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.defenses.horizontal.privacy_accounting import gaussian_epsilon
from lightleak.experiments.clients import FreshClients, FreshFedAvgClients
from lightleak.experiments.experiment import Experiment, prepare_experiment
from lightleak.experiments.federation_config import DefenseConfig, ProtocolConfig
from lightleak.experiments.kinds.updates.plan import fresh_clients, plan_units
from lightleak.experiments.row_facts import (
    defense_facts,
    observed_defense,
    observed_facts,
    protocol_facts,
    release_facts,
)
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


def test_privacy_is_that_of_the_finished_training(tmp_path: Path) -> None:
    config = DefenseConfig("clipping", {"max_norm": 2.0})
    said = {"defense": "clipping", "defense_strength": 2.0}
    assert defense_facts(config, tmp_path / "training.json") == said
    (tmp_path / "training.json").write_text(json.dumps({"epochs": 2, "epsilon": 3.5, "delta": 1e-5, "steps": 4}))
    assert defense_facts(config, tmp_path / "training.json") == said | {"epsilon": 3.5, "delta": 1e-5}
