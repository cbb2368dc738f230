"""Where a search stands."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch

from lightleak.attacks.gradient_inversion.exact.peel.state import State
from lightleak.core.seeds import generator


def start_of(batch: Any) -> State:
    return State.start(batch.chain, batch.observed, len(batch.x), batch.encoder, batch.prior)


def with_rows(state: State, start: State, batch: Any, rows: list[int], off: float = 0.0) -> State:
    """Rows of the batch explained, their free numbers off by a part of a deviation."""
    codes, values = batch.cells[0][rows], batch.cells[1][rows]
    noise = off * torch.randn(values.shape, generator=generator(0, "off"), dtype=torch.float64)
    noise[:, [*start.space.constants, *start.space.ties]] = 0
    cells = codes, (values + noise * batch.encoder.deviation).clamp(batch.encoder.lower, batch.encoder.upper)
    counts = torch.nn.functional.one_hot(batch.truth.labels[rows], batch.chain.n_classes).double()
    return state.with_rows(start, cells, start.space.encode(cells), counts)


@pytest.mark.parametrize(("hidden", "n_classes"), [((40, 40), 2), ((30, 30, 30), 3)])
def test_every_row_that_is_explained_leaves_one_dimension_less(
    make_batch: Any, hidden: tuple[int, ...], n_classes: int
) -> None:
    batch = make_batch(9, hidden, n_classes, seed=7)
    start = state = start_of(batch)
    assert state.searched.rank == 9 == state.residual.rows_left and not len(state.cells[0])
    for rows in ([4], [0, 8], [1, 2, 3, 5, 6]):
        before, state = state, with_rows(state, start, batch, rows)
        assert state.searched.rank == before.searched.rank - len(rows) == state.residual.rows_left
        assert state.spaces[0].rank <= before.spaces[0].rank
        assert not state.is_explained
        # What may be behind the rest only narrows.
        wider = [set(present.tolist()) for present in before.space.present]
        assert all(set(p.tolist()) <= whole for p, whole in zip(state.space.present, wider, strict=True))
    state = with_rows(state, start, batch, [7])
    assert state.is_explained and state.residual.relative < 1e-6


def test_an_earlier_state_is_untouched_by_later_ones(make_batch: Any) -> None:
    batch = make_batch(6, n_classes=3, seed=4)
    start = start_of(batch)
    some = with_rows(start, start, batch, [0, 1])
    x, left = some.residual.x.clone(), some.residual.left[1].clone()
    on = with_rows(some, start, batch, [2, 3], off=1e-3)
    again = with_rows(some, start, batch, [2, 3], off=1e-3)
    assert torch.equal(some.residual.x, x) and torch.equal(some.residual.left[1], left) and len(start.residual.x) == 0
    assert torch.equal(on.residual.x, again.residual.x)  # nothing but the state decides what follows
    with pytest.raises(FrozenInstanceError):
        some.cells = on.cells  # type: ignore[misc]


def test_numbers_are_corrected_as_rows_are_explained(make_batch: Any) -> None:
    batch = make_batch(9, (40, 40), 3, seed=7)
    start = start_of(batch)
    state = with_rows(start, start, batch, [0, 1, 2, 3, 4, 5], off=1e-3)
    wrong = ((state.cells[1] - batch.cells[1][:6]).abs() / batch.encoder.deviation).max()
    assert float(wrong) < 1e-5
    torch.testing.assert_close(state.residual.x, state.space.encode(state.cells), rtol=0, atol=0)


def test_rounding_makes_integer_columns_whole_and_leaves_others(make_batch: Any) -> None:
    batch = make_batch(5, seed=4)
    start = start_of(batch)
    rough = with_rows(start, start, batch, [0, 1], off=0.2)
    rounded = rough.rounded()
    whole = torch.tensor([c.kind == "integer" for c in batch.encoder.schema.numerical])
    assert bool((rounded.cells[1][:, whole] % 1 == 0).all()) and bool((rough.cells[1][:, whole] % 1 != 0).any())
    assert torch.equal(rounded.cells[1][:, ~whole], rough.cells[1][:, ~whole])
    torch.testing.assert_close(rounded.residual.x, rounded.space.encode(rounded.cells), rtol=0, atol=0)
