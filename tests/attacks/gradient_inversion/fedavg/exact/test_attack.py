"""Exact inversion of weight updates, from observation to reconstruction."""

from dataclasses import replace

import pytest
import torch

from lightleak.attacks.gradient_inversion.declarations.exact import exact_fedavg
from lightleak.attacks.gradient_inversion.exact.certify.feasibility import RowKind, expected_of_delta
from lightleak.attacks.gradient_inversion.fedavg.exact.attack import ExactFedAvg
from lightleak.attacks.gradient_inversion.fedavg.exact.config import ExactFedAvgConfig
from lightleak.attacks.gradient_inversion.joint.config import JointConfig
from lightleak.core.errors import ObservationError, UnsupportedError, UsageError
from lightleak.core.seeds import generator

ATTACK = ExactFedAvg(ExactFedAvgConfig(restarts=1, steps=100))
QUICK = ExactFedAvg(ExactFedAvgConfig(restarts=1, steps=1))


def right(found, client, rows_right):
    return rows_right(*client.encoder.project(found.encoded.double()), found.labels, client)


@pytest.mark.parametrize(("epochs", "batches"), [(1, 1), (1, 3), (4, 1), (5, 2)])
def test_every_row_and_label_is_recovered_and_certified_whatever_the_local_training(
    make_client, rows_right, epochs, batches
):
    client = make_client(6, epochs, batches)
    found = ATTACK.run(client.update)
    assert right(found, client, rows_right) == 6
    assert found.certificate.complete
    assert found.certificate.residual < 1e-3
    assert found.certificate.feasibility.ranks[0] == 6


@pytest.mark.parametrize("encoding", ["onehot", "minmax"])
def test_other_encodings(make_client, rows_right, encoding):
    client = make_client(5, encoding=encoding)
    assert right(ATTACK.run(client.update), client, rows_right) == 5


def test_more_classes_and_layers(make_client, rows_right):
    client = make_client(5, hidden=(60, 30, 20), n_classes=4)
    assert right(ATTACK.run(client.update), client, rows_right) == 5


def test_rows_of_several_clients_are_recovered_from_their_aggregate(make_client, rows_right):
    client = make_client(3, clients=2)
    assert client.update.facts.n_clients == 2
    assert right(ATTACK.run(client.update), client, rows_right) == 6


def test_a_row_that_a_client_holds_twice_is_returned_twice(make_client, rows_right):
    client = make_client(5, rows=(0, 1, 2, 3, 3), labels=(0, 1, 0, 1, 1))
    found = ATTACK.run(client.update)
    assert right(found, client, rows_right) == 5
    assert sorted(found.certificate.multiplicity) == [1, 1, 1, 2, 2]


def test_steps_and_learning_rate_need_not_be_known(make_client, rows_right):
    client = make_client(6, 3, 2)
    facts = replace(client.update.facts, epochs=None, batch_size=None, local_steps=None, learning_rate=None)
    assert right(ATTACK.run(replace(client.update, facts=facts)), client, rows_right) == 6


def test_momentum_keeps_the_update_in_the_rows_span(make_client, rows_right):
    client = make_client(6, 3, 2, momentum=0.9)
    assert right(ATTACK.run(client.update), client, rows_right) == 6


def defended(client, factor=1.0, noise=0.0):
    """The client with an update that a defense divided by a factor or gave noise, relative to a mean element."""
    draws = generator(0)
    changed = {}
    for name, delta in client.update.update.items():
        drawn = torch.randn(delta.shape, generator=draws) * noise * delta.square().mean().sqrt()
        changed[name] = (delta + drawn) / factor
    return replace(client, update=replace(client.update, update=changed, state="noised"))


@pytest.mark.parametrize("factor", [1.0, 12.0, 1e4])
def test_an_update_that_its_client_clipped_is_brought_back_to_its_length(make_client, rows_right, factor):
    client = defended(make_client(12, epochs=5), factor)
    found = ATTACK.run(client.update)
    assert right(found, client, rows_right) == 12
    assert found.certificate.complete
    assert found.certificate.scale == pytest.approx(factor, rel=0.1)


def test_clipping_is_undone_behind_noise_as_well(make_client, rows_right):
    client = defended(make_client(12, epochs=5), 12.0, noise=1e-3)
    found = ATTACK.run(client.update)
    assert found.certificate.complete and right(found, client, rows_right) == 12
    assert found.certificate.scale == pytest.approx(12, rel=0.1)


@pytest.mark.parametrize("noise", [1e-5, 1e-2, 1.0])
def test_noise_is_measured_and_nothing_wrong_is_proven(make_client, rows_right, noise):
    client = defended(make_client(8), noise=noise)
    found = ATTACK.run(client.update)
    certificate, codes = found.certificate, client.encoder.project(found.encoded.double())[0]
    held = {
        (*cells, label) for cells, label in zip(client.cells[0].tolist(), client.truth.labels.tolist(), strict=True)
    }
    proven = [
        (*cells, label)
        for cells, label, status in zip(codes.tolist(), found.labels.tolist(), certificate.status, strict=True)
        if status == "certified"
    ]
    assert held.issuperset(proven)
    assert bool(proven) == (noise < 1)
    assert certificate.certified_digits <= right(found, client, rows_right)
    elements = torch.cat([delta.flatten() for delta in client.update.update.values()])
    assert certificate.feasibility.noise > 0.3 * noise * float(elements.square().mean().sqrt())


def test_where_noise_hides_the_rows_the_best_guess_is_returned(make_client):
    client = defended(make_client(8), noise=100.0)
    told = []
    (found,) = ATTACK.run_many([client.update], [0], progress=told.append)
    assert set(found.certificate.status) == {"missing"} and sum(told) == 1
    (other,) = ATTACK.run_many([defended(make_client(8), noise=150.0).update], [0])
    assert torch.equal(found.encoded, other.encoded)


def test_same_update_and_seed_give_the_same_bits(make_client):
    client = make_client(6)
    one, other = ATTACK.run(client.update, seed=3), ATTACK.run(client.update, seed=3)
    assert torch.equal(one.encoded, other.encoded)
    assert one.certificate == other.certificate


def test_the_truth_is_not_needed(make_client):
    client = make_client(6, seed=1)
    before = ATTACK.run(client.update)
    client.truth.inputs.zero_()
    client.truth.labels.zero_()
    after = ATTACK.run(client.update)
    assert torch.equal(before.encoded, after.encoded)


def test_feasibility_counts_the_numbers_of_a_row(make_client):
    client = make_client(12)
    width, kind = client.encoder.width, RowKind.of(client.encoder.schema)
    told, of_numbers = QUICK.run(client.update).certificate.feasibility, expected_of_delta(12, (60, 30), width, kind)
    assert expected_of_delta(12, (60, 30), width).expected == "partial"
    assert told.expected == of_numbers.expected == "approximate"
    assert told.reason == of_numbers.reason


def test_progress_adds_up_to_the_number_of_updates(make_client):
    told = []
    client = make_client(6)
    ATTACK.run_many([client.update, client.update], [0, 1], progress=told.append)
    assert sum(told) == 2


def test_updates_that_it_cannot_serve_are_refused(make_client, make_batch):
    client = make_client(6)
    with pytest.raises(ObservationError, match="FedSGD gradient"):
        ATTACK.run(make_batch(6).update)
    with pytest.raises(UnsupportedError, match="weight decay"):
        ATTACK.run(make_client(6, weight_decay=0.01).update)
    still = {name: torch.zeros_like(tensor) for name, tensor in client.update.update.items()}
    with pytest.raises(ObservationError, match="zero"):
        ATTACK.run(replace(client.update, update=still))
    with pytest.raises(UnsupportedError, match="None steps"):
        ATTACK.run(
            replace(client.update, state="noised", facts=replace(client.update.facts, epochs=None, local_steps=None))
        )
    with pytest.raises(UnsupportedError, match="adam"):
        ATTACK.run(replace(client.update, facts=replace(client.update.facts, optimizer="adam")))
    with pytest.raises(UnsupportedError, match="cross_entropy"):
        ATTACK.run(replace(client.update, facts=replace(client.update.facts, loss="mse")))


def test_settings(make_client):
    assert exact_fedavg(restarts=2).options()["restarts"] == 2
    assert "limits" not in exact_fedavg().options()
    with pytest.raises(UsageError, match="no setting"):
        exact_fedavg(epochs=3)
    with pytest.raises(UsageError, match="restarts"):
        exact_fedavg(restarts=0)
    with pytest.raises(UsageError, match="prior"):
        exact_fedavg(prior="truth")


def test_a_search_under_an_error_does_the_same_share_of_its_work():
    assert ExactFedAvgConfig(prior="schema").joint() == JointConfig(prior="schema")
    half = ExactFedAvgConfig(restarts=2, steps=1000).joint()
    assert half.noised_restarts == 2 and 2 * half.noised_steps == JointConfig().noised_steps
    assert 2 * half.round_steps == JointConfig().round_steps
