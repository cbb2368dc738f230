"""The numbers of a few rows fitted together, from many starts at once, where categories and labels are given.

Rows that share every mask cannot be found one by one: a deeper layer shows only a weighted sum of them. Together they
must explain what is left of the gradient in all layers, which is a least squares problem of few unknowns. A row's term
is a product ``e (h, 1)^T`` of vectors that are smooth in its numbers, so the products of the Jacobian's columns are
products of inner products, and no gradient of a start is ever written down.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.spaces.residual import NOISE, Residual
from lightleak.attacks.gradient_inversion.network.row_network import RowNetwork, with_one
from lightleak.attacks.gradient_inversion.tables.by_row import ByRow
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain

FIRST_DAMPING, LEAST_DAMPING, MOST_DAMPING = 1e-2, 1e-14, 1e6
"""Of Levenberg's steps, as parts of the normal matrix's diagonal: ten times less after a step that helps, ten times
more after one that does not."""

FLOOR = 1e-13
"""Least part of the diagonal that is added to it: float64 keeps sixteen digits of the normal matrix."""


@dataclass(frozen=True)
class Groups(ByRow):
    """S readings of the same k rows, one after the other.

    Attributes:
        codes: LongTensor ``[S, k, K]``.
        numbers: float64 ``[S, k, F]``.
        labels: LongTensor ``[S, k]``.
    """

    codes: Tensor
    numbers: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Expansion:
    """Squared misfit of every reading, and its quadratic model in the numbers.

    Attributes:
        value: ``[S]``, in squared deviations of rounding.
        slope: ``J^T r`` ``[S, k F]``.
        normal: ``J^T J`` ``[S, k F, k F]``.
    """

    value: Tensor
    slope: Tensor
    normal: Tensor


@dataclass(frozen=True)
class GroupProblem:
    """What readings are held against.

    Attributes:
        network: float64.
        space: of the rows.
        target: what is left of the gradient ``[out, in + 1]`` per layer.
        noise: deviation of an element's rounding, per layer.
        n_rows: rows of the batch.
    """

    network: RowNetwork
    space: RowDomain
    target: tuple[Tensor, ...]
    noise: tuple[float, ...]
    n_rows: int

    @classmethod
    def of(cls, residual: Residual, space: RowDomain, target: tuple[Tensor, ...]) -> "GroupProblem":
        """Of rows that explain all of a gradient, or what is left of it."""
        noise = tuple(NOISE * float(layer.norm()) / layer.numel() ** 0.5 for layer in residual.observed)
        return cls(residual.network, space, target, noise, residual.n_rows)

    def value(self, groups: Groups) -> Tensor:
        """Squared misfit ``[S]``."""
        return self.expand(groups, derivatives=False).value

    def expand(self, groups: Groups, derivatives: bool = True) -> Expansion:
        """The misfit and, if asked, its derivatives by all numbers; masks of ReLU are fixed."""
        network, space = self.network, self.space
        n, k, free = groups.numbers.shape
        activations = network.forward(space.rows.of(groups.codes, groups.numbers))
        p = activations.probabilities
        counts = torch.nn.functional.one_hot(groups.labels, network.n_classes).to(p)
        errors = network.errors_of_rows(activations, counts, self.n_rows)
        hidden = tuple(with_one(h) for h in activations.hidden)
        value = p.new_zeros(n)
        slope, normal = p.new_zeros(n, k * free), p.new_zeros(n, k * free, k * free)
        factors = self._jacobian(activations, counts, errors, hidden) if derivatives else None
        for at, (e, h, target, noise) in enumerate(zip(errors, hidden, self.target, self.noise, strict=True)):
            weight = 1 / noise**2 if noise else 0.0  # a layer that was not sent
            cross = ((e @ target) * h).sum((1, 2))
            value += weight * (target.square().sum() - 2 * cross + (_gram(e, e) * _gram(h, h)).sum((1, 2)))
            if factors is None:
                continue
            left, right = factors[at]  # [S, 2 k F, out], [S, 2 k F, in + 1]
            toward = ((left @ target) * right).sum(-1) - (_gram(left, e) * _gram(right, h)).sum(-1)
            slope += weight * toward.unflatten(1, (2, -1)).sum(1)
            products = _gram(left, left) * _gram(right, right)
            normal += weight * products.unflatten(1, (2, -1)).sum(1).unflatten(-1, (2, -1)).sum(-2)
        return Expansion(value, slope, normal)

    def _jacobian(
        self, activations: Any, counts: Tensor, errors: tuple[Tensor, ...], hidden: tuple[Tensor, ...]
    ) -> list[tuple[Tensor, Tensor]]:
        """Per layer two factors of every column: ``e (dh, 0)^T + de (h, 1)^T``."""
        network, steps = self.network, self.space.rows.numbers
        free = len(steps)
        by_hidden = network.slopes(activations, steps)
        by_errors = network.error_slopes(activations, counts, steps, self.n_rows)
        factors = []
        for e, h, de, dh in zip(errors, hidden, by_errors, by_hidden, strict=True):
            left = torch.stack([e.unsqueeze(2).expand(-1, -1, free, -1), de], 1)
            dh = torch.cat([dh, torch.zeros_like(dh[..., :1])], -1)
            right = torch.stack([dh, h.unsqueeze(2).expand(-1, -1, free, -1)], 1)
            factors.append((left.flatten(1, 3), right.flatten(1, 3)))
        return factors


def fit(problem: GroupProblem, groups: Groups, steps: int, held: Tensor | None = None) -> tuple[Groups, Tensor]:
    """Levenberg-Marquardt on every reading alone.

    Args:
        problem: what readings are held against.
        groups: where to start.
        steps: tried by each.
        held: numbers that must not move, bool ``[k, F]``; default none.

    Returns:
        Readings that fit no worse, and their misfit ``[S]``.
    """
    space, n = problem.space, len(groups.codes)
    free = torch.ones_like(groups.numbers[0], dtype=torch.bool) if held is None else ~held
    at = free.flatten().nonzero().flatten()
    if not len(at):
        return groups, problem.value(groups)
    expansion = problem.expand(groups)
    damping = expansion.value.new_full((n,), FIRST_DAMPING)
    for _ in range(steps):
        normal, slope = expansion.normal[:, at][:, :, at], expansion.slope[:, at]
        diagonal = normal.diagonal(dim1=1, dim2=2)
        ridge = damping.unsqueeze(1) * diagonal + FLOOR * diagonal.amax(1, keepdim=True)
        solved, _ = torch.linalg.solve_ex(normal + torch.diag_embed(ridge), slope)
        change = torch.zeros_like(expansion.slope).index_copy(1, at, solved.nan_to_num())
        tried = replace(groups, numbers=space.clamp(groups.numbers + change.view_as(groups.numbers)))
        reached = problem.expand(tried)
        better = reached.value < expansion.value
        groups = replace(groups, numbers=torch.where(better[:, None, None], tried.numbers, groups.numbers))
        expansion = Expansion(
            torch.where(better, reached.value, expansion.value),
            torch.where(better[:, None], reached.slope, expansion.slope),
            torch.where(better[:, None, None], reached.normal, expansion.normal),
        )
        damping = torch.where(better, damping / 10, damping * 10).clamp(LEAST_DAMPING, MOST_DAMPING)
    return groups, expansion.value


def _gram(one: Tensor, other: Tensor) -> Tensor:
    return one @ other.transpose(-1, -2)
