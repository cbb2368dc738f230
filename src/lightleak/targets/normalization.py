"""Normalization that an attack can differentiate through, and the statistics it leaves behind.

PyTorch's fused batch and layer normalization save mean and inverse standard deviation without their derivative
(pytorch/pytorch#186256, #175754). Differentiating ``vmap(grad(...))`` from outside, as a gradient-inversion attack
does, then gives a wrong input gradient without a word (torch 2.13, float64, a network of six units: 2% off for batch,
0.3% for layer normalization). The layers here are compositions of primitive operations: right to every order, under
``torch.func.functional_call``, ``grad`` and ``vmap`` over candidate batches and over stacked parameters. They hold the
same parameters and buffers under the same names as PyTorch's.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from lightleak.core.errors import UsageError
from lightleak.core.seeds import fresh_generator

BatchStatistics = tuple[Tensor, Tensor]


def normalize(
    x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """``(x - mean) / sqrt(variance + eps) * weight + bias``; all arguments broadcast against ``x``.

    >>> normalize(torch.tensor([1.0, 3.0]), torch.tensor(2.0), torch.tensor(1.0), None, None, eps=0.0)
    tensor([-1.,  1.])
    """
    scale = torch.rsqrt(variance + eps)
    if weight is not None:
        scale = scale * weight
    centered = x - mean
    return centered * scale if bias is None else torch.addcmul(bias, centered, scale)


def batch_statistics(x: Tensor) -> BatchStatistics:
    """Mean and unbiased variance per channel, each ``[channels]``, of ``x`` ``[n, channels, ...]``; differentiable.

    >>> batch_statistics(torch.tensor([[1.0], [3.0]]))
    (tensor([2.]), tensor([2.]))

    Raises:
        UsageError: one value per channel, which has no variance.
    """
    _check_variance(x)
    variance, mean = torch.var_mean(x, dim=(0, *range(2, x.dim())), correction=1)
    return mean, variance


class BatchNorm1d(nn.BatchNorm1d):
    """Batch normalization of ``[n, c]`` or ``[n, c, l]``; values and state as ``torch.nn.BatchNorm1d``.

    In train mode the batch is normalized by its own mean and biased variance. Running statistics move only in real
    training: never inside a ``torch.func`` transform, nor within `frozen_statistics`.

    Raises:
        UsageError: in train mode, one value per channel (a batch of one row has no variance).
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalize ``input``; half precision is normalized in float32."""
        self._check_input_dim(input)
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        spread = (1, -1) if x.dim() == 2 else (1, -1, 1)
        if self.training or self.running_mean is None or self.running_var is None:
            _check_variance(x)
            variance, mean = torch.var_mean(x, dim=(0, *range(2, x.dim())), correction=0)
            if self.training and self.track_running_stats:
                self._record_running(mean, variance, x.numel() // x.shape[1])
        else:
            mean, variance = self.running_mean, self.running_var
        weight = None if self.weight is None else self.weight.view(spread)
        bias = None if self.bias is None else self.bias.view(spread)
        return normalize(x, mean.view(spread), variance.view(spread), weight, bias, self.eps).to(input.dtype)

    @torch.no_grad()
    def _record_running(self, mean: Tensor, variance: Tensor, n: int) -> None:
        # A transform may hold many batches and many states at once: there is no one state to move. PyTorch has no
        # public name for this question; torch.autograd.Function asks it the same way.
        if torch._C._are_functorch_transforms_active() or self.running_mean is None or self.running_var is None:
            return
        factor = self.momentum
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            factor = 1.0 / float(self.num_batches_tracked) if factor is None else factor
        unbiased = variance * (n / (n - 1))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor or 0.0)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), factor or 0.0)


class LayerNorm(nn.LayerNorm):
    """Layer normalization over the last dimensions; values and state as ``torch.nn.LayerNorm``."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalize ``input``; half precision is normalized in float32."""
        if not input.numel():  # torch warns about the variance of no elements
            return input
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        dims = tuple(range(-len(self.normalized_shape), 0))
        variance, mean = torch.var_mean(x, dim=dims, correction=0, keepdim=True)
        return normalize(x, mean, variance, self.weight, self.bias, self.eps).to(input.dtype)


_OURS: dict[type[nn.Module], type[nn.Module]] = {nn.BatchNorm1d: BatchNorm1d, nn.LayerNorm: LayerNorm}


def with_functional_normalization(network: nn.Module) -> nn.Module:
    """Make every ``torch.nn.BatchNorm1d`` and ``LayerNorm`` in ``network`` one of ours, in place.

    A layer changes its class alone, so its parameters, buffers and mode stay, and an optimizer built before still holds
    them.

    Returns:
        ``network``.
    """
    for module in network.modules():
        module.__class__ = _OURS.get(type(module), type(module))
    return network


@contextmanager
def frozen_statistics(network: nn.Module) -> Iterator[None]:
    """Within the block no BatchNorm layer of ``network`` moves its running statistics, whatever the mode.

    Needed where an attack differentiates by plain autograd; inside ``torch.func`` transforms it is so already.
    """
    layers = [layer for _, layer in batch_norms(network)]
    before = [layer.track_running_stats for layer in layers]
    try:
        for layer in layers:
            layer.track_running_stats = False
        yield
    finally:
        for layer, tracked in zip(layers, before, strict=True):
            layer.track_running_stats = tracked


@contextmanager
def record_statistics(network: nn.Module) -> Iterator[dict[str, BatchStatistics]]:
    """Yield a dict that every forward fills: layer name to `batch_statistics` of that BatchNorm layer's input.

    It holds for any BatchNorm layer, ours or PyTorch's, and is empty where the network has none or the batch one row.
    The tensors are part of the graph. Where the forward runs inside ``grad`` or ``vmap``, return them from the
    transformed function (``has_aux=True``): a tensor must not outlive the transform it was made in. A later forward
    overwrites an earlier.

    GradInversion's prior compares them with the client's (Yin et al. 2021).
    """
    statistics: dict[str, BatchStatistics] = {}

    def recorder(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def record(layer: nn.Module, args: tuple[Any, ...]) -> None:
            if args[0].numel() > args[0].shape[1]:  # one value per channel has no variance; layers in eval mode take it
                statistics[name] = batch_statistics(args[0])

        return record

    handles = [layer.register_forward_pre_hook(recorder(name)) for name, layer in batch_norms(network)]
    try:
        yield statistics
    finally:
        for handle in handles:
            handle.remove()


def batch_norms(network: nn.Module) -> list[tuple[str, _BatchNorm]]:
    """BatchNorm layers of any dimension, with their names."""
    return [(name, layer) for name, layer in network.named_modules() if isinstance(layer, _BatchNorm)]


def moved_buffers(network: nn.Module, width: int) -> list[str]:
    """Names of the buffers that a forward in train mode changes, such as BatchNorm's running statistics.

    Args:
        network: not modified; a copy on the CPU is tried with a few random rows.
        width: encoded features d of a row.

    >>> moved_buffers(BatchNorm1d(3), 3)
    ['running_mean', 'running_var', 'num_batches_tracked']
    """
    tried = copy.deepcopy(network).cpu().float().train()
    before = {name: buffer.clone() for name, buffer in tried.named_buffers()}
    with torch.no_grad(), fresh_generator(0):
        tried(torch.randn(4, width))
    return [name for name, buffer in tried.named_buffers() if not torch.equal(buffer, before[name])]


def _check_variance(x: Tensor) -> None:
    if x.numel() <= x.shape[1]:
        raise UsageError(f"the statistics of a batch need at least 2 values per channel, got shape {tuple(x.shape)}")
