"""Loss and parameter gradient as pure functions of parameters and batch: the reference that replay checks compare with.

The gradient is taken with ``torch.func``, so it can itself be differentiated and mapped over candidate batches or over
stacked parameters.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call as call_with
from torch.func import grad
from torch.nn.attention import SDPBackend, sdpa_kernel

from lightleak.core.registry import Registry
from lightleak.targets.normalization import frozen_statistics

Criterion = Callable[[Tensor, Tensor], Tensor]
CRITERIA: Registry[Criterion] = Registry("criterion")


def criterion(name: str) -> Criterion:
    """The training loss called ``name``: ``(logits [n, n_classes], labels) -> []``, the mean over rows.

    >>> import torch
    >>> criterion("cross_entropy")(torch.zeros(2, 4), torch.tensor([0, 3]))
    tensor(1.3863)

    Raises:
        UsageError: unknown name.
    """
    return CRITERIA.get(name)


@CRITERIA.register("cross_entropy")
def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy; labels are class indices ``[n]`` or, where an attack optimizes them, ``[n, n_classes]``."""
    return F.cross_entropy(logits, labels)


def without_dropout(network: nn.Module) -> nn.Module:
    """Switch dropout off in place, whatever the mode: every dropout layer, and that of attention.

    Returns:
        ``network``.
    """
    for module in network.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.eval()
        elif isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
    return network


def drops_units(network: nn.Module) -> bool:
    """Whether a layer of the network drops units in train mode."""
    return any(
        (isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0)
        or (isinstance(module, nn.MultiheadAttention) and module.dropout > 0)
        for module in network.modules()
    )


def functional_call(
    network: nn.Module, values: Mapping[str, Tensor] | tuple[Mapping[str, Tensor], ...], args: tuple[Any, ...]
) -> Any:
    """Call a network with other parameters and buffers, and leave its own in place.

    ``torch.func.functional_call`` leaves the given tensors in a layer that the network has under two names
    (pytorch/pytorch#164759), as TabNet has: its next call, and its gradients, are then those of other weights.

    Args:
        network: the module.
        values: tensors by name, in one mapping or several; tied parameters all take the value of the one that is named.
        args: of the call.

    >>> import torch
    >>> layer = nn.Linear(1, 1, bias=False)
    >>> twice, before = nn.Sequential(layer, layer), float(layer.weight)
    >>> functional_call(twice, {"0.weight": torch.full((1, 1), 3.0)}, (torch.ones(1, 1),))
    tensor([[9.]])
    >>> float(layer.weight) == before
    True
    """
    named = {key: value for part in (values if isinstance(values, tuple) else (values,)) for key, value in part.items()}
    return call_with(network, _by_place(network, named), args, tie_weights=False)


def _by_place(network: nn.Module, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return ``named`` with one name for every place in which the network holds one of its tensors."""
    names: dict[int, list[str]] = {}
    for prefix, module in network.named_modules():  # each once, whatever the number of its names
        for key, own in (*module._parameters.items(), *module._buffers.items()):
            if own is not None:
                names.setdefault(id(own), []).append(f"{prefix}.{key}" if prefix else key)
    tensors = chain(
        network.named_parameters(remove_duplicate=False),
        network.named_buffers(remove_duplicate=False),
    )
    places = {name: names[id(own)] for name, own in tensors}
    return {place: value for name, value in named.items() for place in places.get(name, [name])}


def twice_differentiable() -> AbstractContextManager[None]:
    """Context in which attention is computed from operations with second derivatives; fused kernels have none.

    A fused attention kernel has only a first derivative, and attacks differentiate the gradient itself.
    """
    return sdpa_kernel(SDPBackend.MATH)


def gradients(
    network: nn.Module,
    parameters: Mapping[str, Tensor],
    buffers: Mapping[str, Tensor],
    inputs: Tensor,
    labels: Tensor,
    loss: str = "cross_entropy",
) -> dict[str, Tensor]:
    """Gradient of the mean batch loss with respect to ``parameters``, in the mode (train or eval) of ``network``.

    The weights that ``network`` itself holds are not read, and neither they nor ``buffers`` change.

    Args:
        network: the module; only its computation is used.
        parameters: named parameters, as ``dict(network.named_parameters())`` names them.
        buffers: named buffers; those left out are the network's own.
        inputs: ``[n, d]``.
        labels: class indices ``[n]`` or probabilities ``[n, n_classes]``.
        loss: name of the `criterion`.

    Returns:
        A gradient per parameter, same names and shapes.

    Raises:
        UsageError: unknown criterion.

    >>> import torch
    >>> layer = nn.Linear(1, 2)
    >>> zero = {name: torch.zeros_like(value) for name, value in layer.named_parameters()}
    >>> gradients(layer, zero, {}, torch.ones(1, 1), torch.tensor([1]))["bias"]
    tensor([ 0.5000, -0.5000])
    """
    measure = criterion(loss)

    def batch_loss(values: dict[str, Tensor]) -> Tensor:
        return measure(functional_call(network, (values, dict(buffers)), (inputs,)), labels)

    with frozen_statistics(network):
        return grad(batch_loss)(dict(parameters))
