"""An audit under FedAvg: fresh clients, a federation that is captured and resumed, aggregates, and wrong use."""

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from lightleak.callbacks.capture_store import Capture, list_captures
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import derive_seed
from lightleak.experiments.clients import FreshFedAvgClients
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.kinds.updates.plan import load_capture
from lightleak.experiments.load import load_config
from lightleak.experiments.plan_text import describe_plan
from lightleak.experiments.run import attack_captures, resumed_config, run_audit
from lightleak.experiments.took import TOOK
from lightleak.experiments.training import client_rows, federated_data, federation
from lightleak.protocols import fedavg
from lightleak.protocols.federation import FederatedAveraging
from lightleak.targets.spec import build_network

Config = Callable[..., AuditConfig]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny_fedavg: Config) -> Path:
    """The folder of an uninterrupted, monitored run with dropout; tests only read it."""
    folder = tmp_path_factory.mktemp("fedavg") / "run"
    run_audit(_dropout(tiny_fedavg), folder, console=Console(file=io.StringIO()))
    return folder


def _dropout(tiny_fedavg: Config) -> AuditConfig:
    monitor = {"attack": "inverting_gradients_fedavg", "options": {"steps": 5}}
    return tiny_fedavg(target__options={"hidden": [6], "dropout": 0.3}, monitor=monitor)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((folder / "results.json").read_text())["rows"]
    return rows


def test_rows_say_what_clients_did(run: Path) -> None:
    facts = ("source", "epoch", "batch_size", "local_epochs", "local_batches", "local_batch_size", "n_clients")
    per_attack = [
        ("initial", 0, 4, 2, 2, 2, 1),
        ("initial", 0, 4, 2, 2, 2, 1),
        ("training", 0, 6, 2, 2, 3, 1),
        ("training", 2, 6, 2, 2, 3, 1),
    ]
    for attack in ("tableak_fedavg", "random"):
        rows = [row for row in rows_of(run) if row["attack"] == attack]
        assert [tuple(row[name] for name in facts) for row in rows] == per_attack
        assert {(row["protocol"], row["defense"]) for row in rows} == {("fedavg", "none")}
        assert all(0 <= row["cell_accuracy"] <= 1 for row in rows)


def test_summary_keeps_apart_what_differs(run: Path) -> None:
    summary = json.loads((run / "results.json").read_text())["summary"]
    assert [(group["attack"], group["source"], group["epoch"], group["cell_accuracy"]["n"]) for group in summary] == [
        (attack, *rest)
        for attack in ("tableak_fedavg", "random")
        for rest in (("initial", 0, 2), ("training", 0, 1), ("training", 2, 1))
    ]
    assert all(group["local_epochs"] == 2 and "epsilon" not in group for group in summary)


def test_validation_and_leakage_stand_in_the_metrics_of_every_round(run: Path) -> None:
    metrics = pd.read_csv(run / "metrics.csv")
    for name in ("val/accuracy", "train/loss"):
        assert list(metrics.dropna(subset=[name])["epoch"]) == [0, 1, 2]
    scored = "reconstruction/inverting_gradients_fedavg/cell_accuracy"
    assert list(metrics.dropna(subset=[scored])["epoch"]) == [0, 2]
    trained = json.loads((run / "training.json").read_text())
    assert trained["epochs"] == 3 and 0 <= trained["test"]["test/accuracy"] <= 1


def test_captures_are_clients_of_the_federation(run: Path) -> None:
    """Held against a federation trained again by hand, without an audit around it."""
    config = load_config(run / "config.yaml")
    experiment = prepare_experiment(config)
    data, model = federated_data(config, experiment), federation(config, experiment)
    before = build_network(experiment.spec, derive_seed(config.seed, "network")).state_dict()
    assert all(torch.equal(value, before[name]) for name, value in model.network.state_dict().items())
    everyone = [set(part.tolist()) for part in data.partition]
    assert [len(rows) for rows in everyone] == [6] * 8 and len(set.union(*everyone)) == 48
    for folder in list_captures(run / "captures"):
        update, truth = load_capture(folder)  # which replays it
        assert truth is not None and update.facts.n_rows == 6 and update.kind == "delta"
        client = int(folder.name.rpartition("-r")[2])
        own = data.train.tensors[0][data.partition[client]]
        assert torch.equal(own, truth.inputs)


def test_report_tells_fedavg_in_words(run: Path) -> None:
    page = (run / "report.html").read_text()
    for words in (
        "FedAvg: a client trains on its rows for a while",
        "Here: 2 local epochs of 2 batches.",
        "a message made from ",
        "Under FedAvg the server also knows how many rows",
        "Rows behind an update",
        "in each round of training",
    ):
        assert words in page, words
    assert "FedSGD:" not in page


@pytest.mark.parametrize("at", [1, 2])
def test_training_goes_on_to_the_same_bits(
    tmp_path: Path, tiny_fedavg: Config, run: Path, silent: Console, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    plain, folder = FederatedAveraging.training_step, tmp_path / "run"

    def stops(self: FederatedAveraging, batch: Any, batch_index: int) -> None:
        if self.current_epoch == at:
            raise KeyboardInterrupt
        plain(self, batch, batch_index)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(FederatedAveraging, "training_step", stops)
        run_audit(_dropout(tiny_fedavg), folder, console=silent)
    run_audit(resumed_config(folder), folder, console=silent)
    without = [[{k: v for k, v in row.items() if k not in TOOK} for row in rows_of(one)] for one in (folder, run)]
    assert without[0] == without[1]
    captures = {path.relative_to(run) for path in run.glob("captures/*/*/*.safetensors")}
    assert captures == {path.relative_to(folder) for path in folder.glob("captures/*/*/*.safetensors")}
    for path in captures:
        first, second = load_file(run / path), load_file(folder / path)
        assert all(np.array_equal(first[name], second[name]) for name in first)
    got, expected = (pd.read_csv(f / "metrics.csv", float_precision="round_trip") for f in (folder, run))
    pd.testing.assert_frame_equal(got[sorted(got)], expected[sorted(expected)], check_exact=True)


def test_aggregates_are_of_as_many_clients_as_stated(tmp_path: Path, tiny_fedavg: Config, silent: Console) -> None:
    config = tiny_fedavg(protocol__aggregate=2, protocol__rounds=1, capture__per_epoch=2)
    rows = run_audit(config, tmp_path / "run", console=silent)["rows"]
    sizes = [(row["source"], row["batch_size"], row["n_clients"]) for row in rows if row["attack"] == "random"]
    assert sizes == [("initial", 8, 2)] * 2 + [("training", 12, 2)] * 2
    page = (tmp_path / "run" / "report.html").read_text()
    assert "the server sees the mean of 2 clients, not what each has sent" in page


def test_fresh_aggregates_are_means_of_their_clients(tiny_fedavg: Config) -> None:
    config = tiny_fedavg(protocol__aggregate=2)
    experiment = prepare_experiment(config)
    people, single = experiment.population, replace(config.protocol, aggregate=1)
    both = FreshFedAvgClients(people, experiment.spec, 0, config.protocol, "counts")
    update, truth = both.observe(4, 1)
    first, own = FreshFedAvgClients(people, experiment.spec, 0, single, "counts").observe(4, 1)
    assert torch.equal(truth.inputs[:4], own.inputs) and not torch.equal(truth.inputs[4:], own.inputs)
    assert update.facts.client_rows == (4, 4)
    assert all(torch.equal(update.parameters[name], value) for name, value in first.parameters.items())
    second, _ = fedavg.client_update(
        build_network(experiment.spec, derive_seed(0, "network", 4, 1)),
        experiment.spec,
        people.encoder,
        truth.inputs[4:],
        truth.labels[4:],
        single.local_training(4),
        share_labels="counts",
        seed=derive_seed(0, "local", 4, 1, 1),
    )
    for name, mean in update.update.items():
        torch.testing.assert_close(mean, (first.update[name] + second.update[name]) / 2)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"attacks": {"tableak": {}}}, r"tableak inverts one FedSGD gradient; this update is a delta"),
        ({"monitor__attack": "tableak"}, "this update is a delta of 2 epochs"),
        ({"protocol__client_rows": 13}, "8 clients with 13 rows need 104 training rows, 'synthetic' has 86"),
        ({"protocol__clients": 90, "protocol__client_rows": None}, "90 clients with 1 rows need 90 training rows"),
        ({"protocol__client_rows": 5, "protocol__local_batches": 4}, "5 rows cannot be cut into 4 batches"),
        ({"training__trainer": {"accelerator": "carrier"}}, "training.trainer: .*carrier"),
    ],
)
def test_what_cannot_be_served_is_refused_before_any_work(
    tmp_path: Path, tiny_fedavg: Config, silent: Console, changed: dict[str, Any], message: str
) -> None:
    config = tiny_fedavg(**changed)
    with pytest.raises(UsageError, match=message):
        run_audit(config, tmp_path / "run", console=silent)
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match=message):
        describe_plan(config, silent)


def test_a_fedsgd_gradient_is_refused_by_an_attack_on_fedavg(tmp_path: Path, tiny: Config, silent: Console) -> None:
    with pytest.raises(UsageError, match=r"simulates local training.*this update is one FedSGD gradient"):
        run_audit(tiny(attacks={"tableak_fedavg": {}}), tmp_path / "run", console=silent)
    assert not (tmp_path / "run").exists()


def test_clients_share_the_rows_that_there_are(tiny_fedavg: Config) -> None:
    config = tiny_fedavg(protocol__client_rows=None)
    assert client_rows(config, prepare_experiment(config)) == 86 // 8  # 96 training rows, a tenth held out
    without = tiny_fedavg(training__validation_fraction=0.0)
    assert federated_data(without, prepare_experiment(without)).val_dataloader() == []


def test_plan_describes_the_federation(tiny_fedavg: Config, capsys: pytest.CaptureFixture[str]) -> None:
    describe_plan(tiny_fedavg(), Console(width=200), seconds=0.1)
    printed = capsys.readouterr().out
    assert "3 rounds of 4 of 8 clients with 6 rows, 2 local epochs in batches of 3" in printed
    assert "4 on fresh clients in 2 packs, 4 on the training run" in printed


def test_captures_are_attacked_offline(tmp_path: Path, tiny_fedavg: Config, run: Path, silent: Console) -> None:
    rows = attack_captures(tiny_fedavg(attacks=["random"]), run / "captures", tmp_path / "off", console=silent)["rows"]
    own = [row for row in rows_of(run) if row["attack"] == "random" and row["source"] == "training"]
    keys = ("protocol", "batch_size", "local_epochs", "local_batches", "local_batch_size", "n_clients", "cell_accuracy")
    assert [[row[key] for key in keys] for row in rows] == [[row[key] for key in keys] for row in own]


@pytest.fixture
def captured(tmp_path: Path, tiny_fedavg: Config) -> tuple[Path, ClientUpdate]:
    """A fresh client's capture without truth, of 4 rows, 2 epochs of 2 batches."""
    config = tiny_fedavg()
    experiment = prepare_experiment(config)
    clients = FreshFedAvgClients(experiment.population, experiment.spec, 0, config.protocol, "counts")
    update, truth = clients.observe(4, 0)
    folder = Capture(update, truth).save(tmp_path / "captures")
    shutil.rmtree(folder / "truth")
    return folder, update


@pytest.mark.parametrize(
    ("attack", "facts", "message"),
    [
        ("tableak", {}, "tableak inverts one FedSGD gradient; this update is a delta of 2 epochs"),
        ("tableak_fedavg", {"local_steps": 5}, "5 local steps contradict 2 epochs"),
        ("tableak_fedavg", {"local_steps": 8}, "8 local steps contradict 2 epochs of 2 batches"),
        ("tableak_fedavg", {"n_clients": None}, "does not say how many"),
        ("tableak_fedavg", {"n_clients": 3}, "3 clients with rows .* do not make up the update's 4 rows"),
    ],
)
def test_updates_that_no_attack_can_serve_are_refused_before_any_work(
    tmp_path: Path,
    tiny_fedavg: Config,
    captured: tuple[Path, ClientUpdate],
    silent: Console,
    monkeypatch: pytest.MonkeyPatch,
    attack: str,
    facts: dict[str, Any],
    message: str,
) -> None:
    folder, update = captured
    shutil.rmtree(folder / "observation")
    replace(update, facts=replace(update.facts, **facts)).save(folder / "observation")
    monkeypatch.setattr("lightleak.experiments.run.run_packs", lambda *_, **__: pytest.fail("an attack ran"))
    with pytest.raises(ObservationError, match=message):
        attack_captures(tiny_fedavg(attacks=[attack]), folder, tmp_path / "run", console=silent)
    assert not (tmp_path / "run").exists()
