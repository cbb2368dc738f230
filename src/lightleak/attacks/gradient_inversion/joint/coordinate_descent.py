"""Rows improved one by one: every change of a single cell, with every label, is measured exactly.

Taking a row out of the batch leaves the residual R; another row c·atom in its place makes the squared distance
``|R|^2 - 2 c <atom, R> + c^2 |atom|^2``. All candidates of a row are measured in one batch, and the best is taken.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.joint.atoms import Terms
from lightleak.attacks.gradient_inversion.joint.kernels import Gradient, Kernels, gram, inner
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain

LEAST_GAIN = 1e-9
"""Part of a row's energy that a change must gain at least: less is rounding, and would move rows for ever."""

LOCAL_DECADES = 2.5
"""A number's local moves are Gaussian, of deviations spread over as many powers of ten below 1."""


TINY = 1e-7
"""Uniform draws keep this far from 0 and 1, whose Gumbel values are infinite."""


@dataclass(frozen=True)
class Moves:
    """Which values are tried for a number, in addition to its lower bound and one value anywhere between the bounds.

    Attributes:
        near: random steps from its own value.
        wide: draws from a standard Gaussian.
    """

    near: int = 8
    wide: int = 4


def descend(
    problem: JointProblem,
    rows: JointRows,
    sweeps: int,
    generator: torch.Generator,
    moves: Moves = Moves(),
    labels_free: bool = True,
    dtype: torch.dtype = torch.float32,
    temperature: float = 0.0,
) -> JointRows:
    """Sweep over all rows in random order until a sweep changes nothing.

    Args:
        problem: what rows are held against.
        rows: where to start.
        sweeps: at most so many.
        generator: a CPU generator.
        moves: of the numbers.
        labels_free: try every label too; else each row keeps its own.
        dtype: precision in which candidates are measured; the residual is taken anew in float64 before every sweep.
        temperature: draw a candidate with weight ``exp(-objective / temperature)`` (by Gumbel noise) in place of the
            best, to leave poor minima; 0 takes the best.
    """
    for _ in range(sweeps):
        rows, changed = _sweep(problem, rows, generator, moves, labels_free, dtype, temperature)
        if not changed:
            break
    return rows


def _sweep(
    problem: JointProblem,
    rows: JointRows,
    generator: torch.Generator,
    moves: Moves,
    labels_free: bool,
    dtype: torch.dtype,
    temperature: float,
) -> tuple[JointRows, int]:
    """One pass over the rows, and how many of them changed."""
    kernels = problem.kernels.to(dtype)
    applied = tuple(r.to(dtype) for r in problem.kernels.apply(problem.residual(rows)))
    codes, numbers, labels = rows.codes.clone(), rows.numbers.clone(), rows.labels.clone()
    tried = number_moves(problem.space, numbers, generator, moves)
    changed = 0
    for i in torch.randperm(len(codes), generator=generator).tolist():
        terms = problem.terms_around(codes[i], numbers[i], tried[i], dtype)
        own = terms.row(0)
        coefficients = terms.coefficients(problem.n_rows)
        label = int(labels[i])
        without = add_term(applied, own, coefficients[:1, label], kernels)
        energy = energies(terms, coefficients, without, kernels)
        if problem.prior is not None:
            penalty = problem.penalties_around(codes[i], numbers[i], tried[i]).to(dtype)
            energy = energy + problem.prior_weight * penalty.unsqueeze(1)
        if not labels_free:
            energy = energy[:, label : label + 1]
        if temperature > 0:
            uniform = torch.rand(energy.shape, generator=generator).to(energy).clamp(TINY, 1 - TINY)
            energy = energy + temperature * (-uniform.log()).log()
        best = int(energy.argmin())
        choice, to = divmod(best, energy.shape[1])
        to = to if labels_free else label
        kept = energy[0, label if labels_free else 0]
        if not float(energy.flatten()[best]) < float(kept - LEAST_GAIN * kept.abs()):
            continue
        codes[i], numbers[i] = neighbor(problem.space, codes[i], numbers[i], tried[i], choice)
        labels[i] = to
        applied = add_term(without, terms.row(choice), -coefficients[choice : choice + 1, to], kernels)
        changed += 1
    return JointRows(codes, numbers, labels), changed


def energies(terms: Terms, coefficients: Tensor, applied: Gradient, kernels: Kernels) -> Tensor:
    """Squared distance that n terms with each of Y coefficients ``[n, Y, T D]`` leave, minus that without them."""
    of_squares = (coefficients @ gram(terms, kernels) * coefficients).sum(-1)
    return of_squares - 2 * (coefficients @ inner(terms, applied).unsqueeze(-1)).squeeze(-1)


def add_term(applied: Gradient, term: Terms, coefficients: Tensor, kernels: Kernels) -> Gradient:
    """Residuals under the kernels after a row's term, times ``coefficients`` ``[1, T D]``, is added to them."""
    return added(applied, term.weighted(coefficients), term.hidden, kernels)


def added(applied: Gradient, errors: Gradient, hidden: Gradient, kernels: Kernels, sign: float = 1.0) -> Gradient:
    """Residuals under the kernels after products of ``errors`` ``[T, 1, out]`` and ``hidden`` are added to them."""
    layers = []
    for r, e, h, a, b in zip(applied, errors, hidden, kernels.left, kernels.right, strict=True):
        e, h = e if a is None else e @ a, h if b is None else h @ b
        if r.dim() == e.dim():  # nodes apart
            layers.append(torch.baddbmm(r, e.mT, h, alpha=sign))
        else:
            layers.append(torch.addmm(r, e[:, 0].T, h[:, 0], alpha=sign))
    return tuple(layers)


def number_moves(space: RowDomain, numbers: Tensor, generator: torch.Generator, moves: Moves) -> Tensor:
    """Values to try for the numbers ``[n, F]``: ``[n, F, m]``, inside their bounds."""
    shape, device = numbers.shape, numbers.device

    def drawn(draw: torch.Tensor) -> Tensor:
        return draw.to(device)

    size = 10 ** (-LOCAL_DECADES * torch.rand(*shape, moves.near, generator=generator, dtype=torch.float64))
    steps = drawn(size * torch.randn(*shape, moves.near, generator=generator, dtype=torch.float64))
    wide = drawn(torch.randn(*shape, moves.wide, generator=generator, dtype=torch.float64))
    even = drawn(torch.rand(*shape, 1, generator=generator, dtype=torch.float64))
    lower, upper = space.lower.unsqueeze(-1), space.upper.unsqueeze(-1)
    values = torch.cat(
        [numbers.unsqueeze(-1) + steps, wide, lower + (upper - lower) * even, lower.expand(*shape, 1)], -1
    )
    return torch.maximum(torch.minimum(values, upper), lower)


def neighbor(space: RowDomain, codes: Tensor, numbers: Tensor, tried: Tensor, index: int) -> tuple[Tensor, Tensor]:
    """One of the rows that `RowTables.around` measures: a row itself at 0, or one that differs from it in one cell."""
    codes, numbers, index = codes.clone(), numbers.clone(), index - 1
    for k, size in enumerate(space.sizes):
        if 0 <= index < size:
            codes[k] = index
        index -= size
    if index >= 0:
        q, at = divmod(index, tried.shape[1])
        numbers[q] = tried[q, at]
    return codes, numbers
