"""Sums over the ranks of a distributed training.

Gradients are summed here and not by DistributedDataParallel, whose mean weighs ranks equally whatever rows they hold.
"""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn


def summed(value: Tensor) -> Tensor:
    """Sum of a tensor over ranks; the argument is overwritten."""
    dist.all_reduce(value)
    return value


def summed_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace every ``.grad`` by its sum over ranks, in one exchange."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = summed(torch.cat([gradient.flatten() for gradient in gradients]))
    for gradient, total in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
        gradient.copy_(total.view_as(gradient))


def mean_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace every ``.grad`` by its mean over ranks, in one exchange."""
    known = list(parameters)
    summed_gradients(known)
    for parameter in known:
        if parameter.grad is not None:
            parameter.grad.div_(dist.get_world_size())
