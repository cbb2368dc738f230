"""Linear equations for a row's cells."""

import pytest
import torch

from lightleak.attacks.gradient_inversion.exact.enumerate.row_equations import RowEquations, coordinate_gradient
from lightleak.attacks.gradient_inversion.tables.schema_inference import infer_domain

ENCODINGS = ("standardized", "onehot", "minmax")


def equations_of(batch, noise=0.0):
    space = infer_domain(batch.observed[0], batch.encoder, batch.prior, len(batch.x))
    return RowEquations.of(batch.observed[0], space, len(batch.x), noise)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_gradient_by_coordinates_is_the_shares_times_the_coordinates(make_batch, encoding):
    batch = make_batch(6, encoding=encoding, precise=True)
    space = infer_domain(batch.observed[0], batch.encoder, batch.prior, 6)
    equations = RowEquations.of(batch.observed[0], space, 6)
    x, counts = batch.distinct()
    activations = batch.chain.forward(x)
    output = counts.sum(-1, keepdim=True) * activations.probabilities - counts
    shares = batch.chain.errors(activations, output / 6)[0]
    coordinates = equations.coordinates(*space.coordinates(batch.encoder.project(x)))
    found = coordinate_gradient(batch.observed[0], space)
    torch.testing.assert_close(found, shares.T @ coordinates, rtol=0, atol=1e-7 * float(found.abs().max()))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_true_rows_satisfy_the_equations_and_others_do_not(make_batch, encoding):
    batch = make_batch(6, encoding=encoding, precise=True)
    equations = equations_of(batch)
    codes, numbers = equations.space.coordinates(batch.cells)
    assert equations.rank == 6
    assert float(equations.distance(codes, numbers).max()) < 1e-5
    changed = codes.clone()
    widest = max(range(len(equations.space.sizes)), key=lambda k: equations.space.sizes[k])
    changed[:, widest] = (changed[:, widest] + 1) % equations.space.sizes[widest]
    assert float(equations.distance(changed, numbers).min()) > 1e-2


def test_equations_are_orthonormal_and_leave_out_block_sums(make_batch):
    equations = equations_of(make_batch(6))
    values = equations.values
    torch.testing.assert_close(values @ values.T, torch.eye(len(values), dtype=values.dtype), rtol=0, atol=1e-10)
    width = sum(equations.space.sizes) + len(equations.space.free) + 1
    assert len(values) == width - len(equations.space.sizes) - equations.rank
    start = 0
    for size in equations.space.sizes:
        block_sum = values[:, start : start + size].sum(1) - values[:, -1]
        assert float(block_sum.abs().max()) < 1e-10
        start += size


def test_numbers_follow_from_the_categories(make_batch):
    batch = make_batch(6, precise=True)
    equations = equations_of(batch)
    codes, numbers = equations.space.coordinates(batch.cells)
    assert equations.determines(range(numbers.shape[1]))
    torch.testing.assert_close(equations.solve(codes), numbers, rtol=0, atol=1e-4)


def test_numbers_at_their_bound_are_held_there_and_none_leaves_its_bounds(make_batch):
    batch = make_batch(6, precise=True)
    equations = equations_of(batch)
    space = equations.space
    skewed = [f for f, is_skewed in enumerate(space.skewed.tolist()) if is_skewed]
    codes, _ = space.draw(50, torch.Generator().manual_seed(0))
    for at_bound in ((), tuple(skewed)):
        found = equations.solve(codes, at_bound)
        assert bool(((found >= space.lower - 1e-12) & (found <= space.upper + 1e-12)).all())
        assert bool((found[:, list(at_bound)] == space.lower[list(at_bound)]).all())


def test_whole_numbers_are_rounded_where_noise_leaves_no_doubt(make_batch):
    batch = make_batch(6)
    noise = 1e-8 * float(batch.observed[0].abs().max())
    equations = equations_of(batch, noise)
    codes, numbers = equations.space.coordinates(batch.cells)
    whole = equations.space.integer
    assert bool(whole.any())
    torch.testing.assert_close(equations.solve(codes)[:, whole], numbers[:, whole], rtol=0, atol=1e-9)


def test_solving_near_numbers_moves_them_least(make_batch):
    batch = make_batch(6, precise=True)
    equations = equations_of(batch)
    codes, numbers = equations.space.coordinates(batch.cells)
    # Half of the equations leave numbers open.
    fewer = RowEquations(
        equations.space, equations.gradient, equations.span, equations.singular, equations.values[:1], 0.0
    )
    torch.testing.assert_close(fewer.solve_near(codes, numbers), numbers, rtol=0, atol=1e-4)
    moved = fewer.solve_near(codes, numbers + 0.05)
    inside = (moved > equations.space.lower) & (moved < equations.space.upper)
    some = inside.all(1)
    assert bool(some.any())
    assert float(fewer.distance(codes[some], moved[some]).max()) < 1e-6


def test_span_orthogonal_to_known_rows_has_as_much_less_rank(make_batch):
    batch = make_batch(6, precise=True)
    equations = equations_of(batch)
    known = equations.coordinates(*equations.space.coordinates(batch.cells))[:2]
    rest = equations.orthogonal_to(known)
    assert rest.rank == equations.rank - 2
    assert float((rest.span @ known.T).abs().max()) < 1e-10


def test_sharpness_of_no_numbers_is_infinite_and_of_too_many_is_zero(make_batch):
    equations = equations_of(make_batch(6))
    none = RowEquations(
        equations.space, equations.gradient, equations.span, equations.singular, equations.values[:0], 0.0
    )
    assert equations.sharpness([]) == float("inf")
    assert none.sharpness([0]) == 0.0
    assert not none.determines([0])
