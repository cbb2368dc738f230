"""The cost of rows against lower and upper bounds on every element of a gradient.

A sign says that an element lies above or below zero, pruning that what was left out is no larger than what was sent,
a cut that an element is at least as large; an element that was sent unchanged has an interval of one point. A batch
whose gradient lies in all intervals explains what was sent. On the way there an element g between l and u, of typical
size s, costs ``log(1 + exp((g - u) / (f s))) + log(1 + exp((l - g) / (f s)))``: for a sign the logistic likelihood. The
factor f narrows: blurred intervals show the way to rows that are far off, sharp ones tell apart those that are near.
Rows that are compared one by one go by how far elements are beyond their intervals, which is what is left of the cost
as f vanishes and takes a quarter of the time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import softplus

from lightleak.attacks.gradient_inversion.joint.capacity import believed_rows
from lightleak.attacks.gradient_inversion.joint.kernels import Gradient
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows

FACTOR, FACTOR_END = 0.3, 0.03
"""f at the beginning and at the end. Measured on signs (Adult, seeds 70000 to 70002, 32 rows, two starts each), cells
right after the engine: 84% from 0.3 to 0.03, 83% with 0.1 throughout, 74% from 1 to 0.03, 72% with 0.03 throughout."""

BATCHES = 64
"""Believed batches behind the typical size of an element."""

LEAST_SIZE = 1e-3
"""Least typical size of an element, in the root mean square of its layer's."""

MOST_ELEMENTS = 2**24
"""Elements that are compared at once: 64 MB in float32."""

FAST_ELEMENTS = 2**19
"""The same on a CPU, whose cache holds them: 7 in place of 22 microseconds a candidate for a hidden layer of Adult."""


@dataclass(frozen=True)
class Intervals:
    """Where the elements of a gradient lie, and the cost of rows under that.

    Attributes:
        lowest: least value of every element ``[out, in + 1]`` per layer; minus infinity where none is known.
        highest: largest value, at least the least.
        sizes: typical size of every element, above 0.
        factor: f at the beginning.
        share: of the way from there to `FACTOR_END`.
    """

    lowest: Gradient
    highest: Gradient
    sizes: Gradient
    factor: float = FACTOR
    share: float = 0.0

    @classmethod
    def of(
        cls,
        problem: JointProblem,
        bounds: tuple[Gradient, Gradient],
        labels: Tensor,
        generator: torch.Generator,
    ) -> "Intervals":
        """Intervals of a problem's gradient; sizes by batches that are believed.

        Args:
            problem: with a prior.
            bounds: lowest and highest values.
            labels: how many rows of every class are believed ``[n]``.
            generator: a CPU generator.
        """
        squares = [torch.zeros_like(layer) for layer in problem.target]
        for _ in range(BATCHES):
            gradient = problem.gradient(believed_rows(problem, labels, len(labels), generator))
            squares = [total + layer.square() / BATCHES for total, layer in zip(squares, gradient, strict=True)]
        # A unit's and an input's own sizes stand in for half of what few batches say about an element.
        means = [max(float(of.mean()), torch.finfo(of.dtype).tiny) for of in squares]
        outer = [of.mean(1, keepdim=True) * of.mean(0) / mean for of, mean in zip(squares, means, strict=True)]
        sizes = [((one + other) / 2).sqrt() for one, other in zip(squares, outer, strict=True)]
        # A layer that believed rows leave silent is taken to be as large as the largest.
        typical = [float(size.square().mean().sqrt()) or max(means) ** 0.5 for size in sizes]
        least = [LEAST_SIZE * own for own in typical]
        return cls(*bounds, tuple(size.clamp_min(own) for size, own in zip(sizes, least, strict=True)))

    def at(self, share: float) -> Self:
        """The same after that share of the optimization; see `Annealed`."""
        return replace(self, share=share)

    def to(self, dtype: torch.dtype) -> Self:
        """The same in another precision."""
        lowest, highest, sizes = (tuple(t.to(dtype) for t in each) for each in (self.lowest, self.highest, self.sizes))
        return replace(self, lowest=lowest, highest=highest, sizes=sizes)

    @cached_property
    def _weights(self) -> Gradient:
        factor = self.factor * (FACTOR_END / self.factor) ** self.share
        return tuple(1 / (factor * size) for size in self.sizes)

    @cached_property
    def _scaled(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """The bounds in the elements' units."""
        each = zip(self.lowest, self.highest, self._weights, strict=True)
        return tuple((low * weight, high * weight) for low, high, weight in each)

    def __call__(self, gradients: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Cost ``[...]`` of gradients ``[..., out, in + 1]`` per layer, and derivatives by them."""
        values, derivatives = [], []
        for gradient, weight, (low, high) in zip(gradients, self._weights, self._scaled, strict=True):
            scaled = gradient * weight
            above, below = scaled - high, low - scaled
            values.append((softplus(above) + softplus(below)).sum((-1, -2)))
            derivatives.append((torch.sigmoid(above) - torch.sigmoid(below)) * weight)
        return torch.stack(values).sum(0), derivatives

    def _beyond(self, layer: int, scaled: Tensor) -> Tensor:
        """How far a layer's gradients ``[..., out, in + 1]``, in elements' units, are beyond the bounds ``[...]``."""
        low, high = self._scaled[layer]
        return (scaled - scaled.clamp(low, high)).flatten(-2).abs_().sum(-1)

    def beyond(self, gradient: Gradient) -> Tensor:
        """How far the elements are beyond their intervals, summed in the units of the cost."""
        each = enumerate(zip(gradient, self._weights, strict=True))
        return torch.stack([self._beyond(layer, own * weight) for layer, (own, weight) in each]).sum()

    def with_term(self, rest: Gradient, errors: Gradient, hidden: Gradient) -> Tensor:
        """`beyond` of a gradient to which each of m rows is added ``[m]``.

        Args:
            rest: the gradient without the row ``[out, in + 1]`` per layer.
            errors: ``e_l`` of the rows, with their labels ``[m, out]``.
            hidden: ``(h_{l-1}, 1)`` of the rows ``[m, in + 1]``.
        """
        layers = []
        for layer, (own, weight, e, h) in enumerate(zip(rest, self._weights, errors, hidden, strict=True)):
            size = max(1, (FAST_ELEMENTS if own.device.type == "cpu" else MOST_ELEMENTS) // own.numel())
            scaled = own * weight
            parts = [
                self._beyond(layer, torch.addcmul(scaled, some.unsqueeze(2), these.unsqueeze(1) * weight))
                for some, these in zip(e.split(size), h.split(size), strict=True)
            ]
            layers.append(torch.cat(parts))
        return reduce(torch.add, layers)

    def missed(self, gradient: Gradient) -> float:
        """Share of the elements that are beyond their intervals."""
        each = list(zip(gradient, self.lowest, self.highest, strict=True))
        return sum(int(((g < low) | (g > high)).sum()) for g, low, high in each) / sum(g.numel() for g, _, _ in each)


def objective(problem: JointProblem, intervals: Intervals, rows: JointRows) -> float:
    """How far the rows' gradient is beyond the intervals, plus the prior's share: the minimized cost."""
    beyond = float(intervals.beyond(problem.gradient(rows)))
    return beyond + problem.prior_weight * float(problem.penalties(rows.codes, rows.numbers).sum())
