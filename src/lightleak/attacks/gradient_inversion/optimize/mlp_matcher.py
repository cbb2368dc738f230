"""The fast path: gradient matching of a chain of linear layers in closed form, as matrix products."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from lightleak.attacks.gradient_inversion.network.activation import RELU, Activation
from lightleak.attacks.gradient_inversion.optimize.matcher import Targets, inner_product
from lightleak.attacks.gradient_inversion.optimize.matrix_products import MatrixProducts
from lightleak.attacks.gradient_inversion.optimize.objective import Objective
from lightleak.attacks.gradient_inversion.optimize.straight_through import StraightThrough
from lightleak.attacks.gradient_inversion.optimize.whitening import Comparison


@dataclass
class _Pass:
    """What a forward and backward leave; lists go by layer, rows are ``[updates, restarts * n, ...]``.

    Attributes:
        hidden: ``h_{l-1}``.
        errors: ``e_l``.
        masks: ``m_l`` of the hidden layers.
        bends: with straight-through masks or a smooth activation the derivative of ``e_l`` by ``a_l``, cell by cell, of
            the hidden layers.
        probabilities: of the classes.
    """

    hidden: list[Tensor]
    errors: list[Tensor]
    masks: list[Tensor]
    probabilities: Tensor
    bends: list[Tensor] = field(default_factory=list)


class MLPMatcher:
    """A chain of Linear and ReLU layers under mean cross-entropy, in closed form.

    With ``a_l = h_{l-1} W_l^T + b_l``, ``h_l = relu(a_l)``, ``m_l = 1[a_l > 0]`` and ``e_l`` the derivative of the loss
    by ``a_l``: ``e_L = (softmax(a_L) - y) / n``, ``e_l = (e_{l+1} W_{l+1}) m_l``, and the gradients are
    ``G_l = e_l^T h_{l-1}``. The reverse pass carries the derivative of the objective by every ``G_l`` back to
    ``h_0 = x``. Masks are constant, or have the derivative that ``straight_through`` gives them: then the derivative of
    ``e_l`` by ``a_l`` is ``(e_{l+1} W_{l+1}) m'_l``. A smooth activation has its slope for mask, and its bend for m'.

    Args:
        weights: per layer ``[updates, out, in]``.
        biases: per layer ``[updates, out]``.
        weight_targets: observed gradients of the weights, ``[updates, out, in]``.
        bias_targets: observed gradients of the biases, ``[updates, out]``.
        labels: LongTensor ``[updates, n]``.
        objective: distance of gradients.
        products: in which precision matrices are multiplied.
        straight_through: derivative of ReLU's masks; None: zero.
        whitening: compares gradients in place of the objective.
        activation: between the layers.
    """

    def __init__(
        self,
        weights: Sequence[Tensor],
        biases: Sequence[Tensor],
        weight_targets: Sequence[Tensor],
        bias_targets: Sequence[Tensor],
        labels: Tensor,
        objective: Objective,
        products: MatrixProducts | None = None,
        straight_through: StraightThrough | None = None,
        whitening: Comparison | None = None,
        activation: Activation = RELU,
    ) -> None:
        self.products = products or MatrixProducts()
        self.weights, self.biases = [self.products.rounded(w) for w in weights], [b.unsqueeze(1) for b in biases]
        self.transposed = [w.transpose(1, 2).contiguous() for w in self.weights]
        self.weight_targets, self.bias_targets = list(weight_targets), [t.unsqueeze(1) for t in bias_targets]
        self.targets = Targets([*weight_targets, *bias_targets])
        self.one_hot = one_hot(labels, biases[-1].shape[-1]).to(weights[0].dtype).unsqueeze(1)
        self.objective, self.straight_through, self.whitening = objective, straight_through, whitening
        self.activation = activation

    @property
    def repeats(self) -> bool:
        """See `Repeating`."""
        return self.straight_through is None and self.whitening is None

    def at(self, share: float) -> "MLPMatcher":
        """This matcher after that share of the optimization; see `Annealed`."""
        moved = copy.copy(self)
        if self.straight_through is not None:
            moved.straight_through = self.straight_through.at(share)
        if self.whitening is not None:
            moved.whitening = self.whitening.at(share)
        return moved

    @torch.no_grad()
    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `Matcher`."""
        found = self._pass(x)
        compared = self._objective if self.whitening is None else self._whitened
        value, by_hidden, by_errors = compared(found, x.shape[2])
        return value, self._back(found, by_hidden, by_errors, x.shape[2]).view_as(x)

    def _pass(self, x: Tensor) -> _Pass:
        updates, restarts, n, _ = x.shape
        depth, products, straight = len(self.weights), self.products, self.straight_through
        hidden, masks, slopes = [products.rounded(x.reshape(updates, restarts * n, -1))], [], []
        for layer, (weight, bias) in enumerate(zip(self.transposed[:-1], self.biases[:-1], strict=True)):
            before = products.baddbmm(bias, hidden[-1], weight)
            value, mask, slope = self.activation.derivatives(before)
            masks.append(mask)
            if straight is not None:
                slope = straight.slope(layer, before)
            if slope is not None:
                slopes.append(slope)
            hidden.append(products.rounded(value))
        probabilities = products.baddbmm(self.biases[-1], hidden[-1], self.transposed[-1]).softmax(-1)
        error = (probabilities.view(updates, restarts, n, -1) - self.one_hot).div_(n).view_as(probabilities)
        errors = [error]
        for i in range(depth - 1, 0, -1):
            unmasked = products.bmm(error, self.weights[i])
            if slopes:
                slopes[i - 1].mul_(unmasked)
            error = unmasked.mul_(masks[i - 1])
            errors.insert(0, error)
        return _Pass(hidden, errors, masks, probabilities, slopes)

    def _objective(self, found: _Pass, n: int) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """The objective, and its derivatives by hidden values and errors."""
        hidden, errors, products, depth = found.hidden, found.errors, self.products, len(self.weights)
        updates, restarts = errors[0].shape[0], errors[0].shape[1] // n
        layers = [_layer(h, e, t, n, products) for h, e, t in zip(hidden, errors, self.weight_targets, strict=True)]
        biases = [e.view(updates, restarts, n, -1).sum(2) for e in errors]
        of_biases = [inner_product(g, t) for g, t in zip(biases, self.bias_targets, strict=True)]
        inner = torch.stack([*(layer.inner for layer in layers), *of_biases], -1)
        norm = torch.stack([*(layer.norm for layer in layers), *(inner_product(g, g) for g in biases)], -1)
        value, by_inner, by_norm = self.objective(inner, norm, self.targets.norm, self.targets.sizes)

        by_hidden, by_errors = [], []
        for i, (layer, gradient, target) in enumerate(zip(layers, biases, self.bias_targets, strict=True)):
            by_h, by_e = layer.derivatives(by_inner[..., i], 2 * by_norm[..., i])
            at = depth + i
            by_bias = by_inner[..., at, None] * target + 2 * by_norm[..., at, None] * gradient
            by_e.view(updates, restarts, n, -1).add_(by_bias.unsqueeze(2))
            by_hidden.append(by_h)
            by_errors.append(by_e)
        return value, by_hidden, by_errors

    def _whitened(self, found: _Pass, n: int) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """As `_objective`, of the whitened difference."""
        assert self.whitening is not None  # the caller knows
        updates, products = len(found.errors[0]), self.products
        inputs = [h.reshape(-1, n, h.shape[-1]) for h in found.hidden]
        errors = [products.rounded(e).view(-1, n, e.shape[-1]) for e in found.errors]
        gradients = []
        for h, e, of_row in zip(inputs, errors, found.errors, strict=True):
            bias = of_row.view(-1, n, of_row.shape[-1]).sum(1).unsqueeze(-1)
            joined = torch.cat([products.bmm(e.transpose(1, 2), h), bias], -1)
            gradients.append(joined.unflatten(0, (updates, -1)))
        value, by_gradients = self.whitening(gradients)
        by_hidden, by_errors = [], []
        for h, e, of_both in zip(inputs, errors, by_gradients, strict=True):
            by_weight, by_bias = of_both.flatten(0, 1).split([h.shape[-1], 1], -1)
            by_hidden.append(products.bmm(e, by_weight).view(updates, -1, h.shape[-1]))
            by_error = products.baddbmm(by_bias.transpose(1, 2), h, by_weight.transpose(1, 2))
            by_errors.append(by_error.view(updates, -1, e.shape[-1]))
        return value, by_hidden, by_errors

    def _back(self, found: _Pass, by_hidden: list[Tensor], by_errors: list[Tensor], n: int) -> Tensor:
        """Derivative by the rows ``[updates, restarts * n, d]``."""
        depth, products, masks = len(self.weights), self.products, found.masks
        # Through the errors, from the first layer up ...
        for i in range(1, depth):
            if found.bends:
                found.bends[i - 1].mul_(by_errors[i - 1])
            products.baddbmm_(by_errors[i], by_errors[i - 1].mul_(masks[i - 1]), self.transposed[i])
        by_error = by_errors[-1].div_(n)
        # ... through the softmax, and down through the activations.
        by_activation = found.probabilities * (by_error - (found.probabilities * by_error).sum(-1, keepdim=True))
        for i in range(depth - 1, 0, -1):
            by_activation = products.baddbmm_(by_hidden[i], by_activation, self.weights[i]).mul_(masks[i - 1])
            if found.bends:
                by_activation.add_(found.bends[i - 1])
        return products.baddbmm_(by_hidden[0], by_activation, self.weights[0])


class _ExplicitLayer:
    """One layer's ``G = e^T h`` held in memory: least arithmetic for long batches and for narrow layers."""

    def __init__(self, hidden: Tensor, error: Tensor, target: Tensor, n: int, products: MatrixProducts) -> None:
        self.shape, self.products = (hidden.shape[0], hidden.shape[1] // n), products
        self.hidden, self.error, self.target = hidden, error, target
        self.h, self.e = hidden.view(-1, n, hidden.shape[-1]), products.rounded(error).view(-1, n, error.shape[-1])
        self.gradient = products.bmm(self.e.transpose(1, 2), self.h).view(*self.shape, *target.shape[1:])
        flat = self.gradient.flatten(2)
        self.inner = torch.bmm(flat, target.flatten(1).unsqueeze(-1)).squeeze(-1)
        self.norm = torch.linalg.vector_norm(flat, dim=-1).square()

    def derivatives(self, by_target: Tensor, by_gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Derivatives by hidden and error, given that by G it is ``by_target T + by_gradient G``."""
        scaled = self.gradient.mul_(by_gradient[..., None, None])
        combined = scaled.addcmul_(self.target.unsqueeze(1), by_target[..., None, None]).flatten(0, 1)
        combined = self.products.rounded(combined)
        by_hidden = self.products.bmm(self.e, combined).view_as(self.hidden)
        return by_hidden, self.products.bmm(self.h, combined.transpose(1, 2)).view_as(self.error)


class _GramLayer:
    """One layer's ``G = e^T h`` never formed: ``<G, T> = <e, h T^T>`` and ``|G|^2 = <e e^T, h h^T>``.

    All products with the target run over the rows of every restart at once, and the rest is n by n: for short batches
    this is less arithmetic and far less memory traffic than ``out x in`` per restart.
    """

    def __init__(self, hidden: Tensor, error: Tensor, target: Tensor, n: int, products: MatrixProducts) -> None:
        self.shape, self.n, self.products = (hidden.shape[0], hidden.shape[1] // n), n, products
        self.hidden, self.error, self.target = hidden, error, products.rounded(target)
        self.h, self.e = hidden.view(-1, n, hidden.shape[-1]), products.rounded(error).view(-1, n, error.shape[-1])
        self.projected = products.bmm(hidden, self.target.transpose(1, 2))
        self.hidden_gram = products.bmm(self.h, self.h.transpose(1, 2))
        self.error_gram = products.bmm(self.e, self.e.transpose(1, 2))
        self.inner = (self.projected * error).view(*self.shape, -1).sum(-1)
        self.norm = (self.hidden_gram * self.error_gram).view(*self.shape, -1).sum(-1)

    def derivatives(self, by_target: Tensor, by_gradient: Tensor) -> tuple[Tensor, Tensor]:
        """As for `_ExplicitLayer`."""
        grams = by_gradient.reshape(-1, 1, 1)
        rows = by_target.repeat_interleave(self.n, 1).unsqueeze(-1)
        from_norm = self.products.bmm(self.error_gram.mul_(grams), self.h).view_as(self.hidden)
        by_hidden = self.products.baddbmm_(from_norm, self.error * rows, self.target)
        by_error = self.products.bmm(self.hidden_gram.mul_(grams), self.e).view_as(self.error)
        return by_hidden, by_error.addcmul_(self.projected, rows)


def _layer(
    hidden: Tensor, error: Tensor, target: Tensor, n: int, products: MatrixProducts
) -> _ExplicitLayer | _GramLayer:
    """Gram form where ``n (in + out) < in out``.

    That is twice the break-even of the operation count, as this form moves less memory.
    """
    fan_out, fan_in = target.shape[1:]
    kind = _GramLayer if n * (fan_in + fan_out) < fan_in * fan_out else _ExplicitLayer
    return kind(hidden, error, target, n, products)
