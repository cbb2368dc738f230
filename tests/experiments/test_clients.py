"""Fresh clients, and the federation against plain gradient descent written out."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from lightleak.core.errors import UsageError
from lightleak.core.seeds import derive_seed
from lightleak.defenses.horizontal.noise import GaussianNoise
from lightleak.experiments.clients import Federation, FreshClients, FreshFedAvgClients
from lightleak.experiments.experiment import Experiment, prepare_experiment
from lightleak.experiments.federation_config import ProtocolConfig
from lightleak.protocols.replay import require_replay
from lightleak.targets.spec import build_network


@pytest.fixture(scope="module")
def experiment(tiny: Any) -> Experiment:
    return prepare_experiment(tiny())


def fresh(experiment: Experiment, seed: int = 0, **options: Any) -> FreshClients:
    return FreshClients(experiment.population, experiment.spec, seed, share_labels=True, **options)


def federation(experiment: Experiment, **options: Any) -> Federation:
    """Six clients with as many of the 96 rows as ``rows_per_client`` allows: 16 each."""
    settings = {"seed": 4, "share_labels": True, "clients": 6, "rows_per_client": 32} | options
    return Federation(experiment.population, experiment.spec, **settings)


def test_a_fresh_client_sends_the_gradient_of_its_rows(experiment: Experiment) -> None:
    update, truth = fresh(experiment).observe(5, 2)
    network = build_network(experiment.spec, derive_seed(0, "network", 5, 2))
    cross_entropy(network(truth.inputs), truth.labels).backward()
    for name, parameter in network.named_parameters():
        assert torch.equal(update.parameters[name], parameter)
        assert torch.allclose(update.update[name], parameter.grad, atol=1e-7)
    assert require_replay(update, truth) < 1e-5
    assert torch.equal(update.labels, truth.labels)


def test_fresh_clients_differ_and_come_back(experiment: Experiment) -> None:
    drawn = {
        (seed, size, i): fresh(experiment, seed).observe(size, i) for seed in (0, 1) for size in (3, 4) for i in (0, 1)
    }
    first = [next(iter(update.parameters.values())) for update, _ in drawn.values()]
    for i, one in enumerate(first):
        assert not any(torch.equal(one, other) for other in first[:i])
    for (seed, size, i), (update, truth) in drawn.items():
        again, same = fresh(experiment, seed).observe(size, i)
        assert torch.equal(truth.inputs, same.inputs)
        assert all(torch.equal(value, again.update[name]) for name, value in update.update.items())


def test_a_client_sends_its_batch_in_several_rounds_between_which_the_server_steps(experiment: Experiment) -> None:
    noise, rate = GaussianNoise(0.01), 0.5
    single, truth = fresh(experiment, defense=noise).observe(5, 1)
    update, same_truth = fresh(experiment, defense=noise, releases=3, server_rate=rate).observe(5, 1)
    first, second, third = update.releases
    assert torch.equal(truth.inputs, same_truth.inputs) and update.facts.n_rows == 5
    for name, gradient in single.update.items():
        assert torch.equal(first.update[name], gradient)
        assert torch.allclose(second.parameters[name], first.parameters[name] - rate * gradient)
        assert torch.allclose(third.parameters[name], second.parameters[name] - rate * second.update[name])
    still = fresh(experiment, defense=noise, releases=2).observe(5, 1)[0].releases
    for name, gradient in still[0].update.items():
        assert torch.equal(still[0].parameters[name], still[1].parameters[name])
        assert not torch.equal(gradient, still[1].update[name])
        assert torch.allclose(gradient, still[1].update[name], atol=0.1)


@pytest.mark.parametrize("reshuffle", [True, False])
def test_fedavg_clients_have_rows_and_network_of_the_fedsgd_ones(experiment: Experiment, reshuffle: bool) -> None:
    protocol = ProtocolConfig("fedavg", local_epochs=2, local_batches=2, learning_rate=0.1, reshuffle=reshuffle)
    clients = FreshFedAvgClients(experiment.population, experiment.spec, 0, protocol, "batches")
    (update, truth), (gradient, same) = clients.observe(6, 3), fresh(experiment).observe(6, 3)
    assert torch.equal(truth.inputs, same.inputs) and torch.equal(truth.labels, same.labels)
    assert all(torch.equal(value, gradient.parameters[name]) for name, value in update.parameters.items())
    assert require_replay(update, truth) < 1e-5
    assert torch.equal(update.labels, same.labels.sort().values)
    epochs = update.batch_labels[0]
    assert torch.equal(epochs[0], epochs[1]) or reshuffle
    again, _ = clients.observe(6, 3)
    assert all(torch.equal(value, again.update[name]) for name, value in update.update.items())


def test_one_step_on_all_rows_is_a_step_along_the_gradient(experiment: Experiment) -> None:
    protocol = ProtocolConfig("fedavg", learning_rate=0.5)
    clients = FreshFedAvgClients(experiment.population, experiment.spec, 0, protocol, "none")
    update, (gradient, _) = clients.observe(5, 1)[0], fresh(experiment).observe(5, 1)
    for name, delta in update.update.items():
        assert torch.allclose(delta, -0.5 * gradient.update[name], atol=1e-7)
    assert update.labels is None and update.batch_labels is None


def test_rows_are_drawn_with_replacement_from_all(experiment: Experiment) -> None:
    population = experiment.population
    _, truth = fresh(experiment).observe(96, 0)
    held = {tuple(row) for row in population.inputs.tolist()}
    drawn = [tuple(row) for row in truth.inputs.tolist()]
    assert set(drawn) <= held
    assert len(set(drawn)) < 96  # 96 draws of 96 rows repeat some, by all odds


def test_what_is_not_shared_does_not_travel(experiment: Experiment) -> None:
    clients = replace(fresh(experiment), share_labels=False)
    update, _ = clients.observe(4, 0)
    assert update.labels is None and not update.batch_statistics
    assert update.marginals == experiment.marginals.to_dict()


def test_statistics_travel_where_they_are_shared(tiny: Any) -> None:
    experiment = prepare_experiment(tiny(target__options={"hidden": [6], "norm": "batch"}))
    assert fresh(experiment, share_statistics=True).observe(4, 0)[0].batch_statistics
    assert not fresh(experiment).observe(4, 0)[0].batch_statistics


def test_a_batch_larger_than_the_data_is_refused(experiment: Experiment) -> None:
    with pytest.raises(UsageError, match=r"batch_size must be at most 96 \(rows the clients hold\), got 97"):
        fresh(experiment).observe(97, 0)


def test_rounds_are_gradient_descent_on_the_union(experiment: Experiment) -> None:
    """Equal shares make the mean of the clients' gradients the gradient of the mean loss over all their rows."""
    rounds = federation(experiment, learning_rate=0.7)
    truths = [rounds.observe(1, i)[1] for i in range(6)]
    inputs, labels = torch.cat([t.inputs for t in truths]), torch.cat([t.labels for t in truths])
    network = build_network(experiment.spec, derive_seed(4, "network"))
    for epoch in range(1, 5):
        update, _ = rounds.observe(epoch, 0)
        for name, parameter in network.named_parameters():
            assert torch.allclose(update.parameters[name], parameter, atol=1e-6), (epoch, name)
        loss = cross_entropy(network(inputs), labels)
        network.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in network.parameters():
                parameter -= 0.7 * parameter.grad


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_server_averages_what_the_clients_send(tiny: Any, dropout: float) -> None:
    experiment = prepare_experiment(tiny(target__options={"hidden": [6], "dropout": dropout}))
    rounds = federation(experiment)
    for epoch in (1, 2):
        sent = [rounds.observe(epoch, i)[0] for i in range(6)]
        after = rounds.observe(epoch + 1, 0)[0].parameters
        for name, before in sent[0].parameters.items():
            mean = torch.stack([update.update[name] for update in sent]).mean(0)
            assert torch.allclose(after[name], before - 0.5 * mean, atol=1e-6)


def test_the_first_round_attacks_the_untrained_network(experiment: Experiment) -> None:
    untrained = build_network(experiment.spec, derive_seed(4, "network"))
    for i in (0, 5):
        update, truth = federation(experiment).observe(1, i)
        assert all(torch.equal(update.parameters[name], p) for name, p in untrained.named_parameters())
        assert require_replay(update, truth) < 1e-5
        assert update.facts.epoch == 1


def test_order_of_asking_changes_nothing(experiment: Experiment) -> None:
    late = federation(experiment)
    first = late.observe(4, 1)[0]
    in_order = federation(experiment)
    for epoch in (1, 2, 3):
        in_order.observe(epoch, 1)
    again = in_order.observe(4, 1)[0]
    assert all(torch.equal(value, again.update[name]) for name, value in first.update.items())


@pytest.mark.parametrize(("rows_per_client", "expected"), [(32, 16), (10, 10), (1, 1)])
def test_clients_hold_disjoint_rows_of_equal_number(
    experiment: Experiment, rows_per_client: int, expected: int
) -> None:
    rounds = federation(experiment, rows_per_client=rows_per_client)
    assert rounds.batch_size == expected
    shares = [rounds.observe(1, i)[1].inputs for i in range(6)]
    assert [len(share) for share in shares] == [expected] * 6
    everything = [tuple(row) for row in torch.cat(shares).tolist()]
    assert len(set(everything)) == 6 * expected == len(everything)


def test_german_credit_leaves_sixteen_rows_a_client(experiment: Experiment) -> None:
    # 1,000 rows, 800 of them for training, 50 clients that would take 32.
    people = experiment.population
    many = replace(people, inputs=people.inputs[np.zeros(800)], labels=people.labels[np.zeros(800)])
    assert Federation(many, experiment.spec, 0, True).batch_size == 16


def test_clients_and_rounds_there_are_not_are_refused(experiment: Experiment) -> None:
    rounds = federation(experiment)
    for index in (6, -1):
        with pytest.raises(UsageError, match=f"the federation has 6 clients, numbered from 0; got client {index}"):
            rounds.observe(1, index)
    with pytest.raises(UsageError, match="counted from 1, got 0"):
        rounds.observe(0, 0)


def test_dropout_of_a_client_is_its_own(tiny: Any) -> None:
    experiment = prepare_experiment(tiny(target__options={"hidden": [50], "dropout": 0.5}))

    def sent(before: int) -> Tensor:
        torch.manual_seed(before)  # what was drawn before must not matter
        return fresh(experiment).observe(3, 0)[0].update["linears.1.weight"]

    assert torch.equal(sent(1), sent(2))
    assert (sent(1) == 0).any()  # units of the hidden layer were dropped for all three rows
