"""Tensors that have one entry per row: some of the rows, or several lots of them one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class ByRow:
    """Base of dataclasses all of whose fields are tensors by row, or again `ByRow`.

    >>> @dataclass(frozen=True)
    ... class Ages(ByRow):
    ...     years: Tensor
    >>> ages = Ages(torch.tensor([30, 41]))
    >>> ages.joined(ages[torch.tensor([1])]).years.tolist(), len(ages)
    ([30, 41, 41], 2)
    """

    def __len__(self) -> int:
        return len(self._parts[0])

    def __getitem__(self, rows: Tensor | Sequence[int] | slice) -> Self:
        return type(self)(*(part[rows] for part in self._parts))

    def joined(self, *others: Self) -> Self:
        """These rows and then the others'."""
        each = zip(self._parts, *(other._parts for other in others), strict=True)
        return type(self)(*(p[0].joined(*p[1:]) if isinstance(p[0], ByRow) else torch.cat(p) for p in each))

    @property
    def _parts(self) -> list[Any]:
        return [getattr(self, field.name) for field in fields(self)]
