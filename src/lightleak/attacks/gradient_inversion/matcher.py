"""Loss of a candidate batch and its derivative by the batch: the one step every gradient-inversion attack repeats.

Two implementations of one interface. `NetworkMatcher` serves any network through ``torch.func``; `MLPMatcher` writes the
first and second derivative of a ReLU network out as matrix products. A test holds them equal.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy, one_hot

from lightleak.attacks.gradient_inversion.objective import Objective
from lightleak.targets.normalization import frozen_statistics, record_statistics

Stacked = Mapping[str, Tensor]
"""Named tensors with a leading dimension over updates."""

Penalty = Callable[[Tensor, Mapping[str, tuple[Tensor, Tensor]]], Tensor]
"""From ``x [updates, restarts, n, d]`` and BatchNorm statistics to a penalty ``[updates, restarts]``."""


class Matcher(Protocol):
    """Gradient-matching loss of candidate batches."""

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Loss ``[updates, restarts]`` and its derivative, for ``x`` ``[updates, restarts, n, d]``."""


class _Targets:
    """Observed gradients ``[updates, ...]``, their squared norms and sizes: what every objective compares with."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = list(tensors)
        self.norm = torch.stack([t.flatten(1).square().sum(-1) for t in tensors], -1).unsqueeze(1)
        self.sizes = torch.tensor([float(t[0].numel()) for t in tensors], dtype=tensors[0].dtype, device=tensors[0].device)


class NetworkMatcher:
    """Any network: per-candidate parameter gradients by ``vmap(grad)``, their derivative by autograd.

    Args:
        network: the target, in the mode (train or eval) in which the gradient was taken.
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
        self.targets = _Targets([targets[name] for name in self.parameters])
        self.labels, self.objective, self.penalty = labels, objective, penalty

        def loss(named: Stacked, held: Stacked, x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]]:
            with record_statistics(network) as statistics:
                value = cross_entropy(functional_call(network, (named, held), (x,)), y)
            return value, dict(statistics)

        over_restarts = vmap(grad(loss, has_aux=True), in_dims=(None, None, 0, None))
        self._gradients = vmap(over_restarts, in_dims=(0, 0, 0, 0))

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `Matcher`."""
        x = x.detach().requires_grad_()
        with torch.enable_grad(), frozen_statistics(self.network):
            named, statistics = self._gradients(self.parameters, self.buffers, x, self.labels)
            gradients = [named[name] for name in self.parameters]
            with torch.no_grad():
                inner = torch.stack([_inner(g, t.unsqueeze(1)) for g, t in zip(gradients, self.targets.tensors, strict=True)], -1)
                norm = torch.stack([_inner(g, g) for g in gradients], -1)
                value, by_inner, by_norm = self.objective(inner, norm, self.targets.norm, self.targets.sizes)
                derivatives = [
                    _spread(by_inner[..., i], g) * t.unsqueeze(1) + 2 * _spread(by_norm[..., i], g) * g
                    for i, (g, t) in enumerate(zip(gradients, self.targets.tensors, strict=True))
                ]
            outputs, weights = list(gradients), derivatives
            if self.penalty is not None:
                extra = self.penalty(x, statistics)
                outputs, weights = [*outputs, extra], [*weights, torch.ones_like(extra)]
                value = value + extra.detach()
            connected = [(o, w) for o, w in zip(outputs, weights, strict=True) if o.requires_grad]
            (derivative,) = torch.autograd.grad([o for o, _ in connected], x, [w for _, w in connected])
        return value, derivative


def _inner(left: Tensor, right: Tensor) -> Tensor:
    """Inner product per candidate, ``[updates, restarts]``."""
    return (left * right).flatten(2).sum(-1)


def _spread(factor: Tensor, like: Tensor) -> Tensor:
    """``[updates, restarts]`` with trailing dimensions of size one, to scale ``like``."""
    return factor.reshape(*factor.shape, *[1] * (like.dim() - factor.dim()))


class MLPMatcher:
    """A chain of Linear and ReLU layers under mean cross-entropy, in closed form.

    With ``a_l = h_{l-1} W_l^T + b_l``, ``h_l = relu(a_l)``, ``m_l = 1[a_l > 0]`` and ``e_l`` the derivative of the loss by
    ``a_l``: ``e_L = (softmax(a_L) - y) / n``, ``e_l = (e_{l+1} W_{l+1}) m_l``, and the gradients are ``G_l = e_l^T h_{l-1}``.
    The reverse pass carries the derivative of the objective by every ``G_l`` back to ``h_0 = x``; masks are constant.

    Args:
        weights: per layer ``[updates, out, in]``.
        biases: per layer ``[updates, out]``.
        weight_targets: observed gradients of the weights.
        bias_targets: observed gradients of the biases.
        labels: LongTensor ``[updates, n]``.
        objective: distance of gradients.
    """

    def __init__(
        self,
        weights: Sequence[Tensor],
        biases: Sequence[Tensor],
        weight_targets: Sequence[Tensor],
        bias_targets: Sequence[Tensor],
        labels: Tensor,
        objective: Objective,
    ) -> None:
        self.weights, self.biases = list(weights), [b.unsqueeze(1) for b in biases]
        self.transposed = [w.transpose(1, 2).contiguous() for w in weights]
        self.weight_targets, self.bias_targets = list(weight_targets), list(bias_targets)
        self.targets = _Targets([*weight_targets, *bias_targets])
        self.one_hot = one_hot(labels, biases[-1].shape[-1]).to(weights[0].dtype).unsqueeze(1)
        self.objective = objective

    @torch.no_grad()
    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `Matcher`."""
        updates, restarts, n, _ = x.shape
        depth = len(self.weights)
        hidden, masks = [x.reshape(updates, restarts * n, -1)], []
        for weight, bias in zip(self.transposed[:-1], self.biases[:-1], strict=True):
            activation = torch.baddbmm(bias, hidden[-1], weight)
            masks.append((activation > 0).to(x.dtype))
            hidden.append(activation.relu_())
        probabilities = torch.baddbmm(self.biases[-1], hidden[-1], self.transposed[-1]).softmax(-1)
        error = (probabilities.view(updates, restarts, n, -1) - self.one_hot).div_(n).view_as(probabilities)
        errors = [error]
        for layer in range(depth - 1, 0, -1):
            error = torch.bmm(error, self.weights[layer]).mul_(masks[layer - 1])
            errors.insert(0, error)

        layers = [_layer(h, e, t, n) for h, e, t in zip(hidden, errors, self.weight_targets, strict=True)]
        biases = [e.view(updates, restarts, n, -1).sum(2) for e in errors]
        of_biases = [_inner(g, t.unsqueeze(1)) for g, t in zip(biases, self.bias_targets, strict=True)]
        inner = torch.stack([*(layer.inner for layer in layers), *of_biases], -1)
        norm = torch.stack([*(layer.norm for layer in layers), *(_inner(g, g) for g in biases)], -1)
        value, by_inner, by_norm = self.objective(inner, norm, self.targets.norm, self.targets.sizes)

        by_hidden, by_errors = [], []
        for i, (layer, gradient, target) in enumerate(zip(layers, biases, self.bias_targets, strict=True)):
            by_h, by_e = layer.derivatives(by_inner[..., i], 2 * by_norm[..., i])
            at = depth + i
            by_bias = by_inner[..., at, None] * target.unsqueeze(1) + 2 * by_norm[..., at, None] * gradient
            by_e.view(updates, restarts, n, -1).add_(by_bias.unsqueeze(2))
            by_hidden.append(by_h)
            by_errors.append(by_e)
        # Back through the errors, from the first layer up ...
        for layer in range(1, depth):
            by_errors[layer].baddbmm_(by_errors[layer - 1].mul_(masks[layer - 1]), self.transposed[layer])
        by_error = by_errors[-1].div_(n)
        # ... through the softmax, and down through the activations.
        by_activation = probabilities * (by_error - (probabilities * by_error).sum(-1, keepdim=True))
        for layer in range(depth - 1, 0, -1):
            by_activation = by_hidden[layer].baddbmm_(by_activation, self.weights[layer]).mul_(masks[layer - 1])
        return value, by_hidden[0].baddbmm_(by_activation, self.weights[0]).view_as(x)


class _ExplicitLayer:
    """One layer's ``G = e^T h`` held in memory: least arithmetic for long batches and for narrow layers."""

    def __init__(self, hidden: Tensor, error: Tensor, target: Tensor, n: int) -> None:
        self.shape = (hidden.shape[0], hidden.shape[1] // n)
        self.hidden, self.error, self.target = hidden, error, target
        self.h, self.e = hidden.view(-1, n, hidden.shape[-1]), error.view(-1, n, error.shape[-1])
        self.gradient = torch.bmm(self.e.transpose(1, 2), self.h).view(*self.shape, *target.shape[1:])
        flat = self.gradient.flatten(2)
        self.inner = torch.bmm(flat, target.flatten(1).unsqueeze(-1)).squeeze(-1)
        self.norm = torch.linalg.vector_norm(flat, dim=-1).square()

    def derivatives(self, by_target: Tensor, by_gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Derivatives by hidden and error, given that by G it is ``by_target T + by_gradient G``."""
        scaled = self.gradient.mul_(by_gradient[..., None, None])
        combined = scaled.addcmul_(self.target.unsqueeze(1), by_target[..., None, None]).flatten(0, 1)
        by_hidden = torch.bmm(self.e, combined).view_as(self.hidden)
        return by_hidden, torch.bmm(self.h, combined.transpose(1, 2)).view_as(self.error)


class _GramLayer:
    """One layer's ``G = e^T h`` never formed: ``<G, T> = <e, h T^T>`` and ``|G|^2 = <e e^T, h h^T>``.

    All products with the target run over the rows of every restart at once, and the rest is n by n: for short batches this
    is less arithmetic and far less memory traffic than ``out x in`` per restart.
    """

    def __init__(self, hidden: Tensor, error: Tensor, target: Tensor, n: int) -> None:
        self.shape, self.n = (hidden.shape[0], hidden.shape[1] // n), n
        self.hidden, self.error, self.target = hidden, error, target
        self.h, self.e = hidden.view(-1, n, hidden.shape[-1]), error.view(-1, n, error.shape[-1])
        self.projected = torch.bmm(hidden, target.transpose(1, 2))
        self.hidden_gram = torch.bmm(self.h, self.h.transpose(1, 2))
        self.error_gram = torch.bmm(self.e, self.e.transpose(1, 2))
        self.inner = (self.projected * error).view(*self.shape, -1).sum(-1)
        self.norm = (self.hidden_gram * self.error_gram).view(*self.shape, -1).sum(-1)

    def derivatives(self, by_target: Tensor, by_gradient: Tensor) -> tuple[Tensor, Tensor]:
        """As for `_ExplicitLayer`."""
        grams = by_gradient.reshape(-1, 1, 1)
        rows = by_target.repeat_interleave(self.n, 1).unsqueeze(-1)
        from_norm = torch.bmm(self.error_gram.mul_(grams), self.h).view_as(self.hidden)
        by_hidden = from_norm.baddbmm_(self.error * rows, self.target)
        by_error = torch.bmm(self.hidden_gram.mul_(grams), self.e).view_as(self.error)
        return by_hidden, by_error.addcmul_(self.projected, rows)


def _layer(hidden: Tensor, error: Tensor, target: Tensor, n: int) -> "_ExplicitLayer | _GramLayer":
    """Gram form where ``n (in + out) < in out``: twice the break-even of the operation count, as it moves less memory."""
    fan_out, fan_in = target.shape[1:]
    kind = _GramLayer if n * (fan_in + fan_out) < fan_in * fan_out else _ExplicitLayer
    return kind(hidden, error, target, n)
