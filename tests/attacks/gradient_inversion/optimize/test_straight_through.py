"""Masks with a derivative: the slope is a logistic's, and the closed form equals autograd through a custom function."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from lightleak.attacks.gradient_inversion.optimize.mlp_matcher import MLPMatcher
from lightleak.attacks.gradient_inversion.optimize.objective import OBJECTIVES
from lightleak.attacks.gradient_inversion.optimize.straight_through import StraightThrough
from lightleak.attacks.gradient_inversion.optimize.whitening import Whitening, maps_of

UPDATES, RESTARTS, SHARE = 2, 3, 0.4


class Mask(torch.autograd.Function):
    """``1[a > 0]`` whose derivative is that of a logistic."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, width: float) -> Tensor:
        ctx.save_for_backward(a)
        ctx.width = width
        return (a > 0).to(a.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (a,) = ctx.saved_tensors
        inside = torch.sigmoid(a / ctx.width)
        return grad * inside * (1 - inside) / ctx.width, None


class Case:
    """A chain of these widths, its observed gradients, and candidates, all random."""

    def __init__(self, widths: tuple[int, ...], n: int, whitened: bool) -> None:
        self.draws = torch.Generator().manual_seed(sum(widths) + n)
        pairs = list(pairwise(widths))
        self.weights, self.weight_targets = ([self.random(UPDATES, o, i) for i, o in pairs] for _ in range(2))
        self.biases, self.bias_targets = ([self.random(UPDATES, o) for _, o in pairs] for _ in range(2))
        self.labels = torch.randint(widths[-1], (UPDATES, n), generator=self.draws)
        self.x = self.random(UPDATES, RESTARTS, n, widths[0])
        self.straight = StraightThrough(0.5 + self.random(UPDATES, len(pairs) - 1).abs(), 0.5, 0.1).at(SHARE)
        self.whitening: Whitening | None = None
        if whitened:
            rows = [[(self.random(40, o), self.random(40, i + 1)) for i, o in pairs] for _ in range(UPDATES)]
            moments = [[maps_of(e, h, 1e-2) for e, h in of_update] for of_update in rows]
            self.whitening = Whitening.of(moments, [self.joined(layer) for layer in range(len(pairs))])

    def random(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.draws, dtype=torch.float64)

    def joined(self, layer: int) -> Tensor:
        """The observed ``[G gb]`` of a layer."""
        return torch.cat([self.weight_targets[layer], self.bias_targets[layer].unsqueeze(-1)], -1)

    def matcher(self) -> MLPMatcher:
        """The closed form."""
        given = self.weights, self.biases, self.weight_targets, self.bias_targets, self.labels
        straight = StraightThrough(self.straight.deviations, 0.5, 0.1)
        return MLPMatcher(*given, OBJECTIVES["relative_error"], None, straight, self.whitening)

    def loss(self, update: int, x: Tensor) -> Tensor:
        """The loss of one candidate from its definition, on autograd's graph."""
        depth, width = len(self.weights), 0.5 * (0.1 / 0.5) ** SHARE
        hidden, masks = [x], []
        for layer in range(depth - 1):
            a = hidden[-1] @ self.weights[layer][update].T + self.biases[layer][update]
            masks.append(Mask.apply(a, width * float(self.straight.deviations[update, layer])))
            hidden.append(a.relu())
        p = (hidden[-1] @ self.weights[-1][update].T + self.biases[-1][update]).softmax(-1)
        errors = [(p - one_hot(self.labels[update], p.shape[-1])) / len(x)]
        for layer in range(depth - 1, 0, -1):
            errors.insert(0, (errors[0] @ self.weights[layer][update]) * masks[layer - 1])
        found = [torch.cat([e.T @ h, e.sum(0).unsqueeze(-1)], -1) for e, h in zip(errors, hidden, strict=True)]
        targets = [self.joined(layer)[update] for layer in range(depth)]
        differences = [g - t for g, t in zip(found, targets, strict=True)]
        return self.squared(update, differences) / self.squared(update, targets)

    def squared(self, update: int, layers: list[Tensor]) -> Tensor:
        """The squared length that the loss is made of."""
        if self.whitening is None:
            return torch.stack([d.square().sum() for d in layers]).sum()
        maps = zip(layers, self.whitening.errors, self.whitening.inputs, strict=True)
        return torch.stack([(e[update, 0] @ d @ h[update, 0] * d).sum() for d, e, h in maps]).sum()


@pytest.mark.parametrize("whitened", [False, True], ids=["plain", "whitened"])
@pytest.mark.parametrize("n", [2, 9])
@pytest.mark.parametrize("widths", [(7, 2), (7, 6, 2), (7, 9, 8, 3), (5, 6, 7, 6, 4)], ids=str)
def test_the_closed_form_equals_autograd(widths: tuple[int, ...], n: int, whitened: bool) -> None:
    case = Case(widths, n, whitened)
    matcher, before = case.matcher(), case.x.clone()
    value, derivative = matcher.at(SHARE).value_and_grad(case.x)
    for update in range(UPDATES):
        for restart in range(RESTARTS):
            leaf = case.x[update, restart].clone().requires_grad_()
            loss = case.loss(update, leaf)
            torch.testing.assert_close(value[update, restart], loss.detach(), rtol=1e-9, atol=1e-12)
            (expected,) = torch.autograd.grad(loss, leaf)
            torch.testing.assert_close(derivative[update, restart], expected, rtol=1e-7, atol=1e-10)
    again = matcher.at(SHARE).value_and_grad(case.x)  # nothing in the matcher was written into
    assert torch.equal(again[0], value) and torch.equal(again[1], derivative) and torch.equal(case.x, before)


def test_masks_without_width_leave_the_plain_derivative() -> None:
    case = Case((7, 9, 8, 3), 4, whitened=False)
    matcher = case.matcher()
    assert not torch.equal(matcher.value_and_grad(case.x)[1], matcher.at(1.0).value_and_grad(case.x)[1])
    matcher.straight_through = StraightThrough(case.straight.deviations, 1e-12, 1e-12)
    narrow = matcher.value_and_grad(case.x)
    matcher.straight_through = None
    plain = matcher.value_and_grad(case.x)
    torch.testing.assert_close(narrow, plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("share", "width"), [(0.0, 0.2), (0.5, 0.02), (1.0, 0.002)])
def test_the_slope_is_a_logistics_of_a_width_that_narrows_geometrically(share: float, width: float) -> None:
    deviations = torch.tensor([[1.0, 3.0], [2.0, 0.5]], dtype=torch.float64)
    straight = StraightThrough(deviations, 0.2, 0.002).at(share)
    a = torch.linspace(-0.5, 0.5, 21, dtype=torch.float64).expand(2, 1, -1).clone().requires_grad_()
    for layer in range(2):
        logistic = torch.sigmoid(a / (width * deviations[:, layer, None, None]))
        (expected,) = torch.autograd.grad(logistic.sum(), a)
        torch.testing.assert_close(straight.slope(layer, a.detach()), expected)


def test_repeated_widths_stand_update_by_update() -> None:
    straight = StraightThrough(torch.tensor([[1.0], [2.0]]), 0.2, 0.02)
    assert straight.repeated(3).deviations.flatten().tolist() == [1, 1, 1, 2, 2, 2]


def test_a_layer_without_spread_divides_by_nothing() -> None:
    straight = StraightThrough(torch.zeros(1, 1), 0.2, 0.02)
    assert straight.slope(0, torch.tensor([[[-1.0, 1.0]]])).isfinite().all()
