"""Poisson sampling: every row enters a batch with the same probability, independently of all others.

It is the sampling that DP-SGD's accountants reckon with; batches cut from a shuffled table are not.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from lightleak.core.seeds import generator
from lightleak.data.datamodule import EpochSampler


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
