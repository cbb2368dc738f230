"""The fast path: gradient matching of a ReLU network in closed form, as matrix products."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from lightleak.attacks.gradient_inversion.matcher import Targets, inner_product
from lightleak.attacks.gradient_inversion.matrix_products import MatrixProducts
from lightleak.attacks.gradient_inversion.objective import Objective


class MLPMatcher:
    """A chain of Linear and ReLU layers under mean cross-entropy, in closed form.

    With ``a_l = h_{l-1} W_l^T + b_l``, ``h_l = relu(a_l)``, ``m_l = 1[a_l > 0]`` and ``e_l`` the derivative of the loss
    by ``a_l``: ``e_L = (softmax(a_L) - y) / n``, ``e_l = (e_{l+1} W_{l+1}) m_l``, and the gradients are
    ``G_l = e_l^T h_{l-1}``. The reverse pass carries the derivative of the objective by every ``G_l`` back to
    ``h_0 = x``; masks are constant.

    Args:
        weights: per layer ``[updates, out, in]``.
        biases: per layer ``[updates, out]``.
        weight_targets: observed gradients of the weights, ``[updates, out, in]``.
        bias_targets: observed gradients of the biases, ``[updates, out]``.
        labels: LongTensor ``[updates, n]``.
        objective: distance of gradients.
        products: in which precision matrices are multiplied.
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
    ) -> None:
        self.products = products or MatrixProducts()
        self.weights, self.biases = [self.products.rounded(w) for w in weights], [b.unsqueeze(1) for b in biases]
        self.transposed = [w.transpose(1, 2).contiguous() for w in self.weights]
        self.weight_targets, self.bias_targets = list(weight_targets), [t.unsqueeze(1) for t in bias_targets]
        self.targets = Targets([*weight_targets, *bias_targets])
        self.one_hot = one_hot(labels, biases[-1].shape[-1]).to(weights[0].dtype).unsqueeze(1)
        self.objective = objective

    @torch.no_grad()
    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `Matcher`."""
        updates, restarts, n, _ = x.shape
        depth, products = len(self.weights), self.products
        hidden, masks = [products.rounded(x.reshape(updates, restarts * n, -1))], []
        for weight, bias in zip(self.transposed[:-1], self.biases[:-1], strict=True):
            activation = products.baddbmm(bias, hidden[-1], weight)
            masks.append((activation > 0).to(x.dtype))
            hidden.append(products.rounded(activation.relu_()))
        probabilities = products.baddbmm(self.biases[-1], hidden[-1], self.transposed[-1]).softmax(-1)
        error = (probabilities.view(updates, restarts, n, -1) - self.one_hot).div_(n).view_as(probabilities)
        errors = [error]
        for i in range(depth - 1, 0, -1):
            error = products.bmm(error, self.weights[i]).mul_(masks[i - 1])
            errors.insert(0, error)

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
        # Back through the errors, from the first layer up ...
        for i in range(1, depth):
            products.baddbmm_(by_errors[i], by_errors[i - 1].mul_(masks[i - 1]), self.transposed[i])
        by_error = by_errors[-1].div_(n)
        # ... through the softmax, and down through the activations.
        by_activation = probabilities * (by_error - (probabilities * by_error).sum(-1, keepdim=True))
        for i in range(depth - 1, 0, -1):
            by_activation = products.baddbmm_(by_hidden[i], by_activation, self.weights[i]).mul_(masks[i - 1])
        return value, products.baddbmm_(by_hidden[0], by_activation, self.weights[0]).view_as(x)


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
