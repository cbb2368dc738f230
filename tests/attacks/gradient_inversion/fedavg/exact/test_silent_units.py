"""The test of one row by the units that it leaves silent."""

import pytest
import torch

from lightleak.attacks.gradient_inversion.fedavg.exact.silent_units import FITS, nothing, silence, silence_test


def test_of(client, codes, numbers):
    equations = client.equations
    silent = silence(client.observed, equations.space.rows.of(codes, numbers)) > 0
    return silence_test(equations, equations.coordinates(codes, numbers), silent)


test_of.__test__ = False


@pytest.mark.parametrize(("epochs", "batches"), [(1, 1), (5, 2), (10, 3)])
def test_rows_of_the_batch_pass_whatever_the_local_training_and_changed_rows_do_not(make_client, epochs, batches):
    client = make_client(6, epochs, batches)
    codes, numbers = client.coordinates
    assert bool(test_of(client, codes, numbers).passed().all())
    for k, size in enumerate(client.equations.space.sizes):
        if size > 1:
            changed = codes.clone()
            changed[:, k] = (codes[:, k] + 1) % size
            wrong = test_of(client, changed, numbers)
            assert float(wrong.misfit.median()) > FITS or not bool(wrong.passed().all())


def test_duals_single_out_their_rows(make_client):
    client = make_client(6)
    codes, numbers = client.coordinates
    equations = client.equations
    duals = test_of(client, codes, numbers).duals @ equations.span
    products = equations.coordinates(codes, numbers) @ duals.T
    torch.testing.assert_close(products, torch.eye(6, dtype=products.dtype), rtol=0, atol=1e-2)


def test_shares_vanish_on_all_silent_units(make_client):
    client = make_client(6)
    codes, numbers = client.coordinates
    equations = client.equations
    silent = silence(client.observed, equations.space.rows.of(codes, numbers)) > 0
    duals = silence_test(equations, equations.coordinates(codes, numbers), silent).duals
    zero = nothing(equations, duals @ equations.span)
    assert bool(zero[silent].all())
    assert not bool(zero.all(1).any())


def test_with_too_few_silent_units_nothing_passes(make_client):
    client = make_client(6)
    codes, numbers = client.coordinates
    equations = client.equations
    coordinates = equations.coordinates(codes, numbers)
    few = torch.zeros(6, 60, dtype=torch.bool)
    few[:, : equations.rank] = True
    assert not bool(silence_test(equations, coordinates, few).passed().any())


def test_rows_that_share_their_silent_units_are_told_to_be_a_mixture(make_client):
    client = make_client(6)
    codes, numbers = client.coordinates
    equations = client.equations
    silent = silence(client.observed, equations.space.rows.of(codes, numbers)) > 0
    both = (silent[0] & silent[1]).expand(2, -1)
    coordinates = equations.coordinates(codes, numbers)[:2]
    found = silence_test(equations, coordinates, both)
    assert bool((found.spare >= 1).all())
    assert bool((found.misfit < FITS).all())
    assert not bool(found.passed().any())
