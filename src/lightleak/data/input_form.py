"""The form in which a training hands rows to its network, and the encoded rows that they equal.

A network may take several tensors (numbers and integer codes of categories, in a dictionary or a tuple). An attack
takes one: `InputForm` converts a batch to encoded rows ``[n, d]``, with a one-hot block per column of codes, and back.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from lightleak.core.errors import UsageError
from lightleak.data.layout import Block, runs

Path = tuple[str | int, ...]
"""Keys and indices that lead to a tensor in a batch."""

LABELS = ("target", "y", "label", "labels", "targets")
"""Keys under which a dictionary's labels are looked for where none is given."""

LEAST_CATEGORIES = 2


@dataclass(frozen=True)
class InputPart:
    """One tensor ``[n, p]``, or ``[n]`` of one column, of a batch.

    Attributes:
        path: where it is in the batch.
        blocks: of each of its columns, its encoded positions.
        is_coded: of each of its columns, whether it holds integer codes of categories.
        is_integer: it has an integer type.
        is_flat: it is ``[n]``.
    """

    path: Path
    blocks: tuple[Block, ...]
    is_coded: tuple[bool, ...]
    is_integer: bool = False
    is_flat: bool = False

    def encode(self, values: Tensor) -> Tensor:
        """Encoded columns ``[n, d_part]`` of this part's tensor.

        Raises:
            UsageError: a tensor of another shape, or codes that were not described.
        """
        where = "".join(f"[{step!r}]" for step in self.path)
        expected = (len(values),) if self.is_flat else (len(values), len(self.blocks))
        if tuple(values.shape) != expected:
            raise UsageError(f"batch{where} must have the shape {list(expected)}, got {list(values.shape)}")
        columns = []
        for block, is_coded, column in zip(
            self.blocks, self.is_coded, values.reshape(len(values), -1).unbind(-1), strict=True
        ):
            codes = torch.arange(block.width, device=values.device)
            encoded = (column.unsqueeze(-1) == codes) if is_coded else column.unsqueeze(-1)
            if is_coded and not bool(encoded.any(-1).all()):
                raise UsageError(
                    f"codes of column {block.name!r} must be 0 to {block.width - 1}, got {int(column.min())} to "
                    f"{int(column.max())}; describe_inputs needs all of the training data, or codes={{name: number}}"
                )
            columns.append(encoded.float())
        return torch.cat(columns, -1) if columns else values.new_zeros(len(values), 0).float()

    def decode(self, x: Tensor) -> Tensor:
        """This part's tensor for encoded rows ``[n, d]``: numbers keep their derivative, codes have none."""
        pieces: list[Tensor] = []
        for is_coded, columns in groupby(zip(self.is_coded, self.blocks, strict=True), key=itemgetter(0)):
            blocks = [block for _, block in columns]
            if is_coded:
                pieces += [x[:, block.slice].argmax(-1, keepdim=True).to(x.dtype) for block in blocks]
            else:
                pieces += [x[:, run] for run in runs(blocks)]
        values = torch.cat(pieces, -1) if pieces else x[:, :0]
        values = values.long() if self.is_integer else values
        return values.squeeze(-1) if self.is_flat else values


@dataclass(frozen=True)
class InputForm:
    """What a batch of a training holds, in the order of the encoded columns.

    Attributes:
        parts: the network's inputs.
        label: key of the labels; None finds them by `LABELS`, in a tuple as the last tensor.
    """

    parts: tuple[InputPart, ...]
    label: str | None = None

    @property
    def coded(self) -> tuple[Block, ...]:
        """Encoded positions of the columns of integer codes."""
        pairs = [pair for part in self.parts for pair in zip(part.blocks, part.is_coded, strict=True)]
        return tuple(block for block, is_coded in pairs if is_coded)

    def read(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Encoded rows ``[n, d]`` and labels ``[n]`` of a batch.

        Raises:
            UsageError: a batch of another form, or codes that were not described.
        """
        tensors, labels = split_batch(batch, self.label)
        if len(tensors) == 1 and self.parts[0].path == ():  # described without a batch
            tensors = {(): next(iter(tensors.values()))}
        if missing := [part.path for part in self.parts if part.path not in tensors]:
            raise UsageError(
                f"the batch has no tensor at {list(missing[0])}; it has {[list(path) for path in tensors]}"
            )
        return torch.cat([part.encode(tensors[part.path]) for part in self.parts], -1), labels

    def decode(self, x: Tensor) -> list[Tensor]:
        """The parts' tensors for encoded rows ``[n, d]``."""
        return [part.decode(x) for part in self.parts]


def split_batch(batch: Any, label: str | None = None) -> tuple[dict[Path, Tensor], Tensor]:
    """Tensors of a batch by path, and its labels ``[n]``.

    >>> tensors, labels = split_batch({"x": torch.zeros(2, 3), "target": torch.tensor([[1], [0]])})
    >>> list(tensors), labels.tolist()
    ([('x',)], [1, 0])

    Raises:
        UsageError: no labels are found.
    """
    tensors = dict(_tensors(batch))
    if isinstance(batch, Mapping):
        found = [path for path in tensors if path[-1] in ((label,) if label else LABELS)]
        if len(found) != 1:
            raise UsageError(
                f"labels of a batch must be one of its tensors, {', '.join(str(path[-1]) for path in tensors)}: name "
                f"it by label=...; looked for {label or ', '.join(LABELS)}, found {len(found)}"
            )
        at = found[0]
    elif len(tensors) > 1:
        at = list(tensors)[-1]
    else:
        raise UsageError(f"a batch must hold inputs and labels, got {type(batch).__name__} of {len(tensors)} tensors")
    labels = tensors.pop(at)
    return tensors, labels.squeeze(-1) if labels.dim() == 2 and labels.shape[1] == 1 else labels


def _tensors(batch: Any, path: Path = ()) -> Iterator[tuple[Path, Tensor]]:
    """Tensors ``[n]`` or ``[n, p]`` by path; anything else in a batch is no input."""
    if isinstance(batch, Tensor):
        if batch.dim() in (1, 2):
            yield path, batch
    elif isinstance(batch, Mapping | list | tuple):
        for key, value in batch.items() if isinstance(batch, Mapping) else enumerate(batch):
            yield from _tensors(value, (*path, key))
