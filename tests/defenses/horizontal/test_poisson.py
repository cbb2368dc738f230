"""Every row enters every batch with the same probability, independently; the draws follow seed and epoch."""

import math
from collections.abc import Callable

import lightning
import pytest
import torch

from lightleak.data.datamodule import TableDataModule
from lightleak.defenses.horizontal.poisson import PoissonSampler


def masks(sampler: PoissonSampler, epochs: int = 1) -> torch.Tensor:
    """Which row was in which batch, ``[batches, rows]``."""
    batches = [indices for _ in range(epochs) for indices in sampler]
    taken = torch.zeros(len(batches), sampler.n_rows)
    for row, indices in enumerate(batches):
        assert indices.dtype == torch.long
        taken[row, indices] = 1
        assert int(taken[row].sum()) == len(indices)  # none twice
    return taken


def test_rows_are_drawn_with_the_sample_rate_and_independently() -> None:
    sampler = PoissonSampler(100, 20, seed=0)
    assert sampler.sample_rate == 0.2
    taken = masks(sampler, epochs=400)
    assert taken.shape == (2000, 100)
    error = math.sqrt(0.2 * 0.8 / 2000)
    assert float((taken.mean(0) - 0.2).abs().max()) < 5 * error
    sizes = taken.sum(1)
    # A binomial of 100 rows: mean 20, variance 16; the variance's standard error is about 16 * sqrt(2 / 2000).
    assert float(sizes.mean()) == pytest.approx(20, abs=5 * math.sqrt(16 / 2000))
    assert float(sizes.var()) == pytest.approx(16, abs=5 * 16 * math.sqrt(2 / 2000))
    correlation = torch.corrcoef(taken.T) - torch.eye(100)
    assert float(correlation.abs().max()) < 5.5 / math.sqrt(2000)


def test_draws_follow_seed_and_epoch() -> None:
    first = masks(PoissonSampler(50, 10, seed=0), epochs=2)
    assert torch.equal(first, masks(PoissonSampler(50, 10, seed=0), epochs=2))
    assert not torch.equal(first, masks(PoissonSampler(50, 10, seed=1), epochs=2))
    later = PoissonSampler(50, 10, seed=0)
    later.set_epoch(1)
    assert torch.equal(masks(later), first[5:])
    assert not torch.equal(first[:5], first[5:])


@pytest.mark.parametrize(("n_rows", "batch_size", "batches"), [(100, 20, 5), (101, 20, 6), (99, 33, 3), (7, 7, 1)])
def test_an_epoch_has_as_many_batches_as_without_sampling(n_rows: int, batch_size: int, batches: int) -> None:
    sampler = PoissonSampler(n_rows, batch_size, seed=0)
    assert len(sampler) == len(list(sampler)) == batches


def test_the_data_module_serves_the_rows_of_the_other(make_data: Callable[..., TableDataModule]) -> None:
    data = make_data(validation_fraction=0.25)
    poisson = data.drawn_by(PoissonSampler(len(data.train_indices), 32, seed=0))
    assert not data._parts  # nothing is encoded before it is asked for
    inputs, labels = data.part("train").tensors
    assert poisson.part("train") is data.part("train")
    sampler = PoissonSampler(len(inputs), 32, seed=0)
    data.train_dataloader()
    assert poisson.rows_of(0, 0) is None and data.rows_of(0, 0) is not None
    for i, ((x, y), indices) in enumerate(zip(poisson.train_dataloader(), sampler, strict=True)):
        assert torch.equal(x, inputs[indices]) and torch.equal(y, labels[indices])
        rows = poisson.rows_of(0, i)
        assert rows is not None and torch.equal(rows, torch.as_tensor(data.train_indices)[indices])
    for mine, other in (
        (poisson.val_dataloader(), data.val_dataloader()),
        (poisson.test_dataloader(), data.test_dataloader()),
    ):
        assert all(torch.equal(a, b) for a, b in zip(*[next(iter(loader)) for loader in (mine, other)], strict=True))
    assert sum(len(labels) for _, labels in data.train_dataloader()) == len(inputs)  # the other is as it was


def test_lightning_sets_the_epoch(
    make_data: Callable[..., TableDataModule],
    make_model: Callable[..., lightning.LightningModule],
    make_trainer: Callable[..., lightning.Trainer],
) -> None:
    data = make_data()
    sampler = PoissonSampler(len(data.train_indices), data.batch_size, seed=0)
    make_trainer(max_epochs=3).fit(make_model(), datamodule=data.drawn_by(sampler))
    assert sampler.epoch == 3
    assert sampler.sample_rate == 32 / 192
