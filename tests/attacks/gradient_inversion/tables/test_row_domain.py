"""Coordinates of rows against the encoder."""

from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain, Tie
from lightleak.attacks.gradient_inversion.tables.schema_inference import infer_domain
from lightleak.core.errors import UnsupportedError
from lightleak.core.seeds import generator
from lightleak.data.encoder import TableEncoder

ENCODINGS = ["standardized", "onehot", "minmax"]


@pytest.fixture(params=ENCODINGS)
def spaces(request: Any, make_batch: Any) -> list[RowDomain]:
    """The whole table; a space inferred from a gradient; one restricted by hand."""
    batch = make_batch(n=20, encoding=request.param)
    whole = RowDomain.whole(batch.encoder, batch.prior)
    points = torch.tensor([4.0, 9.0, 10.0, 30.0], dtype=torch.float64)
    present = (torch.tensor([3, 1]), torch.tensor([2]), torch.tensor([0, 2, 3]), torch.tensor([0, 1]))
    by_hand = RowDomain(batch.encoder, batch.prior, present, {0: 7.0, 5: 2024.0}, {3: Tie(2, points)})
    return [whole, infer_domain(batch.observed[0], batch.encoder, batch.prior, 20), by_hand]


def test_the_spaces_differ(spaces: list[RowDomain]) -> None:
    assert [space.free for space in spaces] == [(0, 1, 2, 3, 4, 5), (0, 1, 2, 4), (1, 2, 4)]
    assert [space.sizes[1] for space in spaces][::2] == [3, 1]
    assert spaces[2].integer.tolist() == [True, False, True]


def test_tables_encode_as_the_encoder_does(spaces: list[RowDomain]) -> None:
    for space in spaces:
        codes, numbers = space.draw(50, generator(1, "draw"))
        cells = space.cells(codes, numbers, rounded=False)
        expected = space.encoder.assemble(*cells).double()
        torch.testing.assert_close(space.rows.of(codes, numbers), expected, rtol=1e-5, atol=1e-5)
        assert torch.equal(space.encode(cells), expected)
        # Rounding to float32 is all that lies between them.
        exact = space.rows.of(codes, numbers)
        assert float((exact - expected).abs().max()) <= 2**-23 * float(exact.abs().max())


def test_the_first_layers_tables_are_its_preactivations(spaces: list[RowDomain], make_batch: Any) -> None:
    for space in spaces:
        chain = make_batch(n=20, encoding=space.encoder.encoding).chain
        codes, numbers = space.draw(20, generator(2, "draw"))
        tables = space.first_layer(*chain.state_map)
        expected = chain.forward(space.rows.of(codes, numbers)).preactivations[0]
        torch.testing.assert_close(tables.of(codes, numbers), expected)
        torch.testing.assert_close(tables.of(codes.view(4, 5, -1), numbers.view(4, 5, -1)).flatten(0, 1), expected)
        assert tables.to(torch.float32).of(codes, numbers).dtype == torch.float32


def test_one_cell_changes_one_addition(spaces: list[RowDomain], make_batch: Any) -> None:
    for space in spaces:
        tables = space.first_layer(*make_batch(n=20, encoding=space.encoder.encoding).chain.state_map)
        codes, numbers = space.draw(8, generator(3, "draw"))
        before = tables.of(codes, numbers)
        for k, table in enumerate(tables.categories):
            moved = codes.clone()
            moved[:, k] = (codes[:, k] + 1) % len(table)
            torch.testing.assert_close(tables.of(moved, numbers), before - table[codes[:, k]] + table[moved[:, k]])
        for i, of_number in enumerate(tables.numbers):
            moved = numbers.clone()
            moved[:, i] += 0.25
            torch.testing.assert_close(tables.of(codes, moved), before + 0.25 * of_number)


def test_cells_and_coordinates_are_inverse(spaces: list[RowDomain]) -> None:
    for space in spaces:
        codes, numbers = space.draw(60, generator(4, "draw"))
        again, values = space.coordinates(space.cells(codes, numbers, rounded=False))
        assert torch.equal(again, codes)
        torch.testing.assert_close(values, numbers, rtol=1e-9, atol=1e-9)
        cells = space.cells(codes, numbers)
        for there, back in zip(cells, space.cells(*space.coordinates(cells)), strict=True):
            torch.testing.assert_close(there, back, rtol=1e-12, atol=1e-9)


def test_cells_are_rows_of_the_table(spaces: list[RowDomain]) -> None:
    for space in spaces:
        codes, values = space.cells(*space.draw(60, generator(5, "draw")))
        encoder = space.encoder
        for column, of_column in zip(encoder.schema.numerical, values.unbind(-1), strict=True):
            assert column.kind != "integer" or bool((of_column == of_column.round()).all())
        assert bool(((values >= encoder.lower - 0.5) & (values <= encoder.upper + 0.5)).all())
        for present, of_column in zip(space.present, codes.unbind(-1), strict=True):
            assert set(of_column.tolist()) <= set(present.tolist())
        for j, value in space.constants.items():
            assert bool((values[:, j] == value).all())
        for j, tie in space.ties.items():
            assert torch.equal(values[:, j], tie.values[codes[:, tie.column]])


def test_rounded_numbers_are_whole_in_the_table(spaces: list[RowDomain]) -> None:
    for space in spaces:
        numbers = space.draw(24, generator(8, "draw"))[1]
        every = space.rounded(numbers)
        table = space.center + space.unit * every
        torch.testing.assert_close(table, table.round(), atol=1e-6, rtol=0)
        assert float(((every - numbers) * space.unit).abs().max()) <= 0.5 + 1e-6
        in_turn = numbers.view(4, 6, -1)
        for q in range(len(space.free)):
            one = space.rounded(numbers, q)
            others = [f for f in range(len(space.free)) if f != q]
            assert torch.equal(one[:, q], every[:, q]) and torch.equal(one[:, others], numbers[:, others])
            in_turn = space.rounded(in_turn, q)
        assert torch.equal(in_turn.flatten(0, 1), every)


def test_a_category_that_is_not_present_takes_the_first_that_is(spaces: list[RowDomain]) -> None:
    space = spaces[2]
    codes, _ = space.coordinates((torch.tensor([[0, 0, 1, 1]]), torch.zeros(1, 6, dtype=torch.float64)))
    assert space.cells(codes, torch.zeros(1, 3, dtype=torch.float64))[0].tolist() == [[3, 2, 0, 1]]


def test_draws_from_the_prior_follow_it(make_batch: Any) -> None:
    batch = make_batch()
    space = RowDomain.whole(batch.encoder, batch.prior)
    codes, numbers = space.draw(20_000, generator(6, "draw"), from_prior=True)
    for shares, of_column in zip(batch.prior.shares, codes.unbind(-1), strict=True):
        drawn = torch.bincount(of_column, minlength=len(shares)) / len(codes)
        assert float((drawn - shares).abs().max()) < 0.02
    fee = [column.name for column in batch.encoder.schema.numerical].index("fee")
    assert space.skewed.tolist()[fee] and bool((numbers[:, space.skewed] == space.lower[space.skewed]).all())
    even, _ = space.draw(20_000, generator(6, "draw"))
    assert float((torch.bincount(even[:, 0]) / len(even) - 0.2).abs().max()) < 0.02


def test_draws_depend_on_their_generator_alone(make_batch: Any) -> None:
    batch = make_batch()
    space = RowDomain.whole(batch.encoder, batch.prior)
    first = space.draw(30, generator(7, "draw"))
    torch.manual_seed(99)
    assert all(torch.equal(a, b) for a, b in zip(first, space.draw(30, generator(7, "draw")), strict=True))


def test_numbers_that_are_not_affine_are_refused(make_batch: Any) -> None:
    batch = make_batch()
    frame = batch.encoder.decode(batch.truth.inputs)
    quantile = TableEncoder(batch.encoder.schema, "quantile").fit(frame)
    with pytest.raises(UnsupportedError, match="got the encoding 'quantile'"):
        RowDomain.whole(quantile, batch.prior)
