"""One step of local training, as the simulation needs it: its gradient, and the way back through that gradient.

Two implementations of one interface. `NetworkStep` serves any network through ``torch.func`` and autograd;
`chain_step.ChainStep` writes both passes out for ReLU chains. A test checks that they are equal.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy

from lightleak.targets.functional import functional_call, twice_differentiable

Weights = list[Tensor]
"""Parameters of every simulated client, ``[clients, ...]`` each, in one fixed order."""


class LocalStep(Protocol):
    """Forward and backward of one batch per simulated client, the step they lead to, and the way back through it."""

    def run(self, weights: Weights, x: Tensor, labels: Tensor) -> Any:
        """Forward and backward under mean cross-entropy: a trace that the other functions take.

        Args:
            weights: parameters of every client; they must not change while the trace is in use.
            x: batches ``[clients, rows, d]``.
            labels: LongTensor ``[clients, rows]``.
        """

    def gradient(self, trace: Any) -> Weights:
        """Gradient by every parameter."""

    def descended(self, trace: Any, rate: float) -> Weights:
        """Weights minus ``rate`` times the gradient, in new memory."""

    def pullback(self, trace: Any, direction: Weights, by_weights: Weights, factor: float) -> Tensor:
        """Derivatives of ``factor <direction, gradient>``: by the weights, added to ``by_weights``; by ``x``, returned.

        Args:
            trace: it is used up.
            direction: one tensor per parameter; may be ``by_weights`` itself.
            by_weights: running derivatives; changed in place.
            factor: see above.
        """


class NetworkStep:
    """Any network, by ``vmap(grad)`` and autograd.

    Args:
        network: the target, in the mode in which the client trains it, with the normalization layers of
            `lightleak.targets.normalization`.
        names: the parameters' names, in the order of the weights.
        buffers: ``[clients, ...]`` per name.
    """

    def __init__(self, network: nn.Module, names: Sequence[str], buffers: Mapping[str, Tensor]) -> None:
        self.names, self.buffers = tuple(names), dict(buffers)

        def loss(named: dict[str, Tensor], held: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(functional_call(network, (named, held), (x,)), y)

        self._gradients = vmap(grad(loss))

    def run(self, weights: Weights, x: Tensor, labels: Tensor) -> Any:
        """See `LocalStep`; the trace is autograd's graph with its leaves."""
        leaves = [w.detach().requires_grad_() for w in weights]
        x = x.detach().requires_grad_()
        with torch.enable_grad(), twice_differentiable():
            named = self._gradients(dict(zip(self.names, leaves, strict=True)), self.buffers, x, labels)
        return [named[name] for name in self.names], leaves, x

    def gradient(self, trace: Any) -> Weights:
        """See `LocalStep`."""
        return [output.detach().clone() for output in trace[0]]

    def descended(self, trace: Any, rate: float) -> Weights:
        """See `LocalStep`."""
        outputs, leaves, _ = trace
        return [torch.sub(w.detach(), g.detach(), alpha=rate) for w, g in zip(leaves, outputs, strict=True)]

    def pullback(self, trace: Any, direction: Weights, by_weights: Weights, factor: float) -> Tensor:
        """See `LocalStep`."""
        outputs, leaves, x = trace
        # In new memory: autograd may hand a direction back as a derivative, and by_weights may be the direction.
        pairs = [(o, factor * d) for o, d in zip(outputs, direction, strict=True) if o.requires_grad]
        found = torch.autograd.grad(
            [o for o, _ in pairs], [*leaves, x], [d for _, d in pairs], allow_unused=True, materialize_grads=True
        )
        for total, part in zip(by_weights, found, strict=False):
            total += part
        return found[-1]
