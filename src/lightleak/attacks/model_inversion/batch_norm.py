"""Batch normalization over the rows of all ranks, on any backend."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lightleak.targets.split.ranks import summed


class GlobalBatchNorm1d(nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` whose statistics are those of the rows of all ranks together.

    With one process it is the parent, values and speed alike. PyTorch's own synchronized layer needs a GPU; this one
    works with gloo as well, and gradients flow through the shared statistics. Every rank must hold as many rows.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x [n, features]``."""
        ranks = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        if not self.training or ranks == 1:
            return super().forward(x)
        rows = len(x) * ranks
        # The collective sums in the backward pass as well, which is what the mean of the ranks' losses needs.
        mean = _sum_over_ranks(x.sum(0)) / rows
        centerd = x - mean
        variance = _sum_over_ranks(centerd.square().sum(0)) / rows
        if self.running_mean is not None and self.running_var is not None and self.momentum is not None:
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(variance * (rows / (rows - 1)), self.momentum)
                if self.num_batches_tracked is not None:
                    self.num_batches_tracked.add_(1)
        scaled: Tensor = centerd * (variance + self.eps).rsqrt()
        return scaled * self.weight + self.bias


class _SumOverRanks(torch.autograd.Function):
    """The sum of every rank's values, on every rank; in the backward pass the sum of every rank's gradients."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return summed(values.clone())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return summed(gradient.clone())


def _sum_over_ranks(values: Tensor) -> Tensor:
    total: Tensor = _SumOverRanks.apply(values)
    return total
