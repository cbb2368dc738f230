"""One forward and backward of a client, computed as its training computes it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from lightleak.core.errors import ObservationError, UsageError
from lightleak.targets.functional import criterion, functional_call
from lightleak.targets.normalization import BatchStatistics, frozen_statistics, record_statistics
from lightleak.targets.spec import NetworkSpec

Autocast = Literal["none", "bfloat16", "float16"]


@dataclass(frozen=True)
class LocalPass:
    """What a forward and backward leave.

    Attributes:
        gradient: of the mean loss, per parameter; divided and scaled as the backward was.
        loss: mean loss.
        statistics: ``<layer>.mean`` and ``<layer>.var``, ``[channels]`` each, per BatchNorm layer.
    """

    gradient: dict[str, Tensor]
    loss: float
    statistics: dict[str, Tensor]


def local_pass(
    network: nn.Module,
    parameters: Mapping[str, Tensor],
    buffers: Mapping[str, Tensor],
    inputs: Tensor,
    labels: Tensor,
    loss: str = "cross_entropy",
    autocast: Autocast = "none",
    divisor: int = 1,
    loss_scale: float = 1.0,
) -> LocalPass:
    """Loss, gradient and BatchNorm statistics of a batch, in the mode of ``network`` and by plain autograd.

    One forward gives all three, so that dropout draws once; the backward runs outside autocast, as Lightning runs it.
    Without dropout and autocast the gradient is that of `lightleak.targets.functional.gradients`. Weights and buffers
    that ``network`` holds are neither read nor changed.

    Args:
        network: the module; only its computation is used.
        parameters: named parameters.
        buffers: named buffers; those left out are the network's own.
        inputs: ``[n, d]``.
        labels: class indices ``[n]``.
        loss: name of the criterion.
        autocast: data type of a mixed-precision forward.
        divisor: divides the loss in the backward: the micro-batches of a step, as Lightning weighs them.
        loss_scale: multiplies it: the factor of fp16 mixed precision.
    """
    values = {name: value.detach().clone().requires_grad_() for name, value in parameters.items()}
    # Layers other than BatchNorm may write into the buffers they are handed.
    held = {name: value.clone() for name, value in buffers.items()}
    with torch.enable_grad(), frozen_statistics(network), record_statistics(network) as recorded:
        half = torch.float16 if autocast == "float16" else torch.bfloat16
        with torch.autocast(inputs.device.type, half, enabled=autocast != "none", cache_enabled=False):
            value = criterion(loss)(functional_call(network, (values, held), (inputs,)), labels)
        gradient = torch.autograd.grad(value / divisor * loss_scale, list(values.values()), materialize_grads=True)
    return LocalPass(dict(zip(values, gradient, strict=True)), float(value.detach()), named_statistics(recorded))


def named_statistics(recorded: Mapping[str, BatchStatistics]) -> dict[str, Tensor]:
    """What `record_statistics` yields, as the ``batch_statistics`` of a `ClientUpdate`: detached, float32 at least.

    >>> sorted(named_statistics({"norm": (torch.zeros(2), torch.ones(2))}))
    ['norm.mean', 'norm.var']
    """
    return {
        f"{layer}.{what}": value.detach().to(torch.promote_types(value.dtype, torch.float32)).cpu()
        for layer, pair in recorded.items()
        for what, value in zip(("mean", "var"), pair, strict=True)
    }


def check_batch(spec: NetworkSpec, inputs: Tensor, labels: Tensor) -> None:
    """Refuse a batch that is not ``(inputs [n, d], labels [n])`` for the network.

    Raises:
        UsageError: a wrong shape or type, no row, or a label that is no class.
    """
    width = spec.layout.width
    if inputs.dim() != 2 or inputs.shape[1] != width or len(inputs) < 1 or not inputs.is_floating_point():
        raise UsageError(
            f"inputs must be encoded rows [n, {width}] with n >= 1, got {inputs.dtype} {tuple(inputs.shape)}"
        )
    if labels.shape != inputs.shape[:1] or labels.dtype != torch.long:
        raise UsageError(f"labels must be int64 [{len(inputs)}], got {labels.dtype} {tuple(labels.shape)}")
    if int(labels.min()) < 0 or int(labels.max()) >= spec.n_classes:
        found = f"{int(labels.min())} to {int(labels.max())}"
        raise UsageError(f"labels must be classes from 0 to {spec.n_classes - 1}, got {found}")


@contextmanager
def in_mode(network: nn.Module, training: bool) -> Iterator[None]:
    """Within the block every module is in train or eval mode; afterwards each is as it was."""
    before = [(module, module.training) for module in network.modules()]
    network.train(training)
    try:
        yield
    finally:
        for module, was in before:
            module.training = was


def generator_state(device: torch.device) -> Tensor:
    """State of torch's global generator of ``device``, uint8 ``[bytes]``; reading it draws nothing."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


@contextmanager
def generator_set_to(state: Tensor | None, device: torch.device) -> Iterator[None]:
    """Within the block torch's global generator of ``device`` starts from ``state``; afterwards it is as it was.

    Raises:
        ObservationError: the state is damaged.
    """
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        # A copy: set_rng_state crashes on a view that begins inside its storage (torch 2.13, CPU).
        try:
            if state is not None and device.type == "cuda":
                torch.cuda.set_rng_state(state.clone(), device)
            elif state is not None:
                torch.set_rng_state(state.clone())
        except (RuntimeError, TypeError) as error:
            raise ObservationError(f"the recorded generator state is damaged: {error}") from error
        yield
