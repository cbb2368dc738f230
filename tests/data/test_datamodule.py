"""The data module: batches equal to the frame's rows, reproducible, and refused when they cannot be."""

import warnings

import lightning
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from lightleak.core.errors import DataError, UsageError
from lightleak.data.datamodule import BatchSampler, RankSampler, TableDataModule, batch_loader
from lightleak.data.datasets import load_dataset
from lightleak.data.encoder import TableEncoder
from lightleak.data.table import Table
from lightleak.protocols.federated_data import FederatedData


@pytest.fixture(scope="module")
def table() -> Table:
    return load_dataset("synthetic", n_discrete=2, n_continuous=2, n_rows=250)


@pytest.fixture(scope="module")
def encoder(table: Table) -> TableEncoder:
    return TableEncoder(table.schema).fit(table.train)


def epoch(loader) -> tuple[torch.Tensor, torch.Tensor]:
    batches = list(loader)
    return torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])


def as_rows(inputs: torch.Tensor, labels: torch.Tensor) -> list[list[float]]:
    return sorted(torch.cat([inputs, labels[:, None].float()], 1).tolist())


def test_parts_are_the_encoded_rows_of_the_table(table: Table, encoder: TableEncoder) -> None:
    module = TableDataModule(table, encoder, batch_size=16, validation_fraction=0.25, seed=3)
    assert len(module.part("train")) == 150
    assert len(module.part("validation")) == 50
    for name, frame in (
        ("train", table.train.iloc[module.train_indices]),
        ("validation", table.train.iloc[module.validation_indices]),
        ("test", table.test),
    ):
        inputs, labels = module.part(name).tensors
        assert torch.equal(inputs, encoder.encode(frame))
        assert torch.equal(labels, encoder.encode_labels(frame))
        assert (inputs.dtype, labels.dtype) == (torch.float32, torch.int64)
    held = np.concatenate([module.train_indices, module.validation_indices])
    assert np.array_equal(np.sort(held), np.arange(200))


def test_an_epoch_serves_every_row_once(table: Table, encoder: TableEncoder) -> None:
    module = TableDataModule(table, encoder, batch_size=16)
    loader = module.train_dataloader()
    sizes = [len(labels) for _, labels in loader]
    assert len(loader) == len(sizes) == 12
    assert sizes == [16] * 11 + [4]
    assert as_rows(*epoch(loader)) == as_rows(*module.part("train").tensors)
    for name, loader in (("validation", module.val_dataloader()), ("test", module.test_dataloader())):
        inputs, labels = epoch(loader)
        assert torch.equal(inputs, module.part(name).tensors[0])
        assert torch.equal(labels, module.part(name).tensors[1])


def test_drop_last_leaves_out_the_small_batch(table: Table, encoder: TableEncoder) -> None:
    module = TableDataModule(table, encoder, batch_size=16, drop_last=True)
    assert [len(labels) for _, labels in module.train_dataloader()] == [16] * 11
    assert len(module.train_dataloader()) == 11


def test_the_order_depends_on_seed_and_epoch_alone(table: Table, encoder: TableEncoder) -> None:
    loaders = [TableDataModule(table, encoder, batch_size=16, seed=seed).train_dataloader() for seed in (0, 0)]
    first = [epoch(loaders[0])[0] for _ in range(3)]
    assert not torch.equal(first[0], first[1])
    torch.manual_seed(99)  # global random state must not matter
    assert torch.equal(epoch(loaders[1])[0], first[0])
    loaders[1].sampler.set_epoch(2)
    assert torch.equal(epoch(loaders[1])[0], first[2])
    other = TableDataModule(table, encoder, batch_size=16, seed=1)
    assert not torch.equal(epoch(other.train_dataloader())[0], first[0])


def test_making_batches_leaves_the_global_random_state(table: Table, encoder: TableEncoder) -> None:
    module = TableDataModule(table, encoder, batch_size=16)
    before = torch.get_rng_state()
    epoch(module.train_dataloader())
    assert torch.equal(torch.get_rng_state(), before)


def test_a_client_sees_only_its_own_rows(table: Table, encoder: TableEncoder) -> None:
    rows = np.array([3, 5, 8, 13, 21, 34, 55, 89])
    module = TableDataModule(table, encoder, batch_size=4, validation_fraction=0.25, rows=rows)
    assert set(module.train_indices) | set(module.validation_indices) == set(rows)
    assert len(module.train_indices) == 6
    inputs, _ = module.part("train").tensors
    assert torch.equal(inputs, encoder.encode(table.train.iloc[module.train_indices]))


def test_no_validation_means_no_loader(table: Table, encoder: TableEncoder) -> None:
    module = TableDataModule(table, encoder, batch_size=200, validation_fraction=0)
    assert module.val_dataloader() == []
    assert len(module.part("train")) == 200


@pytest.mark.parametrize(
    ("batch_size", "fraction", "message"),
    [
        (2048, 0.0, r"batch_size must be at most 200 \(rows of 'synthetic'\), got 2048"),
        (200, 0.1, r"batch_size must be at most 180 \(rows of 'synthetic'\), got 200"),
        (0, 0.1, "batch_size must be at least 1, got 0"),
        (8, 1.0, "above 0 and below 1, got 1.0"),
    ],
)
def test_impossible_sizes_are_refused_on_construction(table, encoder, batch_size, fraction, message) -> None:
    with pytest.raises(DataError, match=message):
        TableDataModule(table, encoder, batch_size=batch_size, validation_fraction=fraction)


@pytest.mark.parametrize("rows", [[], [-1, 2], [0, 200]])
def test_rows_out_of_range_are_refused(table, encoder, rows) -> None:
    with pytest.raises(DataError, match="a client's rows must be indices from 0 to 199, at least one"):
        TableDataModule(table, encoder, batch_size=1, rows=rows)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.arange(200) < 9, r"must be whole numbers, got \[True, .*; np.flatnonzero makes them of a mask"),
        ([0.5, 1.7], r"must be whole numbers, got \[0.5, 1.7\]$"),
        (["1", "2"], r"must be whole numbers, got \['1', '2'\]"),
        ([[1, 2], [3, 4]], r"must be whole numbers, got \[\[1, 2\], \[3, 4\]\]"),
        ([7, 3, 7], "must be different, got row 7 2 times"),
    ],
)
def test_what_are_no_indices_of_different_rows_is_refused(table, encoder, rows, message) -> None:
    with pytest.raises(DataError, match=f"a client's rows {message}"):
        TableDataModule(table, encoder, batch_size=1, rows=rows)


def test_an_encoder_of_another_table_is_refused(encoder: TableEncoder) -> None:
    with pytest.raises(DataError, match="the encoder was made for another table than 'fair'"):
        TableDataModule(load_dataset("fair"), encoder)


def test_batches_equal_those_of_the_default_loader() -> None:
    rows = TensorDataset(torch.arange(40.0).reshape(20, 2), torch.arange(20))
    ours = list(batch_loader(rows, BatchSampler(20, 6)))
    default = list(DataLoader(rows, batch_size=6))
    assert len(ours) == len(default)
    for (x, y), (expected_x, expected_y) in zip(ours, default, strict=True):
        assert torch.equal(x, expected_x)
        assert torch.equal(y, expected_y)


class Recorder(lightning.LightningModule):
    """Keeps the labels it was shown; one weight, so that there is something to optimize."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen: list[torch.Tensor] = []

    def training_step(self, batch, _):
        inputs, labels = batch
        self.seen.append(torch.cat([inputs, labels[:, None].float()], 1))
        return self.weight * inputs.mean()

    def validation_step(self, batch, _):
        self.log("validation_rows", float(len(batch[1])), reduce_fx="sum")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(table: Table, encoder: TableEncoder, epochs: int, fraction: float = 0.1) -> Recorder:
    module = Recorder()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, TableDataModule(table, encoder, batch_size=32, validation_fraction=fraction, seed=5))
    return module


def test_a_trainer_sees_every_row_each_epoch_in_the_order_of_that_epoch(table, encoder) -> None:
    shown = torch.cat(fit(table, encoder, epochs=2).seen)
    module = TableDataModule(table, encoder, batch_size=32, seed=5)
    loader = module.train_dataloader()
    expected = []
    for number in range(2):
        loader.sampler.set_epoch(number)
        inputs, labels = epoch(loader)
        expected.append(torch.cat([inputs, labels[:, None].float()], 1))
    assert torch.equal(shown, torch.cat(expected))
    fit(table, encoder, epochs=1, fraction=0)  # without a validation part


@pytest.mark.parametrize("batches", [2, 0.5])
def test_a_trainer_that_makes_batches_of_its_own_is_refused(table, encoder, batches) -> None:
    rows = TensorDataset(encoder.encode(table.train), encoder.encode_labels(table.train))
    for data in (TableDataModule(table, encoder, batch_size=32), FederatedData(rows, [[0, 1]], seed=0)):
        settings = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False}
        trainer = lightning.Trainer(overfit_batches=batches, **settings)
        with pytest.raises(UsageError, match=rf"Trainer\(overfit_batches={batches}\) replaces the sampler"):
            trainer.fit(Recorder(), data)


@given(n_rows=st.integers(1, 70), size=st.integers(1, 9), world=st.integers(1, 5), epoch=st.integers(0, 2))
@example(n_rows=25, size=3, world=4, epoch=0)  # one row is left over, for four ranks
def test_ranks_train_on_disjoint_batches_in_equally_many_steps(n_rows: int, size: int, world: int, epoch: int) -> None:
    for drop_last in (False, True):
        order = BatchSampler(n_rows, size, True, seed=3).order(epoch).tolist()
        shares = []
        for rank in range(world):
            sampler = RankSampler(BatchSampler(n_rows, size, True, seed=3, drop_last=drop_last), rank, world)
            sampler.set_epoch(epoch)
            shares.append([batch.tolist() for batch in sampler])
            assert len(shares[-1]) == len(sampler)
        steps = list(zip(*shares, strict=True))
        left = n_rows % (size * world)
        served = n_rows - left if drop_last or left < world else n_rows
        assert [row for step in steps for batch in step for row in batch] == order[:served]
        assert all(len(batch) == size for step in steps[: n_rows // (size * world)] for batch in step)
        lengths = {len(batch) for batch in steps[-1]} if steps else {size}
        assert max(lengths) - min(lengths) <= 1 and 0 not in lengths


@given(n_rows=st.integers(1, 70), size=st.integers(1, 9), world=st.integers(1, 5))
def test_ranks_evaluate_every_row_once_in_equally_many_steps(n_rows: int, size: int, world: int) -> None:
    samplers = [RankSampler(BatchSampler(n_rows, size), rank, world, whole=True) for rank in range(world)]
    steps = list(zip(*samplers, strict=True))
    assert [row for step in steps for batch in step for row in batch.tolist()] == list(range(n_rows))
    lengths = {len(batch) for step in steps for batch in step}
    assert max(lengths) <= size and max(lengths) - min(lengths) <= 1
    assert {len(sampler) for sampler in samplers} == {len(steps)}
    if n_rows >= world and size > 1:
        assert 0 not in lengths


def test_one_rank_of_one_is_a_single_process() -> None:
    for shuffle in (True, False):
        alone = BatchSampler(20, 6, shuffle, seed=1)
        shared = RankSampler(BatchSampler(20, 6, shuffle, seed=1), 0, 1)
        for _ in range(2):  # the second pass is the next epoch in both
            assert [batch.tolist() for batch in shared] == [batch.tolist() for batch in alone]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 64}, r"batch_size 64 on 3 processes takes 192 rows a step; 'synthetic' has 180 for training"),
        ({"batch_size": 8, "validation_fraction": 0.01}, r"validation rows must be at least 3 \(processes .*got 2"),
    ],
)
def test_too_few_rows_for_the_processes_are_refused(table, encoder, settings, message) -> None:
    module = TableDataModule(table, encoder, **settings)
    module.check_ranks(2)
    with pytest.raises(DataError, match=message):
        module.check_ranks(3)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("size", "world"), [(1, 1), (6, 1), (7, 1), (8, 2), (11, 3), (33, 3)])
def test_the_smallest_batch_is_that_of_the_sampler(
    table: Table, encoder: TableEncoder, size: int, world: int, drop_last: bool
) -> None:
    data = TableDataModule(table, encoder, batch_size=size, validation_fraction=0.0, drop_last=drop_last)
    batches = BatchSampler(len(data.train_indices), size, drop_last=drop_last)
    ranks = [batches] if world == 1 else [RankSampler(batches, rank, world) for rank in range(world)]
    assert data.smallest_batch(world) == min(len(batch) for rank in ranks for batch in rank.batches(0))


def test_column_order_of_the_frame_does_not_matter(table: Table, encoder: TableEncoder) -> None:
    turned = Table(table.card, table.schema, table.train[table.train.columns[::-1]], table.test)
    pd.testing.assert_index_equal(turned.train.columns, table.train.columns[::-1])
    a, b = (TableDataModule(t, encoder, batch_size=8).part("train").tensors[0] for t in (table, turned))
    assert torch.equal(a, b)


def test_it_says_whose_rows_a_batch_holds(table: Table, encoder: TableEncoder) -> None:
    data = TableDataModule(table, encoder, batch_size=7, validation_fraction=0.2, seed=4)
    assert data.rows_of(0, 0) is None  # no batches yet
    loader = data.train_dataloader()
    for epoch in (0, 1):
        batches = list(loader)
        for index, (inputs, labels) in enumerate(batches):
            rows = data.rows_of(epoch, index)
            assert rows is not None
            people = table.train.iloc[rows.tolist()]
            assert torch.equal(encoder.encode(people), inputs) and torch.equal(encoder.encode_labels(people), labels)
        assert data.rows_of(epoch, len(batches)) is None
