"""All free numbers of all rows moved together: damped Gauss-Newton on the residual, ReLU's masks held fixed.

Every column of the Jacobian is a sum of two products of two vectors, of what a number does to a layer's inputs and to
its errors, and its inner products are products of inner products: it is never formed.
"""

from dataclasses import replace

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.joint.atoms import Terms
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows

DAMPINGS = (1e-8, 1e-3, 3e-2, 1.0)
"""Tried in this order until the distance falls, as parts of the diagonal: the first is Newton's step but for rounding,
the last a short step down the gradient where a mask would change."""

FLOOR = 1e-12
"""Part of the largest diagonal element added to all: columns of numbers that change nothing would be singular."""

LEAST_FACTOR = 1.005
"""Stop when a step lowers the distance by less than this factor."""

AT_BOUND = 1e-9
"""A number this near to a bound that the step would leave stays there."""


def gauss_newton(
    problem: JointProblem, rows: JointRows, steps: int, columns: tuple[int, ...] | None = None
) -> tuple[JointRows, float]:
    """Rows with better numbers, and their relative value (`JointProblem.value`), never above that of ``rows``.

    Args:
        problem: what rows are held against; its prior is not looked at.
        rows: where to start.
        steps: at most so many.
        columns: which free numbers may move; default all.
    """
    value = problem.value(rows)
    if not problem.space.free:
        return rows, value
    for _ in range(steps):
        normal, slope = _normal_equations(problem, rows)
        moved = _best_step(problem, rows, value, normal, slope, columns)
        if moved is None:
            break
        before, (rows, value) = value, moved
        if value * LEAST_FACTOR > before:
            break
    return rows, value


def _best_step(
    problem: JointProblem,
    rows: JointRows,
    value: float,
    normal: Tensor,
    slope: Tensor,
    columns: tuple[int, ...] | None,
) -> tuple[JointRows, float] | None:
    space, numbers = problem.space, rows.numbers
    by_cell = slope.view_as(numbers)
    low = (numbers <= space.lower + AT_BOUND) & (by_cell < 0)
    stuck = low | ((numbers >= space.upper - AT_BOUND) & (by_cell > 0))
    if columns is not None:
        others = [q for q in range(numbers.shape[1]) if q not in columns]
        stuck[:, others] = True
    free = (~stuck).flatten().nonzero().flatten()
    if len(free) == 0:
        return None
    diagonal = normal.diagonal()[free]
    reduced = normal[free][:, free] + FLOOR * normal.diagonal().max() * torch.eye(len(free)).to(normal)
    for damping in DAMPINGS:
        solved, failed = torch.linalg.solve_ex(reduced + torch.diag(damping * diagonal), slope[free])
        if bool(failed) or not bool(solved.isfinite().all()):
            continue
        step = torch.zeros_like(slope)
        step[free] = solved
        tried = replace(rows, numbers=space.clamp(numbers + step.view_as(numbers)))
        reached = problem.value(tried)
        if reached < value:
            return tried, reached
    return None


def _normal_equations(problem: JointProblem, rows: JointRows) -> tuple[Tensor, Tensor]:
    """``J^T J`` ``[n F, n F]`` and ``J^T r`` ``[n F]`` under the kernels, J the derivative of what rows explain."""
    terms = problem.terms(rows.codes, rows.numbers)
    coefficients = terms.of_labels(rows.labels, problem.n_rows)
    explained = terms.gradient(coefficients)
    applied = problem.kernels.apply(tuple(t - e for t, e in zip(problem.target, explained, strict=True)))
    normal: Tensor | float = 0.0
    slope: Tensor | float = 0.0
    factors = _jacobian_factors(problem, terms, coefficients)
    for (left, right), residual, a, b in zip(
        factors, applied, problem.kernels.left, problem.kernels.right, strict=True
    ):
        slope = slope + ((left @ residual) * right).sum((0, 2))
        left_a = left if a is None else left @ a
        right_b = right if b is None else right @ b
        for one_left, one_right in zip(left_a, right_b, strict=True):
            for other_left, other_right in zip(left, right, strict=True):
                normal = normal + (one_left @ other_left.T) * (one_right @ other_right.T)
    assert isinstance(normal, Tensor) and isinstance(slope, Tensor)  # a network has a layer
    return normal, slope


def _jacobian_factors(problem: JointProblem, terms: Terms, coefficients: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Per layer the factors of J's columns: ``[2 T, n F, out]`` and ``[2 T, n F, in + 1]``, to multiply and sum.

    Column (row, number) of layer l is ``sum_t e_l (dh_{l-1}, 0)^T + de_l (h_{l-1}, 1)^T``.
    """
    nodes, step = problem.nodes, problem.space.rows.numbers
    count, free = len(coefficients), len(step)
    moved = step.expand(len(nodes.shares), count, -1, -1)
    by_hidden, before = [moved], []
    for weight, slope in zip(nodes.weights[:-1], terms.slopes, strict=True):
        before.append(moved @ weight.transpose(1, 2).unsqueeze(1))
        moved = before[-1] * slope.unsqueeze(2)
        by_hidden.append(moved)
    logits = moved @ nodes.weights[-1].transpose(1, 2).unsqueeze(1)
    p = terms.probabilities.unsqueeze(2)
    by_output = (p * (logits - (p * logits).sum(-1, keepdim=True)))[..., :-1]
    by_output = by_output * (nodes.shares / problem.n_rows)[:, None, None, None]
    factors, own_errors = [], terms.weighted(coefficients)
    bent = _bent_errors(problem, terms, own_errors, before)
    for layer, (own, errors, hidden, change) in enumerate(
        zip(own_errors, terms.errors, terms.hidden, by_hidden, strict=True)
    ):
        error_change = by_output @ errors
        if layer < len(bent):
            error_change = error_change + bent[layer]
        zero = torch.zeros_like(change[..., :1])
        left = torch.cat([own.unsqueeze(2).expand(-1, -1, free, -1), error_change])
        right = torch.cat([torch.cat([change, zero], -1), hidden.unsqueeze(2).expand(-1, -1, free, -1)])
        factors.append((left.flatten(1, 2), right.flatten(1, 2)))
    return factors


def _bent_errors(
    problem: JointProblem, terms: Terms, own: tuple[Tensor, ...], before: list[Tensor]
) -> tuple[Tensor, ...]:
    """What changes of slopes do to the hidden layers' errors ``[T, n, F, out]``; empty where slopes do not change.

    Args:
        problem: for its networks.
        terms: of the rows.
        own: ``e_l`` of the rows with their labels.
        before: changes of the preactivations by every number ``[T, n, F, out]``.
    """
    nodes = problem.nodes
    if nodes.activation.smooth is None:
        return ()
    found: list[Tensor] = []
    for layer in range(nodes.depth - 2, -1, -1):
        weights = torch.cat([nodes.weights[layer], nodes.biases[layer].unsqueeze(-1)], -1)
        bend = nodes.activation.bend(terms.hidden[layer] @ weights.transpose(1, 2))
        above = nodes.weights[layer + 1]
        assert bend is not None  # it is smooth
        changed = ((own[layer + 1] @ above) * bend).unsqueeze(2) * before[layer]
        if found:
            changed = changed + (found[0] @ above.unsqueeze(1)) * terms.slopes[layer].unsqueeze(2)
        found.insert(0, changed)
    return tuple(found)
