"""What is proven of the rows behind a weight update, and what is not."""

from dataclasses import replace

import pytest
import torch

from lightleak.attacks.gradient_inversion.fedavg.exact.proof import proven_alone, proven_together, settled_together
from lightleak.attacks.gradient_inversion.fedavg.exact.shares import fit_shares


def one_each(client, index=slice(None)):
    return torch.nn.functional.one_hot(client.truth.labels[index], client.observed.start.n_classes)


def together(client, codes, numbers, counts):
    space, n = client.equations.space, client.update.facts.n_rows
    fit = fit_shares(client.observed, space, codes, numbers)
    return proven_together(client.observed, space, fit, counts, n, client.equations.rank)


@pytest.mark.parametrize(("epochs", "batches"), [(1, 1), (5, 2)])
def test_all_cells_and_digits_of_distinct_rows_are_proven(make_client, epochs, batches):
    client = make_client(6, epochs, batches)
    proof = together(client, *client.coordinates, one_each(client))
    assert proof.cells.all() and proof.digits.all()


def test_a_wrong_label_is_not_proven(make_client):
    client = make_client(6)
    counts = one_each(client)
    counts[2] = counts[2].flip(0)
    assert together(client, *client.coordinates, counts).cells.tolist() == [True, True, False, True, True, True]


def test_nothing_is_proven_where_something_is_left(make_client):
    client = make_client(6)
    codes, numbers = client.coordinates
    moved = numbers.clone()
    moved[3, 0] += 0.2
    assert not together(client, codes, moved, one_each(client)).cells.any()
    counts = one_each(client, slice(5))
    counts[0] *= 2
    assert not together(client, codes[:5], numbers[:5], counts).cells.any()


def test_a_row_that_may_be_a_mixture_is_proven_by_its_cells_at_most(make_client):
    """Any of them may be one, as the update shows one row less than there are."""
    client = make_client(5, rows=(0, 1, 2, 3, 3), labels=(0, 1, 0, 1, 1), batches=1)
    codes, numbers = (cells[:4] for cells in client.coordinates)
    counts = one_each(client, slice(4))
    counts[3] *= 2
    proof = together(client, codes, numbers, counts)
    assert proof.cells.all()
    assert not proof.digits.any()
    single = counts.clone()
    single[3], single[2] = counts[3] // 2, 2 * counts[2]  # the right number of rows in all, of another row
    assert together(client, codes, numbers, single).cells.tolist() == [True, True, False, False]


@pytest.mark.parametrize("noise", [1e-7, 1e-14])
def test_rows_that_mix_at_no_cost_are_not_proven_however_little_the_noise(make_client, noise):
    """With fewer silent units than rows every unit's active rows span all: numbers may be exchanged."""
    client = make_client(6, hidden=(60, 30))
    space = client.equations.space
    fit = fit_shares(client.observed, space, *client.coordinates)
    every = torch.linalg.qr(torch.cat([fit.x, torch.ones(6, 1).double()], 1).T)[0]
    left = noise * torch.randn(fit.remains.shape, generator=torch.Generator().manual_seed(0)).double()
    mixed = replace(fit, spans=(every,) * len(fit.spans), remains=left - (left @ every) @ every.T)
    quiet = replace(client.observed, noise=noise)
    proof = proven_together(quiet, space, mixed, one_each(client), 6, client.equations.rank)
    assert not proof.cells.any() and not proof.digits.any()


def test_nothing_is_proven_where_the_update_has_too_few_digits_to_name_all_rows(make_client):
    """One row has units of its own, which determine it; all others together can be bent to meet everything else."""

    def proven(n):
        client = make_client(n)
        fit = fit_shares(client.observed, client.equations.space, *client.coordinates)
        rows = torch.nn.functional.pad(fit.x, (0, 1), value=1.0)
        _, singular, along = torch.linalg.svd(rows, full_matrices=False)
        every = along[singular > 1e-6 * singular[0]].T
        own = fit.shares[0].nonzero().flatten()[:5]
        shares, known, spans = fit.shares.clone(), torch.zeros_like(fit.known), [every] * len(fit.spans)
        shares[1:, own], known[0, own] = 0, True
        for unit in own.tolist():
            spans[unit] = (rows[:1] / rows[0].norm()).T
        alone = replace(fit, shares=shares, known=known, spans=tuple(spans), remains=torch.zeros_like(fit.remains))
        quiet = replace(client.observed, noise=1e-9)
        return proven_together(quiet, client.equations.space, alone, one_each(client), n, n).cells.tolist()

    assert proven(8) == [True] + 7 * [False]
    assert proven(16) == 16 * [False]


def test_fewer_labels_are_proven_where_two_more_rows_may_hide(make_client):
    """One row of each class more adds next to nothing where the network is undecided."""
    client = make_client(6)
    fit = fit_shares(client.observed, client.equations.space, *client.coordinates)
    counts = one_each(client)
    counts[0] *= 3
    proof = proven_together(client.observed, client.equations.space, fit, counts, 8, rank=4)
    assert int(proof.cells.sum()) <= 1


def test_no_row_hides_where_as_many_different_rows_are_settled(make_client):
    """Rows that span fewer dimensions than they are, as those of a small table do."""
    client = make_client(6)
    fit = fit_shares(client.observed, client.equations.space, *client.coordinates)
    space, counts = client.equations.space, one_each(client)
    assert proven_together(client.observed, space, fit, counts, 6, rank=4).cells.all()
    again = [torch.cat([part, part[:1]]) for part in client.coordinates]
    twice = fit_shares(client.observed, space, *again)
    counts = torch.cat([counts, counts[:1]])
    assert not proven_together(client.observed, space, twice, counts, 7, rank=6).cells[[0, -1]].any()


def test_single_rows_are_proven_by_the_span_alone(make_client):
    client = make_client(4)
    codes, numbers = (cells[:3] for cells in client.coordinates)
    labels, n = client.truth.labels[:3], client.update.facts.n_rows
    proof = proven_alone(client.observed, client.equations, codes, numbers, labels, n)
    assert proof.cells.all() and proof.digits.all()
    moved = numbers.clone()
    moved[1, 0] += 0.05
    moved_proof = proven_alone(client.observed, client.equations, codes, moved, labels, n)
    assert moved_proof.cells.tolist() == [True, False, True]
    assert not proven_alone(client.observed, client.equations, codes, numbers, 1 - labels, n).cells.any()


def test_without_equations_for_numbers_no_single_row_is_proven(make_client):
    client = make_client(30)
    codes, numbers = client.coordinates
    assert not client.equations.determines(range(len(client.equations.space.free)))
    assert not proven_alone(client.observed, client.equations, codes, numbers, client.truth.labels, 30).cells.any()


def test_digits_need_every_unit_explained_by_itself(make_client):
    """A row that is taken for silent at a unit where its share is small bends the numbers of the rows active there."""
    client = make_client(6, 5, 2)
    observed, space = client.observed, client.equations.space
    fit = fit_shares(observed, space, *client.coordinates)
    unit = int((fit.shares[0] == 0).nonzero()[0])
    row = torch.cat([fit.x[0], torch.ones(1).double()])
    share = 2.5 * observed.noise * fit.remains.shape[1] ** 0.5 / float(row.norm())
    gradient = observed.gradient[0].clone()
    gradient[unit] += share * row  # 2.5 times what rounding leaves of one unit: hardly seen in all of them
    hidden = fit_shares(replace(observed, gradient=(gradient, *observed.gradient[1:])), space, *client.coordinates)
    assert hidden.left < 1.5 < hidden.worst
    settled = settled_together(observed, space, hidden, client.equations.rank)
    assert settled.cells.all() and not settled.digits.any()
    assert settled_together(observed, space, fit, client.equations.rank).digits.all()
