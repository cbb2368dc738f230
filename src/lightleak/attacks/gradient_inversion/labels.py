"""How many rows of each class stand behind an update, read off the gradient of the last layer."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from lightleak.core.errors import UnsupportedError

DUMMY_ROWS = 1000  # rows Geng et al.'s estimate averages over, as in TabLeak's implementation


def last_linear(network: nn.Module) -> tuple[str, nn.Linear]:
    """Name and module of the layer that computes the logits.

    Raises:
        UnsupportedError: the network has no Linear layer.
    """
    linears = [(name, module) for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    if not linears:
        raise UnsupportedError(f"labels are restored from a last Linear layer; {type(network).__name__} has none")
    return linears[-1]


def restore_counts(
    network: nn.Module,
    parameters: Mapping[str, Tensor],
    buffers: Mapping[str, Tensor],
    gradient: Mapping[str, Tensor],
    n_rows: int,
    dummy: Tensor,
    method: str = "geng",
) -> Tensor:
    """Estimated rows per class, real-valued ``[classes]``.

    The gradient by the last bias is ``mean(p) - n_c / n``, and by the last weight ``mean((p - y) h)``. ``geng`` (Geng et al.
    2021) takes the mean probability and the mean activation sum from dummy rows: ``n_c = n p - n sum(dW_c) / sum(h)``.
    ``bias`` reads ``n_c = n (p - db_c)`` off the bias, where only the mean probability is estimated.

    Args:
        network: the target.
        parameters: its parameters before the update.
        buffers: its buffers.
        gradient: mean-batch gradient by name.
        n_rows: rows behind the update.
        dummy: rows ``[k, d]`` to average over: Gaussian noise for ``geng``, rows drawn from marginals for ``bias``.
        method: ``geng`` or ``bias``.

    Raises:
        UnsupportedError: ``bias`` without a last bias.
    """
    name, layer = last_linear(network)
    seen: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        with torch.no_grad():
            logits = functional_call(network, (dict(parameters), dict(buffers)), (dummy,))
    finally:
        handle.remove()
    probability = logits.softmax(-1).mean(0)
    if method == "bias":
        if layer.bias is None:
            raise UnsupportedError("labels='bias' needs a bias in the last layer; use labels='geng'")
        return n_rows * (probability - gradient[f"{name}.bias"])
    return n_rows * probability - n_rows * gradient[f"{name}.weight"].sum(1) / seen[0].sum(1).mean()


def round_counts(counts: Tensor, n_rows: int) -> Tensor:
    """Whole counts that sum to ``n_rows``: give one row at a time to the class that has most left.

    >>> round_counts(torch.tensor([1.6, 2.4]), 4)
    tensor([2, 2])
    """
    left = counts.double().clone()
    rounded = torch.zeros(len(counts), dtype=torch.long)
    for _ in range(n_rows):
        most = int(left.argmax())
        rounded[most] += 1
        left[most] -= 1
    return rounded


def expand_counts(counts: Tensor) -> Tensor:
    """Labels in class order, LongTensor ``[n]``; which row holds which label is without meaning in a batch gradient.

    >>> expand_counts(torch.tensor([1, 2]))
    tensor([0, 1, 1])
    """
    return torch.repeat_interleave(torch.arange(len(counts)), counts)
