"""Batch normalisation over the rows of all ranks, on any backend."""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as across_ranks
from torch import Tensor, nn


class GlobalBatchNorm1d(nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` whose statistics are those of the rows of all ranks together.

    With one process it is the parent, values and speed alike. PyTorch's own synchronised layer needs a GPU; this one
    works with gloo as well, and gradients flow through the shared statistics. Every rank must hold as many rows.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``x [n, features]``."""
        ranks = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        if not self.training or ranks == 1:
            return super().forward(x)
        rows = len(x) * ranks
        # The collective sums in the backward pass as well, which is what the mean of the ranks' losses needs.
        mean = across_ranks.all_reduce(x.sum(0)) / rows
        centred = x - mean
        variance = across_ranks.all_reduce(centred.square().sum(0)) / rows
        if self.running_mean is not None and self.running_var is not None and self.momentum is not None:
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(variance * (rows / (rows - 1)), self.momentum)
                if self.num_batches_tracked is not None:
                    self.num_batches_tracked.add_(1)
        scaled: Tensor = centred * (variance + self.eps).rsqrt()
        return scaled * self.weight + self.bias
