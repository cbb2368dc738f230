"""A weight delta is held against its clients: the true ones pass, false ones are refused with the figure."""

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.protocols.aggregate import aggregate_updates
from lightleak.protocols.client_training import LocalTraining
from lightleak.protocols.fedavg import replay, require_replay
from lightleak.protocols.records import RecordedAggregate

Client = Callable[..., Any]


def changed(update: ClientUpdate, **facts: Any) -> ClientUpdate:
    facts_of_it = dataclasses.replace(update.facts, **facts)
    return dataclasses.replace(update, facts=facts_of_it, labels=None, batch_labels=None)


def scaled(update: ClientUpdate, factor: float) -> ClientUpdate:
    return dataclasses.replace(update, update={name: value * factor for name, value in update.update.items()})


@pytest.mark.parametrize("training_mode", [True, False])
@pytest.mark.parametrize("options", [{}, {"norm": "batch", "dropout": 0.4}])
def test_a_true_record_replays_to_the_bit(client: Client, training_mode: bool, options: dict[str, Any]) -> None:
    training = LocalTraining(3, 4, 0.1, 0.9, 0.01)
    update, truth = client(training=training, training_mode=training_mode, **options)
    before = torch.get_rng_state()
    assert require_replay(update, truth) == 0.0
    assert torch.equal(torch.get_rng_state(), before), "replay must leave the global generator as it was"


def test_one_wrong_row_or_label_is_noticed(client: Client) -> None:
    update, truth = client(share_labels="none", epoch=4)
    inputs, labels = truth.inputs.clone(), truth.labels.clone()
    inputs[3] = inputs[4]
    with pytest.raises(ObservationError, match="recorded clients do not reproduce the raw delta of round 4: largest"):
        require_replay(update, dataclasses.replace(truth, inputs=inputs))
    labels[3] = 1 - labels[3]
    assert replay(update, dataclasses.replace(truth, labels=labels)) > 1e-2


def test_another_order_or_dropout_is_noticed(client: Client) -> None:
    update, truth = client(share_labels="counts", dropout=0.5)
    assert replay(update, dataclasses.replace(truth, order=truth.order.flip(0))) > 1e-2
    assert replay(update, dataclasses.replace(truth, dropout=truth.dropout + 1)) > 1e-2


def test_shared_labels_must_be_those_of_the_record(client: Client) -> None:
    update, truth = client()
    with pytest.raises(ObservationError, match="batch_labels that the update shares"):
        replay(dataclasses.replace(update, batch_labels=update.batch_labels.flip(2)), truth)
    with pytest.raises(ObservationError, match="labels that the update shares"):
        replay(dataclasses.replace(update, labels=1 - update.labels), truth)


def test_buffers_come_from_the_truth_where_they_are_not_shared(client: Client) -> None:
    update, truth = client(norm="batch", training_mode=False, share_buffers=False)
    moved = {name: b + 1 if b.is_floating_point() else b for name, b in truth.buffers.items()}
    assert replay(update, truth) == 0.0
    assert replay(update, dataclasses.replace(truth, buffers=moved)) > 1e-2
    with pytest.raises(ObservationError, match="are not recorded, or not the network's"):
        replay(update, dataclasses.replace(truth, buffers={}))


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"n_rows": 5}, "speaks of 5 rows, the recorded batch has 11 rows"),
        ({"epochs": 3}, "states epochs 3, the record of its clients 2"),
        ({"batch_size": 5}, "states batch_size 5, the record of its clients 4"),
        ({"learning_rate": 0.2}, "states learning_rate 0.2, the record of its clients 0.1"),
        ({"momentum": 0.5}, "states momentum 0.5"),
        ({"weight_decay": 0.5}, "states weight_decay 0.5"),
        ({"local_steps": 4}, "states local_steps 4, the record of its clients 6"),
        ({"n_clients": 2}, "states n_clients 2, the record of its clients 1"),
        ({"n_clients": None, "client_rows": (5, 6)}, r"states client_rows \(5, 6\)"),
        ({"optimizer": "adam"}, "states optimizer 'adam', the record of its clients 'sgd'"),
    ],
)
def test_facts_that_contradict_the_record_are_refused(client: Client, facts: dict[str, Any], message: str) -> None:
    update, truth = client()
    with pytest.raises(ObservationError, match=message):
        replay(changed(update, **facts), truth)


def test_what_the_server_is_not_told_the_record_knows(client: Client) -> None:
    update, truth = client()
    assert replay(changed(update, epochs=None, batch_size=None, local_steps=None, n_clients=None), truth) == 0.0


def test_an_aggregate_is_held_against_all_of_its_clients(client: Client) -> None:
    clients = [client(range(start, start + 8), seed=start, share_labels="none") for start in (0, 8, 16)]
    update = aggregate_updates([update for update, _ in clients])
    truths = [truth for _, truth in clients]
    assert require_replay(update, RecordedAggregate.of(truths)) == 0.0
    false = dataclasses.replace(truths[1], labels=1 - truths[1].labels)
    assert replay(update, RecordedAggregate.of([truths[0], false, truths[2]])) > 1e-2
    assert replay(changed(update, n_clients=None, client_rows=()), RecordedAggregate.of(truths)) == 0.0


def test_a_noised_update_is_not_checked_and_it_is_said(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    update, truth = client(defense=GaussianNoise(1.0), epoch=2)
    with caplog.at_level(logging.WARNING):
        assert torch.tensor(require_replay(update, truth)).isnan()
    assert "round 2: a noised delta cannot be replayed; it was not checked" in caplog.text


def test_a_truth_without_its_training_is_refused(client: Client) -> None:
    update, truth = client()
    with pytest.raises(ObservationError, match=r"needs the record of its clients' local training .* got GroundTruth"):
        replay(update, GroundTruth(truth.inputs, truth.labels))
    with pytest.raises(UsageError, match="encoded rows"):
        replay(update, dataclasses.replace(truth, inputs=truth.inputs[:, 1:]))


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_record_from_a_device_that_is_not_here(client: Client) -> None:
    """At a tiny rate a delta is the difference of two rounded weights, and only that rounding passes."""
    update, truth = client(training=LocalTraining(1, 11, 1e-5))
    elsewhere = dataclasses.replace(truth, device="cuda")
    with pytest.raises(ObservationError, match="at most 1e-04 is allowed"):
        require_replay(scaled(update, 1.01), truth)
    assert require_replay(scaled(update, 1.01), elsewhere) == pytest.approx(0.01, rel=0.01)
    with pytest.raises(ObservationError, match=r"largest deviation 5.*e-01"):
        require_replay(scaled(update, 2.0), elsewhere)
    update, truth = client(dropout=0.5)
    with pytest.raises(ObservationError, match="the generator of 'cuda', which is not here"):
        replay(update, dataclasses.replace(truth, device="cuda"))
