"""The estimate of what exact inversion may expect."""

from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.exact.certify.feasibility import (
    ENOUGH_TESTS,
    RowKind,
    estimate_feasibility,
    expected_of_shapes,
)
from lightleak.attacks.gradient_inversion.network.chain import observed_gradient


@pytest.mark.parametrize("hidden", [[30, 30], [20, 30, 25]])
def test_a_gradient_tells_how_many_rows_are_behind_it(make_update: Any, hidden: list[int]) -> None:
    update, truth = make_update(n=5, hidden=hidden)
    found = estimate_feasibility(observed_gradient(update), 5)
    assert len(truth.inputs.unique(dim=0)) == 5
    assert found.ranks[1:] == (5,) * (len(hidden) - 1) and found.expected == "exact"
    for layer, rank, row, unit in zip(
        observed_gradient(update), found.ranks, found.row_constraints, found.unit_constraints, strict=False
    ):
        singular = torch.linalg.svdvals(layer)
        assert rank == int((singular > 1e-6 * singular[0]).sum())
        reached = int((layer.abs().sum(1) > 0).sum()), int((layer.abs().sum(0) > 0).sum())
        assert (unit + rank, row + rank) == reached


def test_shapes_and_gradient_agree_on_what_to_expect(make_update: Any) -> None:
    hidden = [40, 40]
    for n in (4, 20, 80):
        update, truth = make_update(n=n, hidden=hidden)
        width = truth.inputs.shape[1]
        seen = estimate_feasibility(observed_gradient(update), n)
        assert seen.expected == expected_of_shapes(n, hidden, width).expected, n


def test_expectation_falls_with_the_batch_and_never_rises() -> None:
    order = ["exact", "partial", "approximate"]
    found = [expected_of_shapes(n, (100, 100), 105).expected for n in range(1, 140)]
    assert [order.index(one) for one in found] == sorted(order.index(one) for one in found)
    assert found.count("exact") == 100 - ENOUGH_TESTS and set(found) == set(order)


def test_a_wide_later_layer_serves_where_an_earlier_one_does_not() -> None:
    assert expected_of_shapes(64, (400, 40), 105).expected == "approximate"
    assert expected_of_shapes(64, (400, 40, 400), 105).expected == "approximate"  # 40 units pass on 40 dimensions
    assert expected_of_shapes(64, (40, 400, 400), 105).expected == "exact"


def test_one_hidden_layer_promises_a_part_and_nothing_once_it_is_full() -> None:
    one, full = expected_of_shapes(8, (100,), 105), expected_of_shapes(96, (100,), 105)
    assert (one.expected, full.expected) == ("partial", "approximate")
    assert "92 equations of the one hidden layer's column space" in one.reason and "fill the one" in full.reason


def test_noise_and_a_rank_above_the_rows_promise_nothing(make_update: Any) -> None:
    update, _ = make_update(n=4, hidden=[30, 30])
    gradient = observed_gradient(update)
    draws = torch.Generator().manual_seed(0)
    noised = tuple(g + 1e-3 * torch.randn(g.shape, generator=draws, dtype=g.dtype) for g in gradient)
    unnoticed = estimate_feasibility(noised, 4)
    assert unnoticed.expected == "approximate" and "it was changed" in unnoticed.reason
    known = estimate_feasibility(noised, 4, noise=1e-3)
    assert known.expected == "approximate" and known.noise == 1e-3 and max(known.ranks) <= 4


def test_no_gradient_has_no_rank() -> None:
    zeros = [torch.zeros(4, 5, dtype=torch.float64), torch.zeros(6, 5, dtype=torch.float64), torch.zeros(2, 7)]
    assert estimate_feasibility(zeros, 3).ranks == (0, 0)


def test_fewer_different_rows_than_the_batch_has_promise_a_part() -> None:
    steps = torch.arange(1, 31, dtype=torch.float64)
    of_one = torch.outer(torch.ones(30, dtype=torch.float64), steps)
    found = estimate_feasibility([of_one, of_one, of_one[:2]], n_rows=8)
    assert found.expected == "partial" and "shows 1 different rows of 8" in found.reason
    assert estimate_feasibility([of_one, of_one, of_one[:2]], n_rows=1).expected == "exact"
    assert estimate_feasibility([of_one, of_one, of_one[:2]], n_rows=8, kind=RowKind(possible=1)).expected == "exact"
