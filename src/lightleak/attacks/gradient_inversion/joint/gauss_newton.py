"""All free numbers of all rows moved together: damped Gauss-Newton on the residual, ReLU's masks held fixed.

Every column of the Jacobian is a sum of two products of two vectors, of what a number does to a layer's inputs and to
its errors, and its inner products are products of inner products: it is never formed. Whole numbers of a
solved batch are rounded column by column, the others fitted again around them.
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

NEWTON_STEPS = 6
"""Gauss-Newton steps between two columns that are rounded."""

RISE = 4.0
"""A column stays rounded as long as the distance does not become this many times as large."""


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
    """``J^T J`` ``[n F, n F]`` and ``J^T r`` ``[n F]`` under the kernels, J the derivative of what rows explain.

    Column (row, number) of layer l is ``sum_t e_l (dh_{l-1}, 0)^T + de_l (h_{l-1}, 1)^T`` over the nodes. Its first and
    last factor are the same for all numbers of a row, so that their inner products are taken once a row.
    """
    terms = problem.terms(rows.codes, rows.numbers)
    coefficients = terms.of_labels(rows.labels, problem.n_rows)
    explained = terms.gradient(coefficients)
    applied = problem.kernels.apply(tuple(t - e for t, e in zip(problem.target, explained, strict=True)))
    count, free = rows.numbers.shape
    normal = rows.numbers.new_zeros(count, free, count, free)
    slope = rows.numbers.new_zeros(count, free)
    for factors, residual, a, b in zip(
        _jacobian_factors(problem, terms, coefficients),
        applied,
        problem.kernels.left,
        problem.kernels.right,
        strict=True,
    ):
        own, error_change, change, hidden = factors
        slope += ((own @ residual).unsqueeze(2) * change).sum((0, 3))
        slope += ((error_change @ residual) * hidden.unsqueeze(2)).sum((0, 3))
        for s in range(len(own)):
            # The other triangle of nodes is the transpose of this one.
            for t in range(s + 1):
                product = _inner(own[s], own[t], a)[:, None, :, None] * _inner(change[s], change[t], b)
                of_hidden = _inner(hidden[s], hidden[t], b)[:, None, :, None]
                product += of_hidden * _inner(error_change[s], error_change[t], a)
                product += _inner(own[s], error_change[t], a)[:, None] * _inner(change[s], hidden[t], b).unsqueeze(-1)
                product += _inner(error_change[s], own[t], a).unsqueeze(-1) * _inner(hidden[s], change[t], b)[:, None]
                normal += product
                if s != t:
                    normal += product.permute(2, 3, 0, 1)
    return normal.view(count * free, count * free), slope.flatten()


def _inner(one: Tensor, other: Tensor, kernel: Tensor | None) -> Tensor:
    """``<one, K other>`` of all vectors, the last dimension aside: ``[..., ...]``."""
    flat, others = one.flatten(0, -2), other.flatten(0, -2)
    products = (flat if kernel is None else flat @ kernel) @ others.T
    return products.view(*one.shape[:-1], *other.shape[:-1])


def _jacobian_factors(problem: JointProblem, terms: Terms, coefficients: Tensor) -> list[tuple[Tensor, ...]]:
    """Per layer the factors of J's columns at the T nodes.

    They are ``e_l`` ``[T, n, out]``, ``de_l`` ``[T, n, F, out]``, ``(dh_{l-1}, 0)`` ``[T, n, F, in + 1]`` and
    ``(h_{l-1}, 1)`` ``[T, n, in + 1]``.
    """
    nodes, step = problem.nodes, problem.space.rows.numbers
    moved = step.expand(len(nodes.shares), len(coefficients), -1, -1)
    by_hidden, before = [moved], []
    for weight, slope in zip(nodes.weights[:-1], terms.slopes, strict=True):
        before.append(moved @ weight.transpose(1, 2).unsqueeze(1))
        moved = before[-1] * slope.unsqueeze(2)
        by_hidden.append(moved)
    logits = moved @ nodes.weights[-1].transpose(1, 2).unsqueeze(1)
    p = terms.probabilities.unsqueeze(2)
    by_output = (p * (logits - (p * logits).sum(-1, keepdim=True)))[..., :-1]
    by_output = by_output * (nodes.shares / problem.n_rows)[:, None, None, None]
    factors: list[tuple[Tensor, ...]] = []
    own_errors = terms.weighted(coefficients)
    bent = _bent_errors(problem, terms, own_errors, before)
    for layer, (own, errors, hidden, change) in enumerate(
        zip(own_errors, terms.errors, terms.hidden, by_hidden, strict=True)
    ):
        error_change = by_output @ errors
        if layer < len(bent):
            error_change = error_change + bent[layer]
        factors.append((own, error_change, torch.nn.functional.pad(change, (0, 1)), hidden))
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


def round_integers(problem: JointProblem, rows: JointRows, floor: float) -> tuple[JointRows, float]:
    """A solved batch's rows with whole numbers, the others fitted again around them, and their relative distance.

    Columns of few values go first: for them rounding is sure, and the wide ones, whose units hardly show in a float32
    gradient, are then fitted without the others' errors. A column whose rounding lifts the distance stays as it was.

    Args:
        problem: what rows are held against.
        rows: a solved batch.
        floor: relative distance that rounding of float32 leaves anyway.
    """
    space, value = problem.space, problem.value(rows)
    columns = [q for q in range(len(space.free)) if bool(space.integer[q])]
    columns.sort(key=lambda q: float(space.unit[q]))
    left = set(range(len(space.free)))
    for q in columns:
        tried = replace(rows, numbers=space.rounded(rows.numbers, q))
        left.discard(q)
        tried, reached = (
            gauss_newton(problem, tried, NEWTON_STEPS, tuple(sorted(left))) if left else (tried, problem.value(tried))
        )
        if reached <= max(RISE * value, floor):
            rows, value = tried, reached
    return rows, value
