"""Rows by class, drawn without leaving the device."""

import torch
from torch import Tensor

from lightleak.attacks.model_inversion.gan_config import Balance
from lightleak.core.errors import DataError


class ClassSampler:
    """Draws classes, and a row of each class.

    Attributes:
        rows: ``[n, ...]``, sorted by class.
        share: ``[C]`` probability of each class; 0 for a class without rows.
    """

    def __init__(self, rows: Tensor, labels: Tensor, n_classes: int, balance: Balance = "log") -> None:
        """Sort the rows.

        Args:
            rows: ``[n, ...]``.
            labels: LongTensor ``[n]``.
            n_classes: C.
            balance: probability of a class: ``log(1 + count)`` as in CTGAN, the same for all, or its frequency.

        Raises:
            DataError: there are no rows.
        """
        if not len(rows):
            raise DataError("the generator needs at least one pseudo-labeled public row, got none")
        self.rows = rows[labels.argsort(stable=True)]
        count = torch.bincount(labels, minlength=n_classes)
        weight = {"log": count.double().log1p(), "uniform": (count > 0).double(), "empirical": count.double()}[balance]
        self.share = weight / weight.sum()
        # Cumulated in float64: the last bound is 1, and a class without rows has an empty interval.
        self._bounds = self.share.cumsum(0)
        self._last = int(count.nonzero().max())
        self._count, self._start = count, count.cumsum(0) - count

    def to(self, device: torch.device | str) -> "ClassSampler":
        """Move every tensor."""
        for name in ("rows", "share", "_bounds", "_count", "_start"):
            setattr(self, name, getattr(self, name).to(device))
        return self

    def draw_labels(self, n: int, generator: torch.Generator) -> Tensor:
        """LongTensor ``[n]`` of classes."""
        u = torch.rand(n, generator=generator, device=generator.device, dtype=torch.float64)
        return torch.searchsorted(self._bounds, u, right=True).clamp(max=self._last)

    def draw_rows(self, labels: Tensor, generator: torch.Generator) -> Tensor:
        """A row of each of those classes, ``[n, ...]``, drawn with replacement."""
        u = torch.rand(len(labels), generator=generator, device=generator.device, dtype=torch.float64)
        count = self._count[labels]
        return self.rows[self._start[labels] + (u * count).long().clamp(max=count - 1)]
