"""One step of local training, as the simulation needs it: its gradient, and the way back through that gradient.

Two implementations of one interface. `NetworkStep` serves any network through ``torch.func`` and autograd;
`lightleak.attacks.gradient_inversion.fedavg.chain_step.ChainStep` writes both ways out for ReLU chains. A test holds
them equal.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

Weights = list[Tensor]
"""Parameters of every simulated client, ``[clients, ...]`` each, in one fixed order."""


class LocalStep(Protocol):
    """Gradient of the mean cross-entropy of one batch per simulated client, and its adjoint."""

    def gradient(self, weights: Weights, x: Tensor, labels: Tensor) -> tuple[Weights, Any]:
        """Gradient by every parameter, and what `pullback` needs.

        Args:
            weights: parameters of every client.
            x: batches ``[clients, rows, d]``.
            labels: LongTensor ``[clients, rows]``.
        """

    def pullback(self, trace: Any, cotangents: Weights, by_weights: Weights) -> Tensor:
        """Derivatives of ``<cotangents, gradient>``: by the weights, added to ``by_weights``, and by ``x``, returned.

        Args:
            trace: from `gradient`; it is used up.
            cotangents: one per parameter.
            by_weights: running derivatives; changed in place.
        """


class NetworkStep:
    """Any network, by ``vmap(grad)`` and autograd.

    Args:
        network: the target, in the mode in which the client trains it, with the normalisation layers of
            `lightleak.targets.normalization`.
        names: the parameters' names, in the order of the weights.
        buffers: ``[clients, ...]`` per name.
    """

    def __init__(self, network: nn.Module, names: Sequence[str], buffers: Mapping[str, Tensor]) -> None:
        self.names, self.buffers = tuple(names), dict(buffers)

        def loss(named: dict[str, Tensor], held: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(functional_call(network, (named, held), (x,)), y)

        self._gradients = vmap(grad(loss))

    def gradient(self, weights: Weights, x: Tensor, labels: Tensor) -> tuple[Weights, Any]:
        """See `LocalStep`."""
        leaves = [w.detach().requires_grad_() for w in weights]
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            named = self._gradients(dict(zip(self.names, leaves, strict=True)), self.buffers, x, labels)
        outputs = [named[name] for name in self.names]
        return [output.detach().clone() for output in outputs], (outputs, leaves, x)

    def pullback(self, trace: Any, cotangents: Weights, by_weights: Weights) -> Tensor:
        """See `LocalStep`."""
        outputs, leaves, x = trace
        pairs = [(o, c) for o, c in zip(outputs, cotangents, strict=True) if o.requires_grad]
        found = torch.autograd.grad(
            [o for o, _ in pairs], [*leaves, x], [c for _, c in pairs], allow_unused=True, materialize_grads=True
        )
        for total, part in zip(by_weights, found, strict=False):
            total += part
        return found[-1]
