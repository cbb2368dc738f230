"""The one state most metrics keep: a mean over batches, as the papers report it."""

import re
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric


class BatchMean(Metric):
    """Mean over attacked batches of one number per batch, over all ranks.

    Every batch has the same weight, whatever its size, as in the papers' tables. A batch on which the number is
    undefined (NaN: no such columns, no entropy) is left out; with no batch left the mean is NaN.

    Args:
        options: what distinguishes this metric from others of its class.
        kwargs: passed to ``torchmetrics.Metric``, which refuses unknown ones.
    """

    is_differentiable = False
    full_state_update = False

    def __init__(self, *options: object, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # A MetricCollection merges metrics whose states have equal names and, after one batch, equal values; metrics of
        # different meaning (top and bottom quartile of a batch without errors) must not share a name.
        self._state = re.sub(r"\W", "_", "_".join(["total", type(self).__name__, *map(str, options)]))
        self.add_state(self._state, torch.zeros(2, dtype=torch.float64), dist_reduce_fx="sum")

    def add(self, value: Tensor) -> None:
        """Count the number of one batch, a scalar."""
        if not bool(value.isnan()):
            total = getattr(self, self._state)
            setattr(
                self,
                self._state,
                total + torch.stack([value.detach().double(), torch.ones_like(value, dtype=torch.float64)]).to(total),
            )

    def compute(self) -> Tensor:
        """The mean, a float64 scalar."""
        total, batches = getattr(self, self._state)
        return total / batches  # 0 / 0 is NaN: no batch, no mean
