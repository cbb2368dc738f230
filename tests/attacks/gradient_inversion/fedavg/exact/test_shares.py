"""Shares of rows in a first layer's update, and numbers that leave less of it."""

from dataclasses import replace

import pytest
import torch

from lightleak.attacks.gradient_inversion.fedavg.exact.shares import fit_shares, least_squares, with_better_numbers


@pytest.mark.parametrize(("epochs", "batches"), [(1, 1), (5, 2)])
def test_true_rows_leave_rounding_alone(make_client, epochs, batches):
    client = make_client(6, epochs, batches)
    fit = fit_shares(client.observed, client.equations.space, *client.coordinates)
    assert 0.3 < fit.left < 1.5
    assert torch.equal(fit.x, client.equations.space.rows.of(*client.coordinates))


def test_shares_of_one_step_are_the_errors_of_the_rows(make_client):
    client = make_client(6, 1, 1)
    fit = fit_shares(client.observed, client.equations.space, *client.coordinates)
    chain = client.observed.start
    activations = chain.forward(client.x)
    classes = torch.nn.functional.one_hot(client.truth.labels, 2)
    errors = chain.errors(activations, (activations.probabilities - classes) / 6)[0]
    assert float((fit.shares - errors)[fit.known].abs().max()) < 1e-4 * float(errors.abs().max())


def test_a_share_that_other_active_rows_could_have_is_not_known(make_client):
    client = make_client(6)
    codes, numbers = client.coordinates
    twice = torch.tensor([0, 0, 1, 2, 3, 4, 5])
    fit = fit_shares(client.observed, client.equations.space, codes[twice], numbers[twice])
    active = fit.shares.abs() > 0
    assert not fit.known[:2][active[:2]].any()
    assert fit.known[2:][active[2:]].any()


def test_numbers_are_found_from_near_ones(make_client):
    client = make_client(6, 5, 2)
    space = client.equations.space
    codes, numbers = client.coordinates
    off = space.clamp(numbers + 0.1 * torch.randn(numbers.shape, generator=torch.Generator().manual_seed(1)).double())
    near = fit_shares(client.observed, space, codes, off)
    found = with_better_numbers(client.observed, space, near)
    assert near.left > 50 > 1.5 > found.left
    assert float((found.numbers - numbers).abs().max()) < 0.01


def test_what_shares_make_good_has_an_infinite_error(make_client):
    client = make_client(6)
    fit = fit_shares(client.observed, client.equations.space, *client.coordinates)
    cell, nothing = torch.eye(fit.x.shape[1] + 1).double()[:1], torch.zeros(1, fit.x.shape[1] + 1).double()
    within = torch.nn.functional.pad(fit.x[:1], (0, 1), value=1.0)  # the row itself: its share makes it good
    step, error = least_squares(fit, torch.cat([within, nothing, cell]))
    assert error.view(6, 3)[0, :2].isinf().all()
    assert error.view(6, 3)[:, 1].isinf().all()
    assert error.view(6, 3)[:, 2].isfinite().all()
    assert step.isfinite().all()


def test_moves_that_only_together_are_made_good_have_infinite_errors(make_client, generator_of):
    """Three rows that are active in the same units mix freely; the others, each alone in its units, do not."""
    client = make_client(6)
    fit = fit_shares(client.observed, client.equations.space, *client.coordinates)
    rows = torch.nn.functional.pad(fit.x, (0, 1), value=1.0)
    shares = torch.zeros_like(fit.shares)
    shares[:3, ::2] = 1 + torch.rand(3, 30, generator=generator_of(0)).double()
    shares[3:, 1::2] = torch.eye(3).double().repeat(1, 10)
    spans = tuple(torch.linalg.qr(rows[shares[:, unit] != 0].T)[0] for unit in range(shares.shape[1]))
    apart, half = rows[1] - rows[0], torch.arange(rows.shape[1]) % 2 == 0
    error = least_squares(replace(fit, shares=shares, spans=spans), torch.stack([apart * half, apart * ~half]))[1]
    assert error.view(6, 2)[:3].isinf().all()
    assert error.view(6, 2)[3:].isfinite().all()
    error = least_squares(replace(fit, shares=shares, spans=spans), (apart * half).unsqueeze(0))[1]
    assert error.isfinite().all()
