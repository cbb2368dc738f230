"""Loss of a candidate batch and its derivative by the batch: the one step every gradient-inversion attack repeats.

Two implementations of one interface. `NetworkMatcher` serves any network through ``torch.func``; the `MLPMatcher` of
the neighboring file writes the first and second derivative of a ReLU network out as matrix products. A test holds them
equal.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy

from lightleak.attacks.gradient_inversion.optimize.objective import Objective
from lightleak.targets.functional import functional_call, twice_differentiable
from lightleak.targets.normalization import BatchStatistics, record_statistics

Stacked = Mapping[str, Tensor]
"""Named tensors with a leading dimension over updates."""

Statistics = Mapping[str, BatchStatistics]
"""Mean and variance by BatchNorm layer, ``[updates, restarts, channels]`` each."""

Penalty = Callable[[Tensor, Statistics], Tensor]
"""From ``x [updates, restarts, n, d]`` and BatchNorm statistics to a penalty ``[updates, restarts]``."""


class Matcher(Protocol):
    """Gradient-matching loss of candidate batches."""

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Loss ``[updates, restarts]`` and its derivative, for ``x`` ``[updates, restarts, n, d]``."""


@runtime_checkable
class Annealed(Protocol):
    """A relaxation or a matcher that changes during the optimization."""

    def at(self, share: float) -> Self:
        """Itself after that share of the steps, 0 to 1."""


@runtime_checkable
class Repeating(Protocol):
    """A relaxation or a matcher whose steps a GPU can record once and repeat."""

    @property
    def repeats(self) -> bool:
        """Whether every step is the same operations, none of which needs the host."""


class Targets:
    """Observed gradients: what every objective compares with.

    Args:
        tensors: one per parameter, ``[updates, ...]``.

    Attributes:
        tensors: the gradients, ``[updates, 1, ...]``: one for all restarts.
        norm: their squared norms ``[updates, 1, tensors]``.
        sizes: their numbers of elements ``[tensors]``.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = [t.unsqueeze(1) for t in tensors]
        self.norm = torch.stack([inner_product(t, t) for t in self.tensors], -1)
        self.sizes = torch.tensor([float(t[0].numel()) for t in tensors]).to(self.norm)


class NetworkMatcher:
    """Any network: per-candidate parameter gradients by ``vmap(grad)``, their derivative by autograd.

    Args:
        network: the target, in the mode (train or eval) in which the gradient was taken; its normalization layers are
            those of `lightleak.targets.normalization`.
        parameters: ``[updates, ...]`` per name.
        buffers: ``[updates, ...]`` per name.
        targets: observed gradients, ``[updates, ...]`` per name.
        labels: LongTensor ``[updates, n]``.
        objective: distance of gradients.
        penalty: prior added to the loss, or ``None``.
    """

    def __init__(
        self,
        network: nn.Module,
        parameters: Stacked,
        buffers: Stacked,
        targets: Stacked,
        labels: Tensor,
        objective: Objective,
        penalty: Penalty | None = None,
    ) -> None:
        self.network, self.parameters, self.buffers = network, dict(parameters), dict(buffers)
        self.targets = Targets([targets[name] for name in self.parameters])
        self.labels, self.objective, self.penalty = labels, objective, penalty

        def loss(named: dict[str, Tensor], held: dict[str, Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, Statistics]:
            # Statistics of one row do not exist, so they are taken only where a prior compares them.
            nothing: AbstractContextManager[dict[str, BatchStatistics]] = nullcontext({})
            with nothing if penalty is None else record_statistics(network) as statistics:
                value = cross_entropy(functional_call(network, (named, held), (x,)), y)
            return value, dict(statistics)

        over_restarts = vmap(grad(loss, has_aux=True), in_dims=(None, None, 0, None))
        self._gradients = vmap(over_restarts, in_dims=(0, 0, 0, 0))

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `Matcher`."""
        x = x.detach().requires_grad_()
        with torch.enable_grad(), twice_differentiable():
            named, statistics = self._gradients(self.parameters, self.buffers, x, self.labels)
            gradients = [named[name] for name in self.parameters]
            value, derivatives = compare(gradients, self.targets, self.objective)
            outputs, weights = list(gradients), derivatives
            if self.penalty is not None:
                extra = self.penalty(x, statistics)
                outputs, weights = [*outputs, extra], [*weights, torch.ones_like(extra)]
                value = value + extra.detach()
            connected = [(o, w) for o, w in zip(outputs, weights, strict=True) if o.requires_grad]
            (derivative,) = torch.autograd.grad([o for o, _ in connected], x, [w for _, w in connected])
        return value, derivative


@torch.no_grad()
def compare(gradients: Sequence[Tensor], targets: Targets, objective: Objective) -> tuple[Tensor, list[Tensor]]:
    """The objective ``[updates, restarts]`` of candidates' gradients, and its derivative by each of them.

    Args:
        gradients: one per parameter, ``[updates, restarts, ...]``.
        targets: observed gradients, in the same order.
        objective: distance of gradients.
    """
    pairs = list(zip(gradients, targets.tensors, strict=True))
    inner = torch.stack([inner_product(g, t) for g, t in pairs], -1)
    norm = torch.stack([inner_product(g, g) for g in gradients], -1)
    value, by_inner, by_norm = objective(inner, norm, targets.norm, targets.sizes)
    derivatives = [
        _spread(by_inner[..., i], g) * t + 2 * _spread(by_norm[..., i], g) * g for i, (g, t) in enumerate(pairs)
    ]
    return value, derivatives


def inner_product(left: Tensor, right: Tensor) -> Tensor:
    """Inner product per candidate of ``[updates, restarts, ...]``, which broadcast: ``[updates, restarts]``."""
    product = left * right
    return product.reshape(*product.shape[:2], -1).sum(-1)


def _spread(factor: Tensor, like: Tensor) -> Tensor:
    """``[updates, restarts]`` with trailing dimensions of size one, to scale ``like``."""
    return factor.reshape(*factor.shape, *[1] * (like.dim() - factor.dim()))
