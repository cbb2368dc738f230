"""The search for rows: its distance, its moves, its polish."""

from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.exact.search.row_search import Candidates, RowSearch
from lightleak.attacks.gradient_inversion.exact.spaces.layer_spaces import spaces_of, unit_scale
from lightleak.attacks.gradient_inversion.network.search_view import UnitDirections
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain
from lightleak.attacks.gradient_inversion.tables.schema_inference import infer_domain
from lightleak.core.seeds import generator

SETTINGS = [((40, 40), 2), ((40, 40), 3), ((30, 30, 30), 2)]


def search_of(batch: Any, floor: float = 1e-3, seed: int = 0) -> RowSearch:
    spaces = spaces_of(batch.observed[1], unit_scale(batch.observed[1]))
    space = infer_domain(batch.observed[0], batch.encoder, batch.prior, len(batch.x))
    return RowSearch(batch.chain, space, spaces, floor, generator(seed, "search"))


@pytest.mark.parametrize("hidden", [(12, 9), (12, 9, 8), (12, 9, 8, 7)])
def test_unit_directions_are_the_errors_of_any_label(make_batch: Any, hidden: tuple[int, ...]) -> None:
    batch = make_batch(10, hidden, 2, seed=1)
    activations = batch.chain.forward(batch.x)
    output = torch.tensor([[1.0, -1.0]]).double().expand(10, -1)
    expected = batch.chain.errors(activations, output)[1]
    directions = UnitDirections.of(batch.chain.weights, batch.chain.biases)
    assert expected.any()
    torch.testing.assert_close(directions(activations.hidden[1]), expected)
    # The true errors are along them, whatever the label.
    labels = torch.nn.functional.one_hot(batch.truth.labels, 2)
    errors = batch.chain.errors(activations, activations.probabilities - labels)[1]
    factor = (activations.probabilities - labels)[:, :1]
    torch.testing.assert_close(directions(activations.hidden[1]) * factor, errors)
    metric = torch.randn(hidden[1], 4, generator=generator(0, "metric"), dtype=torch.float64)
    shaped = directions.onto(metric)(activations.hidden[1].view(2, 5, -1))
    torch.testing.assert_close(shaped.flatten(0, 1), expected @ metric)
    assert directions.to(torch.float32)(activations.hidden[1].float()).dtype == torch.float32


@pytest.mark.parametrize(("hidden", "n_classes"), SETTINGS)
@pytest.mark.parametrize("n", [4, 15])
def test_a_limit_never_changes_which_option_wins(
    make_batch: Any, hidden: tuple[int, ...], n_classes: int, n: int
) -> None:
    batch = make_batch(n, hidden, n_classes, seed=2)
    search = search_of(batch)
    draw = generator(0, "options")
    codes, numbers = search.space.draw(30 * 12, draw)
    options = search.tables.of(codes, numbers.float()).view(30, 12, -1)
    options[:5, 3] = search.exact_tables.of(*search.space.coordinates(batch.cells)).float()[torch.arange(5) % n]
    whole = search.distance(options)
    best = whole.min(1)
    for share in (0.0, 0.3, 0.9, 1.0, 1.5, 10.0):
        # Limits below, between and above the options.
        limit = (best.values + share * (whole.max(1).values - best.values)).unsqueeze(1)
        cut = search.distance(options, limit)
        below = whole < limit
        assert torch.equal(cut[below], whole[below])
        assert bool((cut[~below] >= limit.expand_as(cut)[~below]).all())
        assert bool((cut <= whole * (1 + 1e-6)).all())
        open_ = below.any(1)
        assert torch.equal(cut.argmin(1)[open_], best.indices[open_])
        assert torch.equal(open_, (cut < limit).any(1))


@pytest.mark.parametrize(("hidden", "n_classes"), SETTINGS)
def test_rows_of_the_batch_are_nearest(make_batch: Any, hidden: tuple[int, ...], n_classes: int) -> None:
    batch = make_batch(10, hidden, n_classes, seed=3)
    search = search_of(batch)
    true = search.distance(search.exact_tables.of(*search.space.coordinates(batch.cells)).float())
    others = search.distance(search.tables.of(*search.space.draw(2000, generator(0, "others"))))
    assert float(true.max()) < 1e-4 * float(others.min())


@pytest.mark.parametrize(("hidden", "n_classes"), SETTINGS)
def test_a_descent_ends_at_rows_of_the_batch(make_batch: Any, hidden: tuple[int, ...], n_classes: int) -> None:
    batch = make_batch(6, hidden, n_classes, seed=3)
    search = search_of(batch)
    start = search.distance(search.tables.of(*search.space.draw(64, generator(1, "start"))))
    found = search.run(64, 12)
    assert torch.equal(found.distance, found.distance.sort().values)
    assert float(found.distance.median()) < float(start.median())
    # What is said of a candidate is so, up to the float32 sums of its moves.
    again = search.distance(search.exact_tables.of(found.codes, found.numbers).float())
    torch.testing.assert_close(found.distance, again, rtol=0.05, atol=1e-3)
    assert bool(((found.numbers >= search.space.lower - 1e-6) & (found.numbers <= search.space.upper + 1e-6)).all())
    x = search.space.encode(search.space.cells(*_pair(search.polish(_first(found, 5), 5))))
    apart = (x.unsqueeze(1) - batch.x).norm(dim=-1)
    assert float(apart.min()) < 1e-3


def test_a_search_depends_on_its_generator_alone(make_batch: Any) -> None:
    batch = make_batch(5)
    first = search_of(batch, seed=4).run(20, 5)
    torch.manual_seed(1234)
    again, other = search_of(batch, seed=4).run(20, 5), search_of(batch, seed=5).run(20, 5)
    assert all(torch.equal(getattr(first, part), getattr(again, part)) for part in ("codes", "numbers", "distance"))
    assert not torch.equal(first.codes, other.codes)


@pytest.mark.parametrize("encoding", ["standardized", "onehot", "minmax"])
@pytest.mark.parametrize(("hidden", "n_classes"), SETTINGS)
def test_polish_restores_numbers(make_batch: Any, hidden: tuple[int, ...], n_classes: int, encoding: str) -> None:
    batch = make_batch(8, hidden, n_classes, encoding, seed=5)
    search = search_of(batch)
    codes, numbers = search.space.coordinates(batch.cells)
    moved = numbers + 0.02 * torch.randn(numbers.shape, generator=generator(0, "moved"), dtype=torch.float64)
    candidates = Candidates(codes, search.space.clamp(moved), torch.zeros(len(codes)))
    polished = search.polish(candidates, 5)
    found, values = search.space.cells(polished.codes, polished.numbers)
    assert torch.equal(found, batch.cells[0])
    off = (values - batch.cells[1]).abs() / batch.encoder.deviation
    assert float(off.max()) < 1e-3, off


def test_without_free_numbers_only_categories_move(make_batch: Any) -> None:
    batch = make_batch(1)
    search = search_of(batch)
    assert search.space.free == ()
    found = search.polish(search.run(4, 3), 5)
    codes, values = search.space.cells(found.codes, found.numbers)
    assert found.numbers.shape == (4, 0) and torch.equal(codes, batch.cells[0].expand(4, -1))
    torch.testing.assert_close(values, batch.cells[1].expand(4, -1), rtol=1e-4, atol=1e-6)


def _pair(candidates: Candidates) -> tuple[torch.Tensor, torch.Tensor]:
    return candidates.codes, candidates.numbers


def _first(candidates: Candidates, n: int) -> Candidates:
    return Candidates(candidates.codes[:n], candidates.numbers[:n], candidates.distance[:n])


def test_an_empty_column_space_leaves_the_row_space_alone(make_batch: Any) -> None:
    # More than `ENOUGH` null directions of the row space: the other is left out, and rows are still nearest.
    batch = make_batch(4, (80, 30), 2)
    search = search_of(batch)
    assert not search.tests_units
    space = RowDomain.whole(batch.encoder, batch.prior)
    others = search.distance(search.tables.of(*search.space.draw(500, generator(0, "others"))))
    true = search.distance(search.exact_tables.of(*search.space.coordinates(batch.cells)).float())
    assert float(true.max()) < 1e-4 * float(others.min()) and space.free
