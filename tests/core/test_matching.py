"""Row matching against every permutation."""

import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st

from lightleak.core.matching import match_rows


@st.composite
def similarities(draw: st.DrawFn) -> torch.Tensor:
    n = draw(st.integers(1, 5))
    # Few distinct values, so that pairings tie.
    return torch.tensor(draw(st.lists(st.lists(st.integers(0, 4), min_size=n, max_size=n), min_size=n, max_size=n)))


def total(similarity: torch.Tensor, order: list[int]) -> float:
    return sum(float(similarity[i, j]) for i, j in enumerate(order))


@given(similarities())
def test_no_permutation_is_more_similar(similarity: torch.Tensor):
    order = match_rows(similarity).tolist()
    n = len(similarity)
    assert sorted(order) == list(range(n))
    assert total(similarity, order) == max(total(similarity, list(p)) for p in itertools.permutations(range(n)))


@given(st.integers(1, 8), st.integers(0, 100))
def test_a_permutation_is_undone(n: int, seed: int):
    rng = torch.Generator().manual_seed(seed)
    reference, order = torch.randn(n, 3, generator=rng), torch.randperm(n, generator=rng)
    distance = torch.cdist(reference, reference[order])
    assert torch.equal(reference[order][match_rows(-distance)], reference)


def test_leading_dimensions_are_matched_one_by_one():
    similarity = torch.rand(2, 3, 4, 4)
    orders = match_rows(similarity)
    assert orders.shape == (2, 3, 4) and orders.dtype == torch.long
    for i, j in itertools.product(range(2), range(3)):
        assert torch.equal(orders[i, j], match_rows(similarity[i, j]))


def test_matching_cuts_the_graph():
    similarity = torch.rand(3, 3, requires_grad=True)
    assert not match_rows(similarity).requires_grad
