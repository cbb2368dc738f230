"""A table as Lightning data: encoded once, served in batches cut from one tensor."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import lightning
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from lightleak.core.errors import DataError, UsageError
from lightleak.core.seeds import derive_seed, generator
from lightleak.data.encoder import TableEncoder
from lightleak.data.splits import holdout
from lightleak.data.table import Table

Part = Literal["train", "validation", "test"]
EVALUATION_BATCH_SIZE = 4096  # nothing is learned from these batches, so they are as large as is quick


class EpochSampler(Sampler[Tensor], ABC):
    """Yields the row indices of whole batches, LongTensor ``[batch]``, which depend on the epoch alone.

    Lightning sets the epoch; without it every pass is the next epoch.
    """

    epoch: int = 0

    @abstractmethod
    def batches(self, epoch: int) -> Iterator[Tensor]:
        """The batches of that epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass the one of that epoch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Tensor]:
        epoch = self.epoch
        self.epoch += 1
        yield from self.batches(epoch)


class BatchSampler(EpochSampler):
    """All rows in batches of one size, shuffled on request; the order depends on seed and epoch alone."""

    def __init__(
        self, n_rows: int, batch_size: int, shuffle: bool = False, seed: int = 0, drop_last: bool = False
    ) -> None:
        self.n_rows = n_rows
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last

    def __len__(self) -> int:
        return self.n_rows // self.batch_size if self.drop_last else -(-self.n_rows // self.batch_size)

    def order(self, epoch: int) -> Tensor:
        """All rows in the order of that epoch, LongTensor ``[n_rows]``."""
        if not self.shuffle:
            return torch.arange(self.n_rows)
        return torch.randperm(self.n_rows, generator=generator(self.seed, "batches", epoch))

    def batches(self, epoch: int) -> Iterator[Tensor]:
        """See `EpochSampler.batches`."""
        yield from self.order(epoch).split(self.batch_size)[: len(self)]


class RankSampler(EpochSampler, DistributedSampler[Tensor]):
    """One rank's share of the rows that a `BatchSampler` orders: whole batches, LongTensor ``[batch]``.

    In every step each rank takes a batch of its own, the next in the epoch's order, so that all ranks make the same
    number of steps and no row is in two of their batches. The order is that of a single process. Lightning keeps a
    ``DistributedSampler``; it would wrap any other sampler and repeat batches where the ranks do not divide them.

    Args:
        batches: all batches.
        rank: whose share.
        world: how many ranks there are.
        whole: serve every row, as an evaluation must: the rows are split into equal batches of at most
            ``batch_size``. Otherwise, in a training, batches have ``batch_size`` rows; those of the last step share the
            remaining rows, or leave them out where they are fewer than the ranks or ``drop_last`` asks for it.
    """

    def __init__(self, batches: BatchSampler, rank: int, world: int, whole: bool = False) -> None:
        rows = TensorDataset(torch.arange(batches.n_rows))
        super().__init__(rows, world, rank, shuffle=batches.shuffle, seed=batches.seed)
        self.of_all, self.world, self.whole = batches, world, whole
        self.batch_size = batches.batch_size

    def __len__(self) -> int:
        """Steps of an epoch."""
        full, left = divmod(self.of_all.n_rows, self.batch_size * self.world)
        if self.whole:
            return full + (left > 0)
        return full + (left >= self.world and not self.of_all.drop_last)

    def batches(self, epoch: int) -> Iterator[Tensor]:
        """See `EpochSampler.batches`."""
        order = self.of_all.order(epoch)
        if self.whole:
            yield from order.tensor_split(len(self) * self.world)[self.rank :: self.world]
            return
        full = len(order) // (self.batch_size * self.world) * self.world
        dealt = full * self.batch_size
        yield from order[:dealt].view(full, self.batch_size)[self.rank :: self.world]
        if len(self) * self.world > full:
            yield order[dealt:].tensor_split(self.world)[self.rank]


def batch_loader(rows: Dataset[Any], sampler: Sampler[Tensor]) -> DataLoader[Any]:
    """A loader that takes each batch out of the data by one indexing, instead of row by row.

    It draws from a generator of its own, so that making batches leaves the global random state as it was.
    """
    return DataLoader(rows, sampler=sampler, batch_size=None, generator=torch.Generator())


def refuse_overfit_batches(trainer: lightning.Trainer | None) -> None:
    """Refuse a Trainer that replaces the sampler of `batch_loader` by one of single rows.

    Raises:
        UsageError: ``overfit_batches`` is set.
    """
    if few := getattr(trainer, "overfit_batches", 0):
        raise UsageError(
            f"Trainer(overfit_batches={few}) replaces the sampler that makes the batches; to train on a few rows give "
            "the data these alone, to end epochs after a few batches set limit_train_batches"
        )


class TableDataModule(lightning.LightningDataModule):
    """Batches of an encoded table: inputs ``[batch, d]`` float32 and labels ``[batch]`` int64.

    In a Trainer of several processes each of them serves its own share (`RankSampler`).

    Args:
        table: the table; its test rows are the test part.
        encoder: a fitted encoder of the table's schema.
        batch_size: rows per training batch.
        validation_fraction: share of the training rows held out for validation; 0: none.
        rows: the training rows of one client, as indices into ``table.train``; default: all.
        drop_last: leave out a last training batch that is smaller than the others.
        seed: root seed of the validation split and of the order of the batches.

    Raises:
        DataError: encoder and table do not belong together, a row index is no whole number, out of range or given
            twice, or ``batch_size`` exceeds the training rows.
    """

    def __init__(
        self,
        table: Table,
        encoder: TableEncoder,
        batch_size: int = 256,
        validation_fraction: float = 0.1,
        rows: Sequence[int] | np.ndarray | None = None,
        drop_last: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if encoder.schema.names != table.schema.names or encoder.schema.label != table.schema.label:
            raise DataError(f"the encoder was made for another table than {table.card.name!r}")
        self.table = table
        self.encoder = encoder
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.seed = seed
        n_rows = len(table.train)
        held = np.arange(n_rows) if rows is None else row_indices(rows, n_rows, "a client's rows")
        stay, out = np.arange(len(held)), np.arange(0)
        if validation_fraction:
            stay, out = holdout(len(held), validation_fraction, derive_seed(seed, "validation"))
        self.train_indices, self.validation_indices = held[stay], held[out]
        if not 1 <= batch_size <= len(stay):
            bound = "at least 1" if batch_size < 1 else f"at most {len(stay)} (rows of {table.card.name!r})"
            raise DataError(f"batch_size must be {bound}, got {batch_size}")
        self._parts: dict[str, TensorDataset] = {}  # one mapping for all copies that `drawn_by` makes
        self._drawn_by: EpochSampler | None = None
        self._sampler: EpochSampler | None = None
        self._epoch, self._batches = -1, list[Tensor]()

    def setup(self, stage: str | None = None) -> None:
        """Encode every part once; later calls do nothing.

        Raises:
            UsageError: the Trainer has ``overfit_batches``.
        """
        refuse_overfit_batches(self.trainer)
        if self._parts:
            return
        frames = {
            "train": self.table.train.iloc[self.train_indices],
            "validation": self.table.train.iloc[self.validation_indices],
            "test": self.table.test,
        }
        self._parts |= {
            name: TensorDataset(self.encoder.encode(frame), self.encoder.encode_labels(frame))
            for name, frame in frames.items()
        }

    def drawn_by(self, sampler: EpochSampler) -> "TableDataModule":
        """The same rows, encoded once for both, in the training batches of another sampler on a single process."""
        other = copy.copy(self)
        other._drawn_by, other._sampler = sampler, None
        return other

    def check_ranks(self, world: int) -> None:
        """Check that there are enough rows for all processes.

        Raises:
            DataError: a step's batches take more rows than there are, or a rank would have none to evaluate on.
        """
        if self.batch_size * world > len(self.train_indices):
            raise DataError(
                f"batch_size {self.batch_size} on {world} processes takes {self.batch_size * world} rows a step; "
                f"{self.table.card.name!r} has {len(self.train_indices)} for training"
            )
        for name, n_rows in (("validation", len(self.validation_indices)), ("test", len(self.table.test))):
            if 0 < n_rows < world:
                raise DataError(f"{name} rows must be at least {world} (processes that train), got {n_rows}")

    def smallest_batch(self, world: int) -> int:
        """Rows of the smallest training batch of any of so many processes."""
        left = len(self.train_indices) % (self.batch_size * world)
        return (0 if self.drop_last else left // world) or self.batch_size

    def part(self, name: Part) -> TensorDataset:
        """The encoded rows of one part: ``tensors`` are inputs ``[n, d]`` and labels ``[n]``."""
        self.setup()
        return self._parts[name]

    def train_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        """Shuffled batches, in an order that depends on seed and epoch alone; or as `drawn_by` says."""
        rows = self.part("train")
        batches = BatchSampler(len(rows), self.batch_size, True, derive_seed(self.seed, "train"), self.drop_last)
        sampler = self._share(batches, whole=False) if self._drawn_by is None else self._drawn_by
        self._sampler, self._epoch = sampler, -1
        return batch_loader(rows, sampler)

    def rows_of(self, epoch: int, index: int) -> Tensor | None:
        """Numbers of the rows of a batch in the training part of the table, LongTensor ``[batch]``; None if unknown.

        Of this process's share, of the batches that `train_dataloader` serves; those of the epoch asked for last are
        kept.
        """
        if self._sampler is None:
            return None
        if epoch != self._epoch:
            self._epoch, self._batches = epoch, list(self._sampler.batches(epoch))
        return torch.as_tensor(self.train_indices)[self._batches[index]] if index < len(self._batches) else None

    def val_dataloader(self) -> DataLoader[tuple[Tensor, ...]] | list[DataLoader[tuple[Tensor, ...]]]:
        """The validation rows in order; without any, an empty list, which Lightning takes for no validation."""
        return self._in_order("validation") if len(self.validation_indices) else []

    def test_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        """The test rows in order."""
        return self._in_order("test")

    def _in_order(self, name: Part) -> DataLoader[tuple[Tensor, ...]]:
        rows = self.part(name)
        return batch_loader(rows, self._share(BatchSampler(len(rows), EVALUATION_BATCH_SIZE), whole=True))

    def _share(self, batches: BatchSampler, whole: bool) -> BatchSampler | RankSampler:
        trainer = self.trainer
        if trainer is None or trainer.world_size == 1:
            return batches
        return RankSampler(batches, trainer.global_rank, trainer.world_size, whole)


def whole_numbers(numbers: Sequence[int] | np.ndarray, what: str) -> np.ndarray:
    """Whole numbers as an array of their own, int64 ``[n]``.

    Raises:
        DataError: they are of another type, as a boolean mask is, or of another shape.
    """
    given = np.asarray(numbers)
    if given.size and (given.dtype.kind not in "iu" or given.ndim != 1):
        mask = "; np.flatnonzero makes them of a mask" if given.dtype.kind == "b" else ""
        raise DataError(f"{what} must be whole numbers, got {given[:5].tolist()}{mask}")
    return given.astype(np.int64)


def row_indices(rows: Sequence[int] | np.ndarray, n_rows: int, what: str) -> np.ndarray:
    """Different row indices, at least one, as an array of their own, int64 ``[n]``.

    Args:
        rows: the indices.
        n_rows: how many rows there are.
        what: whose they are, for errors.

    Raises:
        DataError: an index that is no whole number, out of range or given twice, or none.
    """
    held = whole_numbers(rows, what)
    if not len(held) or held.min() < 0 or held.max() >= n_rows:
        raise DataError(f"{what} must be indices from 0 to {n_rows - 1}, at least one; got {held[:5].tolist()}")
    times = np.bincount(held)
    if times.max() > 1:
        raise DataError(f"{what} must be different, got row {times.argmax()} {times.max()} times")
    return held
