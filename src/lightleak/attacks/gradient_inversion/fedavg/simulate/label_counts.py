"""How many rows of each class stand behind a FedAvg update (Dimitrov et al. 2022, Sec. 4.5)."""

from collections.abc import Mapping
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from lightleak.attacks.gradient_inversion.network.client import client_network
from lightleak.attacks.gradient_inversion.optimize.labels import (
    LastLayerStatistics,
    last_layer_statistics,
    last_linear,
    require_restorable,
    round_counts,
)
from lightleak.core.errors import UsageError
from lightleak.core.observations import ClientUpdate

FedAvgLabelMethod = Literal["interpolated", "geng_server", "geng_client"]
"""Where the statistics of Eq. 2 are taken: on the way from the weights before to those after, or at one end of it."""


def restore_fedavg_counts(
    network: nn.Module,
    parameters_before: Mapping[str, Tensor],
    parameters_after: Mapping[str, Tensor],
    buffers: Mapping[str, Tensor],
    n_rows: int,
    learning_rate: float,
    local_steps: int,
    dummy: Tensor,
    method: FedAvgLabelMethod = "interpolated",
    momentum: float = 0.0,
    weight_decay: float = 0.0,
) -> Tensor:
    """Estimated rows per class, real-valued ``[classes]``; `round_counts` makes whole ones.

    Each of the U local steps is taken to have sent the mean gradient ``-delta / (eta U)``, and Geng's formula (Eq. 2)
    is averaged over them: ``n_c = mean_i (n p_ic - n dW_c / O_i)``. The mean probabilities ``p`` and the mean sum ``O``
    of the last layer's input come from dummy rows: at the weights before (``geng_server``), at those after
    (``geng_client``), or on the straight line from the first to the second, of which step i takes the point
    ``(i - 1) / U`` as in the paper's code. The paper's text prints the weights in the other order, ``i / U`` at the
    start; over i = 1..U both are the same U points, and as the gradient is one for all steps, so is their mean. One
    step is `restore_counts` by ``geng``.

    Momentum and weight decay are beyond the paper: momentum lets an early gradient move the weights more than once,
    which counts as more steps, and the decay of the mean of both ends is taken off the gradient.

    Args:
        network: the target, in the mode the client ran it in.
        parameters_before: parameters that the client received, by name.
        parameters_after: parameters that it sent back.
        buffers: buffers by name; those left out are the network's own. None is changed.
        n_rows: rows behind the update, of all its clients.
        learning_rate: of the local SGD (eta).
        local_steps: optimizer steps of a client (U).
        dummy: rows ``[k, d]`` to average over: `geng_rows`, or Gaussian noise for images.
        method: where the statistics are taken.
        momentum: of the local SGD.
        weight_decay: of the local SGD.

    Raises:
        UnsupportedError: no last Linear layer, or no hidden one; see `require_restorable`.
        UsageError: an unknown method, or fewer than one step.
    """
    if method not in get_args(FedAvgLabelMethod):
        raise UsageError(f"method must be one of {', '.join(get_args(FedAvgLabelMethod))}, got {method!r}")
    if local_steps < 1:
        raise UsageError(f"local_steps must be at least 1, got {local_steps}")
    require_restorable(network, "geng")
    weight = f"{last_linear(network)[0]}.weight"
    before, after = parameters_before[weight].double(), parameters_after[weight].double()
    gradient = (before - after) / (learning_rate * momentum_steps(local_steps, momentum))
    gradient = (gradient - weight_decay * (before + after) / 2).sum(1)
    start = last_layer_statistics(
        network, parameters_after if method == "geng_client" else parameters_before, buffers, dummy
    )
    end = last_layer_statistics(network, parameters_after, buffers, dummy) if method == "interpolated" else start
    return interpolated_counts(gradient, start, end, n_rows, local_steps)


def restore_whole_counts(update: ClientUpdate, local_steps: int, dummy: Tensor, method: FedAvgLabelMethod) -> Tensor:
    """Whole rows per class behind an update, LongTensor ``[classes]`` on the CPU.

    Args:
        update: a weight update that says its learning rate.
        local_steps: see `restore_fedavg_counts`, as ``method``; errors likewise.
        dummy: see `restore_fedavg_counts`; on the device that computes.
        method: where the statistics are taken.
    """
    facts, network = update.facts, client_network(update).to(dummy.device)
    assert facts.learning_rate is not None  # callers require one
    before, delta, buffers = (
        {name: tensor.to(dummy.device) for name, tensor in tensors.items()}
        for tensors in (update.parameters, update.update, update.buffers)
    )
    after = {name: value + delta[name] for name, value in before.items()}
    n_rows, rate, sgd = facts.n_rows, facts.learning_rate, (facts.momentum, facts.weight_decay)
    counts = restore_fedavg_counts(network, before, after, buffers, n_rows, rate, local_steps, dummy, method, *sgd)
    return round_counts(counts.cpu(), n_rows)


def interpolated_counts(
    gradient: Tensor, start: LastLayerStatistics, end: LastLayerStatistics, n_rows: int, local_steps: int
) -> Tensor:
    """Mean of Eq. 2 over the local steps, real-valued ``[classes]``.

    Args:
        gradient: mean gradient of the last layer's weights, summed over its inputs, float64 ``[classes]``.
        start: statistics at the weights before.
        end: statistics at the weights after.
        n_rows: rows behind the update.
        local_steps: steps to interpolate over.
    """
    at = torch.arange(local_steps, dtype=torch.float64, device=gradient.device) / local_steps
    probability = torch.lerp(start[0], end[0], at.mean())
    inverse_sum = torch.lerp(start[1], end[1], at).reciprocal().mean()
    return n_rows * (probability - gradient * inverse_sum)


def momentum_steps(local_steps: int, momentum: float) -> float:
    """Steps of plain SGD that move the weights as far as ``local_steps`` with momentum do under one gradient.

    The gradient of step s is applied in it and, fading, in all later ones: ``1 + mu + ... + mu^(U - s)`` times.

    >>> momentum_steps(10, 0.0), momentum_steps(2, 0.5)
    (10.0, 2.5)
    """
    if momentum == 0.0:
        return float(local_steps)
    return (local_steps - momentum * (1 - momentum**local_steps) / (1 - momentum)) / (1 - momentum)
