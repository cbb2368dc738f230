"""A table dealt out to the parties of vertical federated learning: the same rows, different columns."""

from collections.abc import Sequence
from dataclasses import dataclass

import lightning
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from lightleak.core.seeds import derive_seed
from lightleak.data.datamodule import EVALUATION_BATCH_SIZE, BatchSampler, batch_loader
from lightleak.data.layout import EncodedLayout


@dataclass(frozen=True)
class VerticalRows:
    """Aligned rows of all parties.

    Attributes:
        inputs: ``[n, d]`` encoded rows, the columns of party 0 first, then those of party 1, and so on.
        labels: LongTensor ``[n]``, held by the active party.
        ids: LongTensor ``[n]`` sample ids, known to every party.
        widths: encoded columns of each party; they sum to d.
    """

    inputs: Tensor
    labels: Tensor
    ids: Tensor
    widths: tuple[int, ...]


def party_positions(layout: EncodedLayout, parties: Sequence[Sequence[str]]) -> tuple[Tensor, tuple[int, ...]]:
    """Encoded positions in the order of the parties, LongTensor ``[d]``, and how many each party holds.

    >>> positions, widths = party_positions(EncodedLayout.of_numerical(3), [["x2"], ["x0", "x1"]])
    >>> positions.tolist(), widths
    ([2, 0, 1], (1, 2))
    """
    blocks = {block.name: range(block.start, block.stop) for block in layout.blocks}
    held = [[position for name in party for position in blocks[name]] for party in parties]
    return torch.tensor([position for party in held for position in party]), tuple(map(len, held))


class VerticalDataModule(lightning.LightningDataModule):
    """Batches ``(inputs [batch, d] float32, labels [batch] int64, ids [batch] int64)`` of aligned rows.

    Args:
        train: training rows.
        test: test rows, whose ids no attack reads.
        batch_size: rows per training batch.
        shuffle: draw a new order in every epoch; ProVFL's code keeps one order.
        seed: root seed of the order.
    """

    def __init__(
        self, train: VerticalRows, test: VerticalRows, batch_size: int = 64, shuffle: bool = False, seed: int = 0
    ) -> None:
        super().__init__()
        self.train = train
        self.test = test
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed

    def train_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        """Training batches, in an order that depends on seed and epoch alone."""
        seed = derive_seed(self.seed, "train")
        return batch_loader(
            _dataset(self.train), BatchSampler(len(self.train.ids), self.batch_size, self.shuffle, seed)
        )

    def test_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        """The test rows in order."""
        return batch_loader(_dataset(self.test), BatchSampler(len(self.test.ids), EVALUATION_BATCH_SIZE))


def _dataset(rows: VerticalRows) -> TensorDataset:
    return TensorDataset(rows.inputs, rows.labels, rows.ids)
