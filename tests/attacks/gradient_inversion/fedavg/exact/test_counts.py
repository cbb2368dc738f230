"""Labels and multiplicities from shares."""

import pytest
import torch

from lightleak.attacks.gradient_inversion.fedavg.exact.counts import (
    ABOVE_LEAST,
    class_counts,
    possible_scales,
    predicted_shares,
    single_counts,
)


def predicted(client):
    return predicted_shares(client.observed, client.x, len(client.x))


def test_predicted_shares_of_one_step_are_the_gradients_of_the_rows(make_client):
    client = make_client(4, 1, 1)
    chain = client.observed.start
    each = predicted(client)
    for i, x in enumerate(client.x):
        for label in range(chain.n_classes):
            counts = torch.eye(chain.n_classes, dtype=torch.float64)[label : label + 1]
            gradient = chain.gradient(x[None], counts, 4)[0][:, -1]
            torch.testing.assert_close(each[i, label], gradient, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("scale", [1.0, 7.0])
def test_counts_are_recovered_from_shares_of_any_scale(make_client, scale):
    client = make_client(6, n_classes=3)
    each = predicted(client)
    wanted = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1], [2, 0, 0], [0, 1, 1], [1, 0, 0]])
    shares = scale * torch.einsum("rc,rch->rh", wanted.double(), each)
    found = class_counts(shares, each, int(wanted.sum()), fit_scale=scale != 1)
    assert torch.equal(found.counts, wanted)
    assert float(found.misfit.max()) < 1e-6


def test_the_way_of_the_weights_is_good_enough_for_labels(make_client):
    client = make_client(6, 10, 2)
    equations = client.equations
    shares = torch.linalg.pinv(equations.coordinates(*client.coordinates).T) @ equations.gradient.T
    found = single_counts(shares, predicted(client))
    assert torch.equal(found.counts.argmax(1), client.truth.labels)
    assert float(found.misfit.max()) < 0.3


def test_absent_classes_tell_what_an_update_was_multiplied_by(make_client):
    client = make_client(4, 3, 2, n_classes=9)  # at most four of the nine are present
    assert possible_scales(client.observed, client.x) == (pytest.approx(1.0, rel=0.03), 1.0)
    clipped = client.observed.rescaled(1 / 7)
    assert possible_scales(clipped, client.x) == (pytest.approx(1 / 7, rel=0.03), 1.0)


@pytest.mark.parametrize(("n", "n_classes"), [(12, 3), (12, 2)])
def test_without_absent_classes_several_scales_are_possible(make_client, n, n_classes):
    client = make_client(n, 3, 2, n_classes=n_classes)
    assert len(client.truth.labels.unique()) == n_classes
    scales = possible_scales(client.observed.rescaled(1 / 7), client.x)
    assert len(scales) == len(ABOVE_LEAST)
    assert scales[0] / ABOVE_LEAST[0] < 1.05 / 7  # the least that is possible
