"""A table split between the parties of vertical federated learning: the same rows, different columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import lightning
import torch
from torch import Tensor

from lightleak.core.errors import DataError, UsageError
from lightleak.core.seeds import derive_seed, generator
from lightleak.data.datamodule import EVALUATION_BATCH_SIZE
from lightleak.data.layout import EncodedLayout


@dataclass(frozen=True)
class VerticalRows:
    """Aligned rows of all parties.

    Attributes:
        inputs: ``[n, d]`` encoded rows, the columns of party 0 first, then those of party 1, and so on; float, or uint8
            for a wide table of zeros and ones, which batches turn into float32.
        labels: LongTensor ``[n]``, held by the active party.
        ids: LongTensor ``[n]`` distinct sample ids, known to every party.
        widths: encoded columns of each party; they sum to d.

    Raises:
        DataError: on construction, when the tensors do not fit each other, an id comes twice, or a value is not finite.
    """

    inputs: Tensor
    labels: Tensor
    ids: Tensor
    widths: tuple[int, ...]

    def __post_init__(self) -> None:
        _check(self)

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: Tensor) -> "VerticalRows":
        """The rows at these positions, LongTensor or BoolTensor over the rows.

        >>> rows = VerticalRows(torch.eye(3), torch.tensor([0, 1, 1]), torch.tensor([7, 8, 9]), (1, 2))
        >>> rows.select(torch.tensor([2, 0])).ids.tolist()
        [9, 7]
        """
        return VerticalRows(self.inputs[rows], self.labels[rows], self.ids[rows], self.widths)

    def party_inputs(self, party: int, rows: Tensor | slice = slice(None)) -> Tensor:
        """One party's own columns of the chosen rows, ``[m, d_k]`` float.

        Raises:
            UsageError: no such party.
        """
        if not 0 <= party < len(self.widths):
            raise UsageError(f"party must be from 0 to {len(self.widths) - 1}, got {party}")
        start = sum(self.widths[:party])
        return _as_float(self.inputs[:, start : start + self.widths[party]][rows])


def party_positions(layout: EncodedLayout, parties: Sequence[Sequence[str]]) -> tuple[Tensor, tuple[int, ...]]:
    """Encoded positions in the order of the parties, LongTensor ``[d]``, and how many each party holds.

    >>> positions, widths = party_positions(EncodedLayout.of_numerical(3), [["x2"], ["x0", "x1"]])
    >>> positions.tolist(), widths
    ([2, 0, 1], (1, 2))

    Raises:
        UsageError: a column that the layout lacks, or that two parties hold.
    """
    blocks = {block.name: range(block.start, block.stop) for block in layout.blocks}
    named = [name for party in parties for name in party]
    if unknown := sorted(set(named) - blocks.keys()):
        raise UsageError(f"parties hold unknown columns {', '.join(unknown)}; known: {', '.join(blocks)}")
    if twice := sorted({name for name in named if named.count(name) > 1}):
        raise UsageError(f"each column belongs to one party; assigned to two: {', '.join(twice)}")
    held = [[position for name in party for position in blocks[name]] for party in parties]
    return torch.tensor([position for party in held for position in party]), tuple(map(len, held))


class VerticalLoader:
    """Batches ``(inputs [batch, d] float, labels [batch], ids [batch])`` cut out of the tensors.

    The order of an epoch depends on the seed and the epoch alone. Every rank gets its part of each batch: over ranks,
    each row comes exactly once in an epoch, none is repeated to fill a batch up, and all ranks have equally many
    batches (a part may be empty where the last batch has fewer rows than there are ranks).

    A pass continues where `load_state_dict` says and moves on to the next epoch at its end. Batches in order are views
    of the rows: do not write into them.

    Args:
        rows: the rows.
        batch_size: rows of a batch over all ranks.
        shuffle: draw a new order in every epoch.
        seed: of the order.
        rank: this process.
        world_size: processes that share the batches.
    """

    def __init__(
        self,
        rows: VerticalRows,
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.rows = rows
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.rank, self.world_size = rank, world_size
        self.epoch = 0
        self._done = 0

    batch_sampler: None = None
    """A Trainer expects this attribute as well as `sampler`."""

    @property
    def sampler(self) -> "VerticalLoader":
        """The object on which a Trainer calls `set_epoch`."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass that of this epoch, from its start unless it has begun."""
        if epoch != self.epoch:
            self.epoch, self._done = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """Epoch and batches done, for a Trainer's checkpoint within an epoch."""
        return {"epoch": self.epoch, "done": self._done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.epoch, self._done = state["epoch"], state["done"]

    def __len__(self) -> int:
        return -(-len(self.rows) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        order = None
        if self.shuffle:
            order = torch.randperm(len(self.rows), generator=generator(self.seed, "batches", self.epoch))
        tensors = (self.rows.inputs, self.rows.labels, self.rows.ids)
        for batch in range(self._done, len(self)):
            part = self._part(batch)
            inputs, labels, ids = (tensor[part if order is None else order[part]] for tensor in tensors)
            self._done = batch + 1
            if self._done == len(self):
                self.epoch, self._done = self.epoch + 1, 0
            yield _as_float(inputs), labels, ids

    def _part(self, batch: int) -> slice:
        """This rank's part of a batch; no part is longer than that of a full batch."""
        start = batch * self.batch_size
        each, more = divmod(min(self.batch_size, len(self.rows) - start), self.world_size)
        start += self.rank * each + min(self.rank, more)
        return slice(start, start + each + (self.rank < more))


class VerticalDataModule(lightning.LightningDataModule):
    """Batches ``(inputs [batch, d] float, labels [batch] int64, ids [batch] int64)`` of aligned rows.

    Args:
        train: training rows.
        test: test rows, whose ids no attack reads.
        batch_size: rows per training batch, over all ranks: an audit does not depend on how many there are.
        shuffle: draw a new order in every epoch; ProVFL's code keeps one order.
        seed: root seed of the order.
        validation: validation rows; ``None``: no validation.

    Raises:
        DataError: the parts differ in their widths, or ``batch_size`` is out of range.
    """

    def __init__(
        self,
        train: VerticalRows,
        test: VerticalRows,
        batch_size: int = 64,
        shuffle: bool = False,
        seed: int = 0,
        validation: VerticalRows | None = None,
    ) -> None:
        super().__init__()
        for name, part in (("test", test), ("validation", validation)):
            if part is not None and part.widths != train.widths:
                raise DataError(f"{name} rows must have the training rows' widths {train.widths}, got {part.widths}")
        if not 1 <= batch_size <= len(train):
            raise DataError(f"batch_size must be from 1 to {len(train)} (training rows), got {batch_size}")
        self.train = train
        self.test = test
        self.validation = validation
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed

    def train_dataloader(self) -> VerticalLoader:
        """Training batches, in an order that depends on seed and epoch alone."""
        return self._loader(self.train, self.batch_size, self.shuffle)

    def val_dataloader(self) -> VerticalLoader | list[VerticalLoader]:
        """The validation rows in order; without any, an empty list, which Lightning takes for no validation."""
        return [] if self.validation is None else self._loader(self.validation, EVALUATION_BATCH_SIZE)

    def test_dataloader(self) -> VerticalLoader:
        """The test rows in order."""
        return self._loader(self.test, EVALUATION_BATCH_SIZE)

    def _loader(self, rows: VerticalRows, batch_size: int, shuffle: bool = False) -> VerticalLoader:
        rank, world_size = (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)
        if min(batch_size, len(rows)) < world_size:
            raise DataError(
                f"{world_size} ranks need at least as many rows per batch, got {min(batch_size, len(rows))}"
            )
        return VerticalLoader(rows, batch_size, shuffle, derive_seed(self.seed, "train"), rank, world_size)


def _as_float(inputs: Tensor) -> Tensor:
    return inputs if inputs.is_floating_point() else inputs.float()


def _check(rows: VerticalRows) -> None:
    inputs, labels, ids = rows.inputs, rows.labels, rows.ids
    if inputs.ndim != 2 or labels.ndim != 1 or ids.ndim != 1 or not len(inputs) == len(labels) == len(ids):
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (inputs, labels, ids))
        raise DataError(f"inputs, labels and ids must have shapes [n, d], [n] and [n], got {shapes}")
    if not len(ids):
        raise DataError("aligned rows must be at least one, got none")
    if not rows.widths or min(rows.widths) < 1 or sum(rows.widths) != inputs.shape[1]:
        raise DataError(f"widths must be at least 1 and sum to {inputs.shape[1]} (columns), got {rows.widths}")
    if not (inputs.is_floating_point() or inputs.dtype == torch.uint8):
        raise DataError(f"inputs must be float or uint8, got {inputs.dtype}")
    for name, tensor in (("labels", labels), ("ids", ids)):
        if tensor.dtype != torch.int64:
            raise DataError(f"{name} must be int64, got {tensor.dtype}")
    if labels.min() < 0:
        raise DataError(f"labels must be 0 or more, got {int(labels.min())}")
    if len(ids.unique()) != len(ids):
        raise DataError(f"ids must be distinct, got {len(ids)} rows with {len(ids.unique())} ids")
    if inputs.is_floating_point() and not inputs.isfinite().all():
        raise DataError("inputs must be finite, got NaN or infinity")
