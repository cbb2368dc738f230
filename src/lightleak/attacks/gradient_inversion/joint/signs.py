"""Rows held against the signs of a gradient: what a client sends that keeps one bit of every element.

A batch whose gradient has all signs explains what was sent. On the way there its elements are compared by a logistic
likelihood: an element g of typical size s, sent with the sign b, costs ``log(1 + exp(-b g / (f s)))``, which hardly
depends on how large g is once its sign is right. The factor f narrows: a blurred likelihood shows the way to rows that
are far off, a sharp one tells apart those that are near. An element that was sent as zero is zero in the gradient (a
unit that no row activates): it costs the sum of both signs' terms.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import log

import torch
from torch import Tensor
from torch.nn.functional import softplus

from lightleak.attacks.gradient_inversion.joint.capacity import believed_rows
from lightleak.attacks.gradient_inversion.joint.kernels import Gradient
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows

FACTOR, FACTOR_END = 0.3, 0.03
"""f at the beginning and at the end. Measured on Adult (seeds 70000 to 70002, 32 rows, two starts each), cells right
after the engine: 84% from 0.3 to 0.03, 83% with 0.1 throughout, 74% from 1 to 0.03, 72% with 0.03 throughout."""

BATCHES = 64
"""Believed batches behind the typical size of an element."""

LEAST_SIZE = 1e-3
"""Least typical size of an element, in the root mean square of its layer's."""

MOST_ELEMENTS = 2**24
"""Elements that are compared at once: 64 MB in float32."""


@dataclass(frozen=True)
class Signs:
    """The signs that were sent, and the likelihood of rows under them.

    Attributes:
        sent: -1, 0 or 1 of every element ``[out, in + 1]`` per layer.
        sizes: typical size of every element, above 0.
        share: of the way from `FACTOR` to `FACTOR_END`.
    """

    sent: Gradient
    sizes: Gradient
    share: float = 0.0

    @classmethod
    def of(cls, problem: JointProblem, labels: Tensor, generator: torch.Generator) -> "Signs":
        """The signs of a problem's target; sizes by batches that are believed.

        Args:
            problem: with a prior.
            labels: how many rows of every class are believed ``[n]``.
            generator: a CPU generator.
        """
        squares = [torch.zeros_like(layer) for layer in problem.target]
        for _ in range(BATCHES):
            gradient = gradient_of(problem, believed_rows(problem, labels, len(labels), generator))
            squares = [total + layer.square() / BATCHES for total, layer in zip(squares, gradient, strict=True)]
        # A unit's and an input's own sizes stand in for half of what few batches say about an element.
        outer = [of.mean(1, keepdim=True) * of.mean(0) / of.mean() for of in squares]
        sizes = [((one + other) / 2).sqrt() for one, other in zip(squares, outer, strict=True)]
        sizes = [size.clamp_min(LEAST_SIZE * float(size.square().mean().sqrt())) for size in sizes]
        return cls(tuple(layer.sign() for layer in problem.target), tuple(sizes))

    def at(self, share: float) -> "Signs":
        """The same after that share of the optimization; see `Annealed`."""
        return replace(self, share=share)

    def to(self, dtype: torch.dtype) -> "Signs":
        """The same in another precision."""
        sent, sizes = (tuple(t.to(dtype) for t in each) for each in (self.sent, self.sizes))
        return Signs(sent, sizes, self.share)

    @cached_property
    def _weights(self) -> Gradient:
        factor = FACTOR * (FACTOR_END / FACTOR) ** self.share
        return tuple(1 / (factor * size) for size in self.sizes)

    @cached_property
    def _signed(self) -> Gradient:
        return tuple(-sign * weight for sign, weight in zip(self.sent, self._weights, strict=True))

    @cached_property
    def _zeros(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Rows and columns of the elements that were sent as zero."""
        return tuple((sign == 0).nonzero(as_tuple=True) for sign in self.sent)  # type: ignore[misc]

    def _layer(self, layer: int, gradient: Tensor) -> Tensor:
        """Minus log likelihood ``[...]`` of one layer's gradients ``[..., out, in + 1]``."""
        value = softplus(gradient * self._signed[layer]).sum((-1, -2))
        rows, columns = self._zeros[layer]
        if len(rows):
            size = gradient[..., rows, columns] * self._weights[layer][rows, columns]
            value = value + (2 * softplus(size) - size - 3 * log(2)).sum(-1)
        return value

    def __call__(self, gradients: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Minus log likelihood ``[...]`` of gradients ``[..., out, in + 1]`` per layer, and derivatives by them."""
        values, derivatives = [], []
        for layer, gradient in enumerate(gradients):
            values.append(self._layer(layer, gradient))
            signed, weight = self._signed[layer], self._weights[layer]
            by_gradient = torch.sigmoid(gradient * signed) * signed
            rows, columns = self._zeros[layer]
            if len(rows):
                scale = weight[rows, columns]
                by_gradient[..., rows, columns] = scale * torch.tanh(gradient[..., rows, columns] * scale / 2)
            derivatives.append(by_gradient)
        return torch.stack(values).sum(0), derivatives

    def with_term(self, rest: Gradient, errors: Gradient, hidden: Gradient) -> Tensor:
        """Minus log likelihood ``[m]`` of a gradient to which each of m rows is added.

        Args:
            rest: the gradient without the row ``[out, in + 1]`` per layer.
            errors: ``e_l`` of the rows, with their labels ``[m, out]``.
            hidden: ``(h_{l-1}, 1)`` of the rows ``[m, in + 1]``.
        """
        total: Tensor | float = 0.0
        for layer, (own, e, h) in enumerate(zip(rest, errors, hidden, strict=True)):
            size = max(1, MOST_ELEMENTS // own.numel())
            parts = [
                self._layer(layer, own + some.unsqueeze(2) * these.unsqueeze(1))
                for some, these in zip(e.split(size), h.split(size), strict=True)
            ]
            total = total + torch.cat(parts)
        assert isinstance(total, Tensor)  # a network has a layer
        return total

    def missed(self, gradient: Gradient) -> float:
        """Share of the signs sent that a gradient does not have."""
        wrong = sum(int((g.sign() != s).sum()) for g, s in zip(gradient, self.sent, strict=True))
        return wrong / sum(s.numel() for s in self.sent)


def gradient_of(problem: JointProblem, rows: JointRows) -> Gradient:
    """The gradient of a batch, float64."""
    terms = problem.terms(rows.codes, rows.numbers)
    return terms.gradient(terms.of_labels(rows.labels, problem.n_rows))


def objective(problem: JointProblem, signs: Signs, rows: JointRows) -> float:
    """Minus log likelihood of the signs plus the prior's share: what descends."""
    value, _ = signs(gradient_of(problem, rows))
    return float(value) + problem.prior_weight * float(problem.penalties(rows.codes, rows.numbers).sum())


def are_signs(sent: Iterable[Tensor]) -> bool:
    """Whether the elements of every tensor have one size, but for zeros."""
    return all(bool(((part == 0) | (part.abs() == part.abs().max())).all()) for part in sent)
