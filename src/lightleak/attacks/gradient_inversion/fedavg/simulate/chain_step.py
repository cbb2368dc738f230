"""The fast path: a chain of linear layers and ReLUs under cross-entropy, forwards and backwards in closed form.

With ``h'_l = P_l(h_{l-1})`` (a fixed linear map, the identity in a fully connected network),
``a_l = h'_l W_l^T + b_l``, ``h_l = relu(a_l)``, ``m_l = 1[a_l > 0]`` and ``e_l`` the derivative of the loss by ``a_l``,
the gradient of a step is ``G_l = e_l^T h'_l``. The derivatives of ``<R, G>`` by weights and rows are the directional
derivatives of the loss's own gradients along ``R``, since second derivatives commute: one more forward and backward,
of tangents,

    a*_l = P_l(h*_{l-1}) W_l^T + h'_l R_l^T + r_l,    h*_l = m_l a*_l,    e*_L = p (a*_L - <p, a*_L>) / rows,
    e*_l = P_{l+1}^T(e*_{l+1} W_{l+1} + e_{l+1} R_{l+1}) m_l,    G*_l = e*_l^T h'_l + e_l^T P_l(h*_{l-1}).

So a step costs three times its forward and backward, and no autograd graph is ever built.

With straight-through masks, of derivative ``m'_l``, G is taken for the gradient of no loss. Then the tangents are to be
read as reverse mode: ``a*_l`` is the derivative by ``e_l`` and ``e*_l`` that by ``a_l``, which has
``a*_l P_{l+1}^T(e_{l+1} W_{l+1}) m'_l`` added.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from lightleak.attacks.gradient_inversion.fedavg.simulate.local_step import Weights
from lightleak.attacks.gradient_inversion.optimize.straight_through import StraightThrough


class LinearMap(Protocol):
    """A fixed linear map between what one layer gives and what the next one takes.

    Layers work on ``[clients, rows * places, features]``: a fully connected layer has one place, a convolution one per
    pixel it gives.
    """

    def __call__(self, values: Tensor, rows: int) -> Tensor:
        """Apply it."""

    def adjoint(self, values: Tensor, rows: int) -> Tensor:
        """Apply its transpose."""


@dataclass(frozen=True)
class Trace:
    """What a step's forward and backward leave for the way back; lists go by layer.

    Attributes:
        weights: as they were before the step.
        inputs: ``h'_l``.
        masks: ``m_l`` of the hidden layers.
        errors: ``e_l``.
        probabilities: of the classes, ``[clients, rows, classes]``.
        bends: with straight-through masks the derivative of ``e_l`` by ``a_l``, cell by cell, of the hidden layers.
    """

    weights: Weights
    inputs: list[Tensor]
    masks: list[Tensor]
    errors: list[Tensor]
    probabilities: Tensor
    bends: list[Tensor] = field(default_factory=list)


class ChainStep:
    """Linear layers (in the sense above) with ReLUs between them.

    Weights alternate: weight ``[clients, out, in]`` and bias ``[clients, out]`` of every layer, first layer first; a
    convolution's weight is its kernel, flattened by `flat` and `shaped` of the caller.

    Args:
        maps: ``P_l`` per layer; None is the identity.
        straight_through: derivative of the masks, its deviations ``[clients, layers]``; None: zero.
    """

    def __init__(self, maps: Sequence[LinearMap | None], straight_through: StraightThrough | None = None) -> None:
        self.maps, self.straight_through = tuple(maps), straight_through

    @property
    def repeats(self) -> bool:
        """See `Repeating`."""
        return self.straight_through is None

    def at(self, share: float) -> "ChainStep":
        """This step after that share of the optimization; see `Annealed`."""
        if self.straight_through is None:
            return self
        moved = copy.copy(self)
        moved.straight_through = self.straight_through.at(share)
        return moved

    @torch.no_grad()
    def run(self, weights: Weights, x: Tensor, labels: Tensor) -> Trace:
        """See `LocalStep`."""
        rows, last = x.shape[1], len(self.maps) - 1
        inputs, masks, slopes, value = [], [], [], x
        for layer, (weight, bias) in enumerate(_pairs(weights)):
            value = self._into(layer, value, rows)
            inputs.append(value)
            value = torch.baddbmm(bias.unsqueeze(1), value, weight.transpose(1, 2))
            if layer < last:
                masks.append((value > 0).to(value.dtype))
                if self.straight_through is not None:
                    slopes.append(self.straight_through.slope(layer, value))
                value = value.relu_()
        probabilities = value.softmax(-1)
        errors = [(probabilities - one_hot(labels, value.shape[-1])).div_(rows)]
        for layer in range(last, 0, -1):
            unmasked = self._back(layer, torch.bmm(errors[-1], weights[2 * layer]), rows)
            if slopes:
                slopes[layer - 1].mul_(unmasked)
            errors.append(unmasked.mul_(masks[layer - 1]))
        errors.reverse()
        return Trace(weights, inputs, masks, errors, probabilities, slopes)

    @torch.no_grad()
    def gradient(self, trace: Trace) -> Weights:
        """See `LocalStep`."""
        found: Weights = []
        for error, hidden in zip(trace.errors, trace.inputs, strict=True):
            found += [torch.bmm(error.transpose(1, 2), hidden), error.sum(1)]
        return found

    @torch.no_grad()
    def descended(self, trace: Trace, rate: float) -> Weights:
        """See `LocalStep`; the gradient is never formed, as memory traffic is what a step of few rows costs."""
        moved: Weights = []
        for (weight, bias), error, hidden in zip(_pairs(trace.weights), trace.errors, trace.inputs, strict=True):
            moved.append(torch.baddbmm(weight, error.transpose(1, 2), hidden, alpha=-rate))
            moved.append(torch.sub(bias, error.sum(1), alpha=rate))
        return moved

    @torch.no_grad()
    def pullback(self, trace: Trace, direction: Weights, by_weights: Weights, factor: float) -> Tensor:
        """See `LocalStep`."""
        weights, inputs, errors, p = trace.weights, trace.inputs, trace.errors, trace.probabilities
        rows, last = p.shape[1], len(self.maps) - 1
        tangent: Tensor | None = None  # of a layer's input; the rows themselves have none
        tangents: list[Tensor | None] = []
        moved = p  # of a layer's output
        for layer, (along, shift) in enumerate(_pairs(direction)):
            tangents.append(tangent)
            moved = torch.baddbmm(shift.unsqueeze(1), inputs[layer], along.transpose(1, 2))
            if tangent is not None:
                moved.baddbmm_(tangent, weights[2 * layer].transpose(1, 2))
            if layer < last:
                if trace.bends:
                    trace.bends[layer].mul_(moved)
                tangent = self._into(layer + 1, moved.mul_(trace.masks[layer]), rows)
        error = (moved - (p * moved).sum(-1, keepdim=True)).mul_(p).div_(rows)
        for layer in range(last, -1, -1):
            # Before the running derivative is changed: it may be the direction.
            below = torch.bmm(error, weights[2 * layer]).baddbmm_(errors[layer], direction[2 * layer])
            own, of_input = by_weights[2 * layer], tangents[layer]
            own.baddbmm_(error.transpose(1, 2), inputs[layer], alpha=factor)
            if of_input is not None:
                own.baddbmm_(errors[layer].transpose(1, 2), of_input, alpha=factor)
            by_weights[2 * layer + 1].add_(error.sum(1), alpha=factor)
            error = self._back(layer, below, rows)
            if layer > 0:
                error = error.mul_(trace.masks[layer - 1])
                if trace.bends:
                    error.add_(trace.bends[layer - 1])
        return error * factor

    def _into(self, layer: int, values: Tensor, rows: int) -> Tensor:
        linear = self.maps[layer]
        return values if linear is None else linear(values, rows)

    def _back(self, layer: int, values: Tensor, rows: int) -> Tensor:
        linear = self.maps[layer]
        return values if linear is None else linear.adjoint(values, rows)


def _pairs(weights: Weights) -> list[tuple[Tensor, Tensor]]:
    return list(zip(weights[0::2], weights[1::2], strict=True))
