"""An update written out as rows and shares."""

import pytest
import torch

from lightleak.attacks.gradient_inversion.fedavg.exact.agreement import pure
from lightleak.attacks.gradient_inversion.fedavg.exact.decomposition import decompose, refine


def true_duals(client):
    equations = client.equations
    within = equations.coordinates(*client.coordinates) @ equations.span.T
    return torch.linalg.pinv(within).T @ equations.span


@pytest.mark.parametrize(("epochs", "batches"), [(1, 1), (5, 2)])
def test_duals_of_all_rows_give_the_rows_without_knowing_them(make_client, epochs, batches):
    client = make_client(6, epochs, batches)
    codes, numbers = client.coordinates
    lengths = torch.arange(1.0, 7.0, dtype=torch.float64).unsqueeze(1)
    found = decompose(client.equations, true_duals(client) * lengths)
    assert torch.equal(found.codes, codes)
    assert float((found.numbers - numbers).abs().max()) < 0.01
    assert found.left < 1.5


def test_wrong_numbers_are_refined(make_client):
    client = make_client(6)
    codes, numbers = client.coordinates
    near = client.equations.space.clamp(numbers + 0.05)
    found = refine(client.observed, client.equations, codes, near)
    assert torch.equal(found.codes, codes)
    assert float((found.numbers - numbers).abs().max()) < 0.01
    assert found.left < 1.5


def test_a_missing_row_leaves_far_more_than_rounding(make_client):
    client = make_client(6)
    codes, numbers = client.coordinates
    assert refine(client.observed, client.equations, codes[:5], numbers[:5]).left > 50


def test_mixtures_of_duals_are_left_out(make_client):
    client = make_client(6)
    duals = torch.nn.functional.normalize(true_duals(client), dim=1)
    mixtures = torch.nn.functional.normalize(duals[:2] + duals[2:4], dim=1)
    assert sorted(pure(client.equations, torch.cat([mixtures, duals])).tolist()) == [2, 3, 4, 5, 6, 7]
