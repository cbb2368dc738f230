"""Poisson sampling: every row enters a batch with the same probability, independently of all others.

It is the sampling that DP-SGD's accountants reckon with; batches cut from a shuffled table are not.
"""

from collections.abc import Iterator

import lightning
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from lightleak.core.seeds import derive_seed, generator
from lightleak.data.datamodule import BatchRows, EpochSampler, TableDataModule, batch_loader


class PoissonSampler(EpochSampler):
    """Batches ``[any number]``, possibly of no row; the draws depend on seed and epoch alone.

    Args:
        n_rows: rows to draw from.
        batch_size: rows expected in a batch, at most ``n_rows``.
        seed: root seed.

    Attributes:
        sample_rate: probability of a row to enter a batch.
    """

    def __init__(self, n_rows: int, batch_size: int, seed: int) -> None:
        self.n_rows, self.batch_size = n_rows, batch_size
        self.sample_rate = batch_size / n_rows
        self.seed = seed

    def __len__(self) -> int:
        """Batches of an epoch: as many as batches of the expected size would need for all rows."""
        return -(-self.n_rows // self.batch_size)

    def batches(self, epoch: int) -> Iterator[Tensor]:
        """See `EpochSampler.batches`."""
        draws = generator(self.seed, "poisson", epoch)
        for _ in range(len(self)):
            # In float64, whose steps are far below any rate.
            drawn = torch.rand(self.n_rows, generator=draws, dtype=torch.float64) < self.sample_rate
            yield drawn.nonzero().squeeze(1)


class PoissonDataModule(lightning.LightningDataModule):
    """The rows of a `TableDataModule`, in Poisson batches for training; validation and test are its own.

    Args:
        data: the rows, and in its ``batch_size`` the rows expected in a batch.
        seed: root seed of the batches.
    """

    def __init__(self, data: TableDataModule, seed: int) -> None:
        super().__init__()
        self.rows = data
        self.sampler = PoissonSampler(len(data.train_indices), data.batch_size, derive_seed(seed, "train"))
        self._rows = BatchRows(self.sampler, data.train_indices)

    def rows_of(self, epoch: int, index: int) -> Tensor | None:
        """See `lightleak.data.datamodule.KnowsRows.rows_of`."""
        return self._rows.of(epoch, index)

    def setup(self, stage: str | None = None) -> None:
        """Encode the rows once."""
        self.rows.setup(stage)

    def train_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        """Poisson batches, whose draws depend on seed and epoch alone."""
        return batch_loader(self.rows.part("train"), self.sampler)

    def val_dataloader(self) -> DataLoader[tuple[Tensor, ...]] | list[DataLoader[tuple[Tensor, ...]]]:
        """See `TableDataModule.val_dataloader`."""
        return self.rows.val_dataloader()

    def test_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        """See `TableDataModule.test_dataloader`."""
        return self.rows.test_dataloader()
