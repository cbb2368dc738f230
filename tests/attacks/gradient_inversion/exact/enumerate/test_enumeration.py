"""Enumeration of the rows in a first layer's row space."""

from dataclasses import replace
from itertools import product

import pytest
import torch

from lightleak.attacks.gradient_inversion.exact.enumerate.enumeration import (
    EnumerationLimits,
    enumerate_rows,
    satisfying,
)
from lightleak.attacks.gradient_inversion.exact.enumerate.row_equations import RowEquations
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.attacks.gradient_inversion.tables.schema_inference import infer_domain
from lightleak.core.errors import UsageError


def space_of(batch):
    return infer_domain(batch.observed[0], batch.encoder, batch.prior, len(batch.x))


def as_set(codes):
    return {tuple(row) for row in codes.tolist()}


@pytest.mark.parametrize("n", [3, 5])
def test_all_true_rows_are_found_with_their_numbers_where_these_are_determined(make_batch, n):
    determined = 0
    for seed in range(4):
        batch = make_batch(n, seed=seed, precise=True)
        space = space_of(batch)
        found = enumerate_rows(batch.observed[0], space, n)
        if found.reason.startswith("no constraints"):
            continue
        assert found.reason == ""
        follow = RowEquations.of(batch.observed[0], space, n).determines(range(len(space.free)))
        determined += follow
        codes, numbers = space.coordinates(batch.cells)
        for code, number in zip(codes, numbers, strict=True):
            same = (found.codes == code).all(1)
            assert bool(same.any())
            assert not follow or float((found.numbers[same] - number).abs().amax(1).min()) < 1e-3
    assert determined


@pytest.mark.parametrize("at_bound", [False, True])
def test_categories_are_those_that_a_slow_search_of_all_combinations_finds(make_batch, at_bound):
    batch = make_batch(8, precise=True)
    space = space_of(batch)
    equations = RowEquations.of(batch.observed[0], space, 8)
    held = tuple(f for f, skewed in enumerate(space.skewed.tolist()) if skewed) if at_bound else ()
    onto = equations.on_categories(held)
    limits = EnumerationLimits(tolerance=0.05)
    slow = set()
    for code in product(*(range(size) for size in space.sizes)):
        column, start = onto[:, -1].clone(), 0
        for size, c in zip(space.sizes, code, strict=True):
            column += onto[:, start + c]
            start += size
        if float(column.norm()) <= limits.tolerance:
            slow.add(code)
    assert as_set(satisfying(equations, held, limits).codes) == slow
    assert slow


def test_assuming_numbers_at_their_bound_gives_an_equation_for_each(make_batch):
    batch = next(b for b in (make_batch(5, seed=s, precise=True) for s in range(20)) if space_of(b).skewed.any())
    equations = RowEquations.of(batch.observed[0], space_of(batch), 5)
    skewed = tuple(f for f, is_skewed in enumerate(equations.space.skewed.tolist()) if is_skewed)
    assert satisfying(equations, skewed).constraints == satisfying(equations).constraints + len(skewed)


def test_without_free_numbers_and_without_categories(make_batch):
    batch = make_batch(4, precise=True)
    space = space_of(batch)
    values = batch.cells[1][0]
    still = replace(space, constants={j: float(values[j]) for j in range(len(values))}, ties={})
    residual = _gradient_of_one_row(batch, still)
    found = enumerate_rows(residual, still, 1)
    assert found.numbers.shape == (len(found.codes), 0)
    assert tuple(still.coordinates((batch.cells[0][:1], values[None]))[0][0].tolist()) in as_set(found.codes)


def _gradient_of_one_row(batch, space: RowDomain):
    x = space.encode((batch.cells[0][:1], batch.cells[1][:1]))
    share = torch.arange(1.0, 41.0, dtype=torch.float64)
    return torch.outer(share, torch.cat([x[0], x.new_ones(1)]))


def test_limits_are_named_where_they_end_the_work(make_batch):
    batch = make_batch(8)
    space = space_of(batch)

    def reason(**limits):
        return enumerate_rows(batch.observed[0], space, 8, limits=EnumerationLimits(**limits)).reason

    assert "half sums" in reason(half_sums=1)
    assert "too many pairs" in reason(pairs=1, tolerance=10.0)
    assert "too many hits" in reason(hits=1, tolerance=10.0)
    assert reason() == ""


def test_a_full_span_leaves_no_constraints(make_batch):
    batch = make_batch(8)
    space = space_of(batch)
    full = torch.randn(200, batch.observed[0].shape[1], generator=torch.Generator().manual_seed(0)).double()
    found = enumerate_rows(full, space, 200)
    assert found.reason.startswith("no constraints")
    assert found.codes.shape == (0, len(space.sizes))


def test_known_noise_refuses_rows_that_only_a_loose_tolerance_lets_in(make_batch):
    batch = make_batch(5)
    space = space_of(batch)
    loose = EnumerationLimits(tolerance=0.5, hits=10**6)
    noise = 1e-7 * float(batch.observed[0].abs().max())
    every = enumerate_rows(batch.observed[0], space, 5, limits=loose)
    tested = enumerate_rows(batch.observed[0], space, 5, noise, loose)
    codes, _ = space.coordinates(batch.cells)
    assert as_set(codes) <= as_set(tested.codes) < as_set(every.codes)


@pytest.mark.parametrize("name", ["half_sums", "pairs", "hits", "tolerance"])
def test_limits_must_be_positive(name):
    with pytest.raises(UsageError, match=name):
        EnumerationLimits(**{name: 0})
