"""What a weight update says of the first layer, and how exactly."""

from dataclasses import replace

import pytest
import torch

from lightleak.attacks.gradient_inversion.fedavg.exact.observed import CAUTION, WeightUpdate, local_steps
from lightleak.attacks.gradient_inversion.network.row_network import with_one


@pytest.mark.parametrize(("epochs", "batches"), [(1, 1), (3, 2), (10, 3)])
def test_the_first_layer_moves_in_the_span_of_the_rows_up_to_the_stated_noise(make_client, epochs, batches):
    client = make_client(6, epochs, batches)
    observed = client.observed
    span = torch.linalg.qr(with_one(client.x).T).Q
    beyond = observed.gradient[0] - (observed.gradient[0] @ span) @ span.T
    free = beyond.shape[0] * (beyond.shape[1] - span.shape[1])
    measured = float(beyond.norm()) / free**0.5
    assert observed.noise / CAUTION**2 < measured < observed.noise


@pytest.mark.parametrize("encoding", ["standardized", "onehot", "minmax"])
def test_a_client_in_float64_moves_the_layer_in_the_span_of_rows_that_were_rounded_to_float32(make_client, encoding):
    client = make_client(6, 5, 2, encoding=encoding, precise=True)
    observed, space = client.observed, client.equations.space
    span = torch.linalg.qr(with_one(space.rows.of(*client.coordinates)).T).Q
    beyond = observed.gradient[0] - (observed.gradient[0] @ span) @ span.T
    free = beyond.shape[0] * (beyond.shape[1] - span.shape[1])
    measured = float(beyond.norm()) / free**0.5
    assert next(iter(client.update.parameters.values())).dtype == torch.float64
    assert observed.noise / 100 < measured < observed.noise


def test_scale_of_one_step_is_that_of_the_gradient(make_client, make_batch):
    client, batch = make_client(6, 1, 1), make_batch(6, hidden=(60, 30))
    for delta, gradient in zip(client.observed.gradient, batch.observed, strict=True):
        torch.testing.assert_close(delta, gradient, rtol=0, atol=20 * client.observed.noise)


def test_noise_is_estimated_where_steps_are_not_known(make_client):
    client = make_client(6, 3, 2)
    unknown = replace(client.update.facts, epochs=None, local_steps=None)
    estimated = WeightUpdate.of(replace(client.update, facts=unknown))
    known = client.observed
    assert estimated.fit_scale
    assert not known.fit_scale
    ratio = estimated.noise / (known.noise * known.steps)
    assert 1 / CAUTION**2 < ratio < CAUTION


def test_steps_follow_from_epochs_and_batches(make_client):
    facts = make_client(5, 3, 2).update.facts
    assert local_steps(facts) == 6
    assert local_steps(replace(facts, local_steps=None)) == 6
    assert local_steps(replace(facts, local_steps=None, batch_size=None)) is None


def test_the_way_starts_and_ends_at_the_weights(make_client):
    client = make_client(6)
    start, end = client.observed.between(0.0), client.observed.between(1.0)
    name = "linears.0.weight"
    after = client.update.parameters[name].double() + client.update.update[name].double()
    torch.testing.assert_close(start.weights[0], client.update.parameters[name].double(), rtol=0, atol=0)
    torch.testing.assert_close(end.weights[0], after, rtol=0, atol=1e-15)
