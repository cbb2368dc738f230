"""Rows gathered round by round, each giving equations for the next."""

import torch

from lightleak.attacks.gradient_inversion.exact.enumerate.enumeration import EnumerationLimits
from lightleak.attacks.gradient_inversion.fedavg.exact.agreement import agreed, unlike
from lightleak.attacks.gradient_inversion.fedavg.exact.candidates import assumptions, passing
from lightleak.attacks.gradient_inversion.fedavg.exact.explain import gather

LIMITS = EnumerationLimits()


def test_all_rows_are_gathered_and_fit_each_other(make_client, generator_of):
    client = make_client(8)
    _, rows = gather(client.observed, client.equations, LIMITS, generator_of(0))
    codes, _ = client.coordinates
    assert sorted(rows.codes.tolist()) == sorted(codes.tolist())
    assert bool(rows.unique.all())
    assert bool(rows.complete.all())
    products = client.equations.coordinates(rows.codes, rows.numbers) @ rows.vectors.T
    apart = products - torch.diag(products.diagonal())
    assert float(apart.abs().max()) < 1e-2 * float(products.diagonal().abs().min())


def test_nothing_is_gathered_where_the_span_is_full(make_client, generator_of):
    client = make_client(6, hidden=(8, 8))
    _, rows = gather(client.observed, client.equations, LIMITS, generator_of(0))
    assert len(rows) == 0


def test_a_wrong_candidate_with_the_same_silent_units_gives_way_to_the_right_one(make_client):
    client = make_client(6)
    codes, numbers = client.coordinates
    right = passing(client.observed, client.equations, codes, numbers, (), None)
    assert len(right) == 6
    wrong = right[torch.tensor([0])]
    widest = max(range(codes.shape[1]), key=lambda k: client.equations.space.sizes[k])
    wrong.codes[0, widest] = (wrong.codes[0, widest] + 1) % client.equations.space.sizes[widest]
    wrong.misfit[0] = 0.0
    found = agreed(client.equations, right.joined(wrong))
    assert sorted(found.codes.tolist()) == sorted(codes.tolist())
    assert bool(found.unique.all())


def test_candidates_with_known_duals_are_not_new(make_client):
    client = make_client(6)
    right = passing(client.observed, client.equations, *client.coordinates, (), None)
    assert not bool(unlike(right, right.vectors).any())
    assert unlike(right, right.vectors[:2]).sum() == 4
    assert bool(unlike(right, right.vectors[:0]).all())


def test_assumptions_begin_with_all_skewed_numbers_at_their_bound_and_end_with_none(make_client):
    client = next(c for c in (make_client(6, seed=s) for s in range(20)) if c.equations.space.skewed.any())
    sets = list(assumptions(client.equations.space))
    skewed = tuple(f for f, s in enumerate(client.equations.space.skewed.tolist()) if s)
    assert sets[0] == skewed
    assert sets[-1] == ()
    assert len(set(sets)) == len(sets)
