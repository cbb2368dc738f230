"""Aligned rows, their checks, and batches dealt out over epochs and ranks."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lightleak.core.errors import DataError, UsageError
from lightleak.data.layout import EncodedLayout
from lightleak.data.vertical import VerticalDataModule, VerticalLoader, VerticalRows, party_positions


def make(n: int = 10, dtype: torch.dtype = torch.float32) -> VerticalRows:
    inputs = torch.arange(n * 5).view(n, 5).to(dtype)
    return VerticalRows(inputs, torch.arange(n) % 2, 100 + torch.arange(n), (2, 3))


def passes(loader: VerticalLoader) -> Tensor:
    return torch.cat([ids for _, _, ids in loader])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labels": torch.zeros(9, dtype=torch.long)}, r"must have shapes .* got \(10, 5\), \(9,\), \(10,\)"),
        ({"ids": torch.arange(11)}, r"got \(10, 5\), \(10,\), \(11,\)"),
        ({"inputs": torch.zeros(10)}, r"got \(10,\), \(10,\), \(10,\)"),
        ({"widths": (2, 2)}, r"widths must be at least 1 and sum to 5 \(columns\), got \(2, 2\)"),
        ({"widths": (5, 0)}, "widths must be at least 1"),
        ({"widths": ()}, "widths must be at least 1"),
        ({"inputs": torch.zeros(10, 5, dtype=torch.int64)}, "inputs must be float or uint8, got torch.int64"),
        ({"inputs": torch.full((10, 5), torch.nan)}, "inputs must be finite"),
        ({"labels": torch.zeros(10)}, "labels must be int64, got torch.float32"),
        ({"labels": torch.arange(10) - 1}, "labels must be 0 or more, got -1"),
        ({"ids": torch.zeros(10, dtype=torch.int32)}, "ids must be int64, got torch.int32"),
        ({"ids": torch.arange(10) // 2}, "ids must be distinct, got 10 rows with 5 ids"),
    ],
)
def test_rows_that_do_not_fit_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        VerticalRows(**(vars(make()) | changed))


def test_no_rows_are_refused() -> None:
    with pytest.raises(DataError, match="at least one, got none"):
        make().select(torch.zeros(0, dtype=torch.long))


def test_selected_rows_stay_aligned() -> None:
    rows = make()
    for chosen in (torch.tensor([7, 2]), rows.labels == 1):
        selected = rows.select(chosen)
        assert torch.equal(selected.inputs, rows.inputs[chosen])
        assert torch.equal(selected.labels, rows.labels[chosen])
        assert torch.equal(selected.ids, rows.ids[chosen])


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_a_party_gets_its_own_columns(dtype: torch.dtype) -> None:
    rows = make(dtype=dtype)
    chosen = torch.tensor([3, 1])
    assert rows.party_inputs(1, chosen).tolist() == [[17, 18, 19], [7, 8, 9]]
    assert rows.party_inputs(1).dtype == torch.float32
    assert torch.equal(torch.cat([rows.party_inputs(0), rows.party_inputs(1)], 1), rows.inputs.float())
    with pytest.raises(UsageError, match="party must be from 0 to 1, got -1"):
        rows.party_inputs(-1)


def test_positions_need_known_columns_held_once() -> None:
    layout = EncodedLayout.of_numerical(3)
    with pytest.raises(UsageError, match="unknown columns x3, x9; known: x0, x1, x2"):
        party_positions(layout, [["x3"], ["x0", "x9"]])
    with pytest.raises(UsageError, match="assigned to two: x1"):
        party_positions(layout, [["x0", "x1"], ["x1", "x2"]])


@given(
    n=st.integers(1, 40),
    batch_size=st.integers(1, 12),
    world_size=st.integers(1, 4),
    shuffle=st.booleans(),
    epoch=st.integers(0, 3),
)
def test_ranks_share_every_batch_of_one_process(
    n: int, batch_size: int, world_size: int, shuffle: bool, epoch: int
) -> None:
    whole = VerticalLoader(make(n), batch_size, shuffle, seed=5)
    ranks = [VerticalLoader(make(n), batch_size, shuffle, 5, rank, world_size) for rank in range(world_size)]
    for loader in (whole, *ranks):
        loader.set_epoch(epoch)
    assert sorted(passes(whole).tolist()) == (100 + torch.arange(n)).tolist()
    whole.set_epoch(epoch)
    full: list[int] = []
    for batch, *parts in zip(whole, *ranks, strict=True):
        for position, tensor in enumerate(batch):
            assert torch.equal(torch.cat([part[position] for part in parts]), tensor)
        sizes = [len(ids) for _, _, ids in parts]
        assert max(sizes) - min(sizes) <= 1
        # A listener may plan its memory from the first batch.
        full = full or sizes
        assert all(size <= first for size, first in zip(sizes, full, strict=True))


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    first, again, other = (VerticalLoader(make(30), 4, True, seed) for seed in (1, 1, 2))
    epochs = [passes(first) for _ in range(3)]
    assert not torch.equal(epochs[0], epochs[1])
    assert not torch.equal(epochs[0], passes(other))
    torch.manual_seed(99)
    again.set_epoch(2)
    assert torch.equal(passes(again), epochs[2])
    in_order = VerticalLoader(make(30), 4)
    assert passes(in_order).tolist() == passes(in_order).tolist() == (100 + torch.arange(30)).tolist()


@pytest.mark.parametrize("done", [0, 1, 3, 7, 8])
def test_an_interrupted_pass_goes_on_where_it_was(done: int) -> None:
    whole, broken, resumed = (VerticalLoader(make(30), 4, True, 3) for _ in range(3))
    expected = [ids for _ in range(2) for _, _, ids in whole]
    batches = iter(broken)
    for _ in range(done):
        next(batches)
    resumed.load_state_dict(broken.state_dict())
    rest = [ids for _, _, ids in resumed]
    assert resumed.state_dict() == {"epoch": 1 + done // 8, "done": 0}
    assert all(map(torch.equal, rest, expected[done:]))
    assert len(rest) == (8 - done if done < 8 else 8)


def test_set_epoch_keeps_the_place_within_that_epoch_alone() -> None:
    loader = VerticalLoader(make(30), 4, True, 3)
    next(iter(loader))
    loader.set_epoch(0)
    assert loader.state_dict() == {"epoch": 0, "done": 1}
    loader.set_epoch(1)
    assert loader.state_dict() == {"epoch": 1, "done": 0}


def test_bytes_become_float_batch_by_batch() -> None:
    rows = make(dtype=torch.uint8)
    loader = VerticalLoader(rows, 4)
    assert all(inputs.dtype == torch.float32 for inputs, _, _ in loader)
    assert torch.equal(torch.cat([inputs for inputs, _, _ in loader]), rows.inputs.float())
    assert loader.rows.inputs.dtype == torch.uint8


@pytest.mark.parametrize("batch_size", [0, -1, 11])
def test_batch_size_is_checked(batch_size: int) -> None:
    with pytest.raises(DataError, match=rf"batch_size must be from 1 to 10 \(training rows\), got {batch_size}"):
        VerticalDataModule(make(), make(), batch_size)


@pytest.mark.parametrize("part", ["test", "validation"])
def test_parts_are_dealt_out_alike(part: str) -> None:
    other = VerticalRows(**(vars(make()) | {"widths": (3, 2)}))
    parts = {"train": make(), "test": make(), part: other}
    with pytest.raises(DataError, match=rf"{part} rows must have the training rows' widths \(2, 3\), got \(3, 2\)"):
        VerticalDataModule(**parts, batch_size=2)


def test_the_module_serves_each_part() -> None:
    data = VerticalDataModule(make(), make(8), batch_size=4, shuffle=True, seed=1)
    first, second = passes(data.train_dataloader()), passes(data.train_dataloader())
    assert torch.equal(first, second)  # a new loader begins with epoch 0
    assert first.tolist() != make().ids.tolist()
    assert passes(data.test_dataloader()).tolist() == make(8).ids.tolist()
    assert data.val_dataloader() == []
    data = VerticalDataModule(make(), make(8), batch_size=4, validation=make(6))
    loader = data.val_dataloader()
    assert isinstance(loader, VerticalLoader)
    assert passes(loader).tolist() == make(6).ids.tolist()
