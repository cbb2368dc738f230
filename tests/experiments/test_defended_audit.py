"""An audit of clients that defend themselves: the same defense in what they send and in what trains the network."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from torch import Tensor

from lightleak.callbacks.capture_store import list_captures
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.defenses.horizontal import DPSGD
from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.experiments.clients import FreshClients, FreshFedAvgClients
from lightleak.experiments.config import AuditConfig
from lightleak.experiments.experiment import prepare_experiment
from lightleak.experiments.kinds.updates.plan import load_capture
from lightleak.experiments.load import load_config
from lightleak.experiments.plan_text import describe_plan
from lightleak.experiments.run import attack_captures, resumed_config, run_audit
from lightleak.experiments.training import client_defense, federated_data
from lightleak.protocols.fedsgd import client_update
from lightleak.protocols.replay import deviation, replay
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.spec import build_network

Config = Callable[..., AuditConfig]
NOISE = {"defense__name": "gaussian_noise", "defense__options": {"scale": 0.01}}
PRIVATE = {"defense__name": "dp_sgd", "defense__options": {"noise_multiplier": 1.0}}


@pytest.fixture(scope="module")
def noised(tmp_path_factory: pytest.TempPathFactory, tiny: Config) -> Path:
    folder = tmp_path_factory.mktemp("noised") / "run"
    run_audit(tiny(**NOISE), folder, console=Console(file=io.StringIO()))
    return folder


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory, tiny: Config) -> Path:
    pytest.importorskip("opacus", reason="the extra dp brings it")
    folder = tmp_path_factory.mktemp("private") / "run"
    run_audit(tiny(**PRIVATE, attacks=["random"]), folder, console=Console(file=io.StringIO()))
    return folder


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((folder / "results.json").read_text())["rows"]
    return rows


def flat(named: Any) -> Tensor:
    return torch.cat([named[name].flatten() for name in sorted(named)])


def test_rows_and_report_name_the_defense(noised: Path) -> None:
    rows = rows_of(noised)
    assert {row["source"] for row in rows} == {"initial", "training"}
    assert {(row["defense"], row["defense_strength"]) for row in rows} == {("gaussian_noise", 0.01)}
    assert all("epsilon" not in row and 0 <= row["cell_accuracy"] <= 1 for row in rows)
    page = (noised / "report.html").read_text()
    assert "With noise of standard deviation 0.01," in page and "differential privacy for every row" not in page


def test_what_is_captured_has_left_the_defense(noised: Path) -> None:
    for folder in list_captures(noised / "captures"):
        update, truth = load_capture(folder)
        assert update.state == "noised" and truth is not None
        experiment = prepare_experiment(load_config(noised / "config.yaml"))
        network = build_network(experiment.spec, seed=0)
        network.load_state_dict(dict(update.parameters))
        parts = experiment.spec, experiment.encoder, truth.inputs, truth.labels
        clean = flat(client_update(network, *parts, share_labels=True)[0].update)
        noise = flat(update.update) - clean
        assert 0.005 < float(noise.std()) < 0.02  # 76 draws of deviation 0.01
        assert replay(update, truth) != replay(update, truth)  # NaN: nothing to hold it against


def test_noise_enters_training(noised: Path, finished: Path) -> None:
    """The undefended run of the same seed starts from the same weights and ends elsewhere."""
    first, second = (list_captures(folder / "captures") for folder in (noised, finished))
    start, later = (
        deviation(*(flat(load_capture(folder)[0].parameters) for folder in pair))
        for pair in zip(first, second, strict=True)
    )
    assert start == 0 and later > 1e-4


@pytest.mark.parametrize("index", [0, 1])
def test_fresh_clients_send_their_gradient_with_the_noise_of_the_scale(tiny: Config, index: int) -> None:
    experiment = prepare_experiment(tiny())
    people = experiment.population

    def sent(scale: float | None) -> Tensor:
        defense = None if scale is None else GaussianNoise(scale)
        return flat(FreshClients(people, experiment.spec, 0, True, defense=defense).observe(4, index)[0].update)

    clean, weak, strong = sent(None), sent(0.1), sent(0.2)
    assert torch.equal(sent(0.0), clean)
    assert torch.allclose(strong - clean, 2 * (weak - clean), atol=1e-6)  # one draw for all scales
    assert 0.05 < float((weak - clean).std()) < 0.2


def test_fresh_clients_differ_in_their_noise_and_say_what_they_did(tiny: Config) -> None:
    experiment = prepare_experiment(tiny())
    clients = FreshClients(experiment.population, experiment.spec, 0, True, defense=GaussianNoise(100.0))
    (first, truth), (second, _) = clients.observe(4, 0), clients.observe(4, 1)
    assert deviation(flat(first.update), flat(second.update)) > 0.5
    assert (first.state, first.facts.defense) == ("noised", "Gaussian noise of scale 100")
    assert torch.equal(
        truth.inputs, FreshClients(experiment.population, experiment.spec, 0, True).observe(4, 0)[1].inputs
    )


def test_an_audit_attacks_several_releases_of_the_same_rows_together(tiny: Config, tmp_path: Path) -> None:
    quick = {"exact_joint": {"noised_restarts": 1, "noised_steps": 5}, "random": {}}
    settings = {"target__network": "mlp", "target__options": {"hidden": [8, 8]}, "training__epochs": 0}
    rounds = {"initial__batch_sizes": [2], "initial__batches": 1, "initial__releases": 3}
    config = tiny(**NOISE, **settings, **rounds, attacks=quick, labels="restored")
    run_audit(config, tmp_path / "run", console=Console(file=io.StringIO()))
    rows = rows_of(tmp_path / "run")
    assert {(row["attack"], row["releases"]) for row in rows} == {("exact_joint", 3), ("random", 3)}
    assert "gradients of the same rows in 3 rounds" in (tmp_path / "run" / "report.html").read_text()
    with pytest.raises(UsageError, match="releases of the same rows"):
        refused = tiny(**NOISE, **settings, **rounds, attacks={"exact": {}}, labels="restored")
        run_audit(refused, tmp_path / "refused", console=Console(file=io.StringIO()))


@pytest.mark.parametrize("change", [{}, {"defense__name": "dp_sgd", "defense__options": {"noise_multiplier": 1.0}}])
def test_releases_are_those_of_a_defense_of_updates(tiny: Config, change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"initial\.releases repeats FedSGD gradients"):
        tiny(**change, initial__releases=2)


def test_point_of_a_fedavg_clients_defense(tiny_fedavg: Config) -> None:
    experiment, protocol = prepare_experiment(tiny_fedavg()), tiny_fedavg().protocol
    people, spec = experiment.population, experiment.spec

    def sent(scale: float, point: Any) -> Tensor:
        clients = FreshFedAvgClients(people, spec, 0, protocol, "counts", GaussianNoise(scale), point)
        return flat(clients.observe(4, 0)[0].update)

    clean = flat(FreshFedAvgClients(people, spec, 0, protocol, "counts").observe(4, 0)[0].update)
    assert deviation(sent(0.0, "update"), clean) < 1e-6
    assert torch.equal(sent(0.0, "steps"), clean)
    assert deviation(sent(0.1, "update"), sent(0.1, "steps")) > 0.01


def test_federation_trains_on_what_defended_clients_send(tmp_path: Path, tiny_fedavg: Config, silent: Console) -> None:
    config = tiny_fedavg(**NOISE, defense__point="steps", protocol__rounds=1, attacks=["random"])
    rows = run_audit(config, tmp_path / "run", console=silent)["rows"]
    assert {(row["protocol"], row["defense"], row["defense_strength"]) for row in rows} == {
        ("fedavg", "gaussian_noise", 0.01)
    }
    (folder,) = list_captures(tmp_path / "run" / "captures")
    assert load_capture(folder)[0].state == "noised"


def test_defended_captures_are_attacked_offline_unchecked(
    tmp_path: Path, tiny: Config, noised: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = attack_captures(tiny(attacks=["random"]), noised / "captures", tmp_path / "off", console=Console(width=200))
    assert "2 defended updates cannot be checked against their rows" in capsys.readouterr().out
    assert {row["defense"] for row in rows["rows"]} <= {"noised", "Gaussian noise of scale 0.01"}


def test_a_truth_of_other_rows_is_refused_even_where_it_cannot_be_replayed(
    tmp_path: Path, tiny: Config, silent: Console
) -> None:
    folder = tmp_path / "run"
    run_audit(tiny(**NOISE, attacks=["random"], initial__batches=1), folder, console=silent)
    first, *_ = list_captures(folder / "captures")
    truth = GroundTruth.load(first / "truth")
    for file in (first / "truth").iterdir():
        file.unlink()
    GroundTruth(truth.inputs[:-1], truth.labels[:-1]).save(first / "truth")
    with pytest.raises(ObservationError, match="the update speaks of 8 rows, the recorded ones are 7"):
        load_capture(first)


def test_epsilon_and_delta_stand_in_rows_and_in_the_training(private: Path) -> None:
    trained = json.loads((private / "training.json").read_text())
    assert trained["epsilon"] > 0 and trained["delta"] == 1e-5 and trained["steps"] == 22
    sampled = DPSGD(noise_multiplier=1.0).epsilon(8 / 86, 22)  # 86 rows, 2 epochs of 11 steps
    assert trained["epsilon"] == pytest.approx(sampled)
    for row in rows_of(private):
        assert (row["defense"], row["defense_strength"]) == ("dp_sgd", 1.0)
        # It is about the training with its sampled batches, not about the one batch of a fresh client.
        assert row.get("epsilon") == (trained["epsilon"] if row["source"] == "training" else None)
        release = DPSGD(noise_multiplier=1.0).release_epsilon()  # of the one update that is attacked, whatever it is
        assert (row["release_epsilon"], row["delta"]) == (pytest.approx(release), 1e-5)
    for group in json.loads((private / "results.json").read_text())["summary"]:
        # a fact of the group, no metric of it
        assert group.get("epsilon") == (trained["epsilon"] if group["source"] == "training" else None)
    page = " ".join((private / "report.html").read_text().split())
    assert "differential privacy for every row, at δ 1e-05: ε 4.11 of the whole training, ε 4.38 of one update" in page
    assert {load_capture(folder)[0].state for folder in list_captures(private / "captures")} == {"noised"}


def test_private_training_goes_on_to_the_same_bits(
    tmp_path: Path, tiny: Config, private: Path, silent: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, folder = TabularClassifier.training_step, tmp_path / "run"

    def stops(self: TabularClassifier, batch: Any, batch_index: int) -> Any:
        if self.trainer.global_step == 15:
            raise KeyboardInterrupt
        return plain(self, batch, batch_index)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TabularClassifier, "training_step", stops)
        run_audit(tiny(**PRIVATE, attacks=["random"]), folder, console=silent)
    run_audit(resumed_config(folder), folder, console=silent)
    assert (folder / "training.json").read_text() == (private / "training.json").read_text()
    for path in (path.relative_to(private) for path in private.glob("captures/*/*/*.safetensors")):
        first, second = load_file(private / path), load_file(folder / path)
        assert all(np.array_equal(first[name], second[name]) for name in first), path
    got, expected = (pd.read_csv(one / "metrics.csv", float_precision="round_trip") for one in (folder, private))
    pd.testing.assert_frame_equal(got[sorted(got)], expected[sorted(expected)], check_exact=True)


def test_a_target_epsilon_decides_the_noise_of_fresh_clients_as_of_the_training(tiny: Config) -> None:
    pytest.importorskip("opacus", reason="the extra dp brings it")
    config = tiny(defense__name="dp_sgd", defense__options={"target_epsilon": 5.0})
    defense = client_defense(config, prepare_experiment(config))
    assert isinstance(defense, DPSGD) and defense.noise_multiplier is not None
    assert 4.9 < defense.epsilon(8 / 86, 22) <= 5.0


def test_dp_sgd_in_local_steps_of_fedavg_counts_every_step_of_a_row(
    tmp_path: Path, tiny_fedavg: Config, silent: Console
) -> None:
    pytest.importorskip("opacus", reason="the extra dp brings it")
    defense = {"name": "dp_sgd", "options": {"target_epsilon": 8.0}, "point": "steps"}
    config = tiny_fedavg(defense=defense, attacks=["random"])
    run_audit(config, tmp_path / "run", console=silent)
    granted = json.loads((tmp_path / "run" / "training.json").read_text())
    data = federated_data(config, prepare_experiment(config))
    takes = torch.cat([next(iter(data.train_dataloader().sampler)) for _ in range(config.protocol.rounds)]).bincount()
    # Two local epochs in each of at most three rounds.
    assert granted["steps"] == 2 * int(takes.max()) <= 6
    private = DPSGD(noise_multiplier=granted["noise_multiplier"])
    assert granted["epsilon"] == pytest.approx(8.0) == private.release_epsilon(granted["steps"])
    assert granted["release_epsilon"] == pytest.approx(private.release_epsilon(2))
    rows = rows_of(tmp_path / "run")
    trained = [row for row in rows if row["source"] == "training"]
    assert {row["epsilon"] for row in trained} == {granted["epsilon"]} and len(rows) > len(trained)
    assert {row["release_epsilon"] for row in trained} == {granted["release_epsilon"]}
    fresh = client_defense(config, prepare_experiment(config))
    assert isinstance(fresh, DPSGD) and fresh.noise_multiplier == granted["noise_multiplier"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"target__options": {"hidden": [6], "norm": "batch"}}, "dp_sgd cannot protect these layers"),
        ({"defense__options": {"noise_multiplier": 1.0, "delta": 0.4}}, "delta must be below 1/86"),
        ({"defense__options": {}}, "give either noise_multiplier or target_epsilon"),
        ({"defense__options": {"target_epsilon": 1.0}, "training__epochs": 0}, "training.epochs is 0: give noise"),
        ({"defense__name": "dp_sdg"}, "did you mean 'dp_sgd'"),
        ({"training__trainer": {"accumulate_grad_batches": 2}}, "needs accumulate_grad_batches=1.*got 2"),
        ({"training__trainer": {"precision": "bf16-mixed"}}, "dp_sgd needs precision 32-true or 64-true"),
        ({"training__trainer": {"gradient_clip_val": 1.0}}, "gradient_clip_val=1.0.* would have no effect"),
    ],
)
def test_what_no_defense_can_protect_is_refused_before_any_work(
    tmp_path: Path, tiny: Config, silent: Console, changed: dict[str, Any], message: str
) -> None:
    pytest.importorskip("opacus", reason="the extra dp brings it")
    with pytest.raises(UsageError, match=message):
        run_audit(tiny(**{**PRIVATE, **changed}), tmp_path / "run", console=silent)
    assert not (tmp_path / "run").exists()


def test_a_delta_that_no_federation_can_have_is_refused_before_any_work(
    tmp_path: Path, tiny_fedavg: Config, silent: Console
) -> None:
    pytest.importorskip("opacus", reason="the extra dp brings it")
    defense = {"name": "dp_sgd", "options": {"noise_multiplier": 1.0, "delta": 0.1}, "point": "steps"}
    with pytest.raises(UsageError, match="delta must be below 1/48"):
        run_audit(tiny_fedavg(defense=defense), tmp_path / "run", console=silent)
    assert not (tmp_path / "run").exists()


def test_plan_names_the_defense(tiny: Config, capsys: pytest.CaptureFixture[str]) -> None:
    describe_plan(tiny(**NOISE), Console(width=200), seconds=0.1)
    assert "defense   Gaussian noise of scale 0.01" in capsys.readouterr().out
