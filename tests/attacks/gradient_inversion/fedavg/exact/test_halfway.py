"""Weight updates of chains, inverted as a gradient at the middle of the weights' way."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.exact.certify.proven import Proof
from lightleak.attacks.gradient_inversion.exact.shell import CertifiedRows
from lightleak.attacks.gradient_inversion.fedavg.exact import halfway
from lightleak.attacks.gradient_inversion.fedavg.exact.config import ExactFedAvgConfig
from lightleak.attacks.gradient_inversion.fedavg.exact.halfway import is_fine, is_served, way_error, weight_rounding
from lightleak.attacks.gradient_inversion.fedavg.exact.observed import as_gradient
from lightleak.attacks.gradient_inversion.joint.config import JointConfig
from lightleak.attacks.gradient_inversion.network.chain import observed_gradient
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.core.reconstruction import Reconstruction
from lightleak.core.seeds import generator
from lightleak.data.encoder import TableEncoder
from lightleak.metrics.certificate import wrong_certificates
from lightleak.metrics.score import score
from lightleak.protocols import fedavg, fedsgd
from lightleak.protocols.aggregate import aggregate_updates
from lightleak.protocols.client_training import LocalTraining
from lightleak.targets.spec import NetworkSpec, build_network

Client = tuple[ClientUpdate, GroundTruth, TableEncoder]
ONE, SEVERAL = LocalTraining(1, 6, 0.01), LocalTraining(3, 3, 0.01)


@pytest.fixture
def client(make_batch: Any) -> Callable[..., Client]:
    """A client of an MLP."""

    def make(local: LocalTraining, n: int = 6, seed: int = 0, activation: str = "tanh") -> Client:
        batch = make_batch(n, seed=seed)
        spec = NetworkSpec("mlp", 2, batch.encoder.layout, {"hidden": [60, 30], "activation": activation})
        network, truth = build_network(spec, seed), batch.truth
        rows = truth.inputs, truth.labels
        update, _ = fedavg.client_update(network, spec, batch.encoder, *rows, local, share_labels="none", seed=seed)
        return replace(update, marginals=batch.update.marginals), truth, batch.encoder

    return make


def inverted(client: Client, restarts: int = 1, steps: int = 600) -> Reconstruction:
    """What `exact_fedavg` finds, none of it wrongly certified."""
    update, truth, encoder = client
    found = ATTACKS.get("exact_fedavg")(restarts=restarts, steps=steps).run(update, 0)
    assert wrong_certificates(found, truth, encoder) == (0, 0)
    return found


def test_rows_of_one_local_step_are_proven_with_their_labels(client: Any) -> None:
    made = client(ONE)
    found = inverted(made)
    assert found.certificate is not None and found.certificate.labels_proven
    assert found.certificate.certified == found.certificate.certified_digits == 6
    assert found.certificate.feasibility.expected == "exact"
    assert score(found, made[1], made[2])["cell_accuracy"] == 1.0


def test_rows_of_several_local_steps_are_found_and_those_that_the_first_layer_shows_proven(
    client: Any,
) -> None:
    made = client(SEVERAL)
    found = inverted(made)
    assert score(found, made[1], made[2])["cell_accuracy"] == 1.0
    assert found.labels.sort().values.tolist() == made[1].labels.sort().values.tolist()
    assert found.certificate is not None and not found.certificate.labels_proven
    assert "the first layer alone proves rows of 6 local steps" in found.certificate.feasibility.reason
    assert found.certificate.certified


def test_the_rounding_of_weights_is_known(client: Any, make_batch: Any) -> None:
    update, truth, encoder = client(ONE)
    spec = NetworkSpec.from_dict(update.network)
    network = build_network(spec, 0)
    network.load_state_dict(dict(update.parameters))
    exact, _ = fedsgd.client_update(
        network.double(), spec, encoder, truth.inputs.double(), truth.labels, share_labels=False
    )
    pairs = zip(observed_gradient(as_gradient(update)), observed_gradient(exact), strict=True)
    for (sent, true), variance in zip([*pairs], weight_rounding(update, "cpu"), strict=True):
        moved = true != 0
        assert 0.7 < float(((sent - true).square() / variance)[moved].mean()) < 1.2


def test_drawn_rows_foresee_what_the_mean_gradient_differs_by_from_the_one_halfway(client: Any) -> None:
    update, truth, _ = client(SEVERAL)
    true = way_error(update, truth.inputs.double(), truth.labels, generator(0, "true"))
    drawn = truth.inputs.double()[torch.randperm(6, generator=generator(1, "rows"))]
    foreseen = way_error(update, drawn, truth.labels.flip(0), generator(0, "drawn"))
    assert 0.3 < foreseen / true < 3
    assert true < 0.02 * float(as_gradient(update).update["linears.0.weight"].square().mean().sqrt())


def test_nothing_is_proven_where_weights_hardly_moved(client: Any) -> None:
    made = client(LocalTraining(1, 6, 1e-7))
    assert not is_fine(made[0]) and is_fine(client(ONE)[0])
    found = inverted(made)
    assert found.certificate is not None and found.certificate.certified == 0 and not found.certificate.labels_proven
    assert "do not explain to its rounding" in found.certificate.feasibility.reason


def test_labels_are_not_claimed_where_the_first_layer_alone_proves_rows(client: Any, monkeypatch: Any) -> None:
    """The last layer did not train, which the facts do not say: labels then follow from nothing."""
    few = JointConfig(noised_restarts=1, noised_steps=60, noised_rounds=0)
    monkeypatch.setattr(ExactFedAvgConfig, "joint", lambda self: replace(few, prior=self.prior))
    certified = 0
    for seed in (1, 2):
        update, truth, encoder = client(LocalTraining(1, 3, 1.0), n=3, seed=seed)
        frozen = {name: 0 * u if name.startswith("linears.2") else u for name, u in update.update.items()}
        found = inverted((replace(update, update=frozen), truth, encoder))
        assert found.certificate is not None and not found.certificate.labels_proven
        assert found.certificate.feasibility.reason.endswith("labels are not proven")
        certified += found.certificate.certified
    assert certified


def test_updates_whose_steps_are_not_known_are_left_to_the_first_layer(client: Any) -> None:
    update, _, _ = client(SEVERAL)
    assert is_served(update)
    for name in ("learning_rate", "batch_size", "epochs"):
        assert not is_served(replace(update, facts=replace(update.facts, **{name: None})))
    for contradicting in ({"momentum": 0.5}, {"local_steps": 5}):
        assert not is_served(replace(update, facts=replace(update.facts, **contradicting)))
    assert not is_served(aggregate_updates([update, update]))
    assert is_served(client(SEVERAL, activation="relu")[0])


def behind_noise(client: Client, scale: float, factor: float = 1.0) -> Client:
    """The client's update times a factor behind noise of a scale that is a gradient's."""
    update, truth, encoder = client
    draws, steps = generator(0, "noise"), update.facts.epochs * -(-len(truth.labels) // update.facts.batch_size)
    noise = {k: torch.randn(u.shape, generator=draws) for k, u in update.update.items()}
    sent = {k: factor * u + scale * steps * update.facts.learning_rate * noise[k] for k, u in update.update.items()}
    return replace(update, update=sent, state="noised"), truth, encoder


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_rows_behind_noise_are_found_without_proof(client: Any, activation: str) -> None:
    """The first layer alone finds nothing here."""
    found = inverted(made := behind_noise(client(SEVERAL, activation=activation), 2e-3), restarts=2)
    assert score(found, made[1], made[2])["cell_accuracy"] > 0.95
    assert found.certificate is not None and found.certificate.certified == 0
    assert found.certificate.status == ("likely",) * 6
    assert "6 local steps behind a defense" in found.certificate.feasibility.reason
    assert 1.5e-3 < found.certificate.feasibility.noise < 4e-3


def test_the_first_layer_proves_rows_behind_little_noise(client: Any) -> None:
    update, truth, encoder = behind_noise(client(SEVERAL, activation="relu"), 3e-6)
    told: list[float] = []
    (found,) = ATTACKS.get("exact_fedavg")(restarts=1, steps=600).run_many([update], [0], progress=told.append)
    assert wrong_certificates(found, truth, encoder) == (0, 0)
    assert score(found, truth, encoder)["cell_accuracy"] == 1.0
    assert found.certificate is not None and found.certificate.certified
    assert sum(told) == pytest.approx(1)


@pytest.mark.parametrize(("scale", "factor"), [(0.0, 0.1), (1e-5, 0.5)])
def test_updates_that_were_clipped_are_not_explained(client: Any, scale: float, factor: float) -> None:
    update, _, encoder = behind_noise(client(SEVERAL, activation="relu"), scale, factor)
    few = JointConfig(noised_restarts=1, noised_steps=60, noised_rounds=0)
    assert halfway.halfway_rows(update, encoder, few, 0, None) is None
    if scale:
        update, _, encoder = behind_noise(client(SEVERAL, activation="relu"), scale)
        assert halfway.halfway_rows(update, encoder, few, 0, None) is not None


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_a_guess_is_returned_where_noise_hides_the_rows(client: Any, activation: str) -> None:
    update, _, _ = behind_noise(client(SEVERAL, activation=activation), 10.0)
    found = ATTACKS.get("exact_fedavg")(restarts=1, steps=600).run(update, 0)
    assert found.certificate is not None and found.certificate.status == ("missing",) * 6


def test_proven_rows_take_the_places_of_those_most_like_them(client: Any) -> None:
    _, truth, encoder = client(ONE)
    x = truth.inputs.double()
    certified = CertifiedRows(x, truth.labels, None, 0.0, Proof.nothing(x), torch.ones(6), None)  # type: ignore[arg-type]
    off = x[[4, 1]].clone()
    at = encoder.numerical_positions[0]
    off[0, at] += 0.25
    proof = Proof(torch.tensor([True, True]), torch.tensor([True, False]))
    merged = halfway.with_proven(certified, off, proof, encoder)
    assert merged.proof.cells.tolist() == [False, True, False, False, True, False]
    assert not merged.labels_proven
    assert merged.proof.digits.tolist() == [False, False, False, False, True, False]
    assert torch.equal(merged.encoded[4], off[0]) and torch.equal(merged.encoded[1], x[1])
    assert halfway.with_proven(certified, off[:0], proof, encoder) is certified
