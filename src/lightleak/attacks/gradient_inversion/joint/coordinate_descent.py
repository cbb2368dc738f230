"""Rows improved one by one: every change of a single cell, with every label, is measured exactly.

Taking a row out of the batch leaves the residual R; another row c·atom in its place makes the squared distance
``|R|^2 - 2 c <atom, R> + c^2 |atom|^2``. All candidates of a row are measured in one batch, and the best is taken.
"""

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


NEAR, WIDE = 8, 4
"""Values tried for a number: random steps from its own, and draws from a standard Gaussian. Its lower bound and a value
anywhere between the bounds are tried, too."""


def descend(
    problem: JointProblem, rows: JointRows, sweeps: int, generator: torch.Generator, temperature: float = 0.0
) -> JointRows:
    """Sweep over all rows in random order until a sweep changes nothing.

    Candidates are measured in float32; the residual is taken anew in float64 before every sweep.

    Args:
        problem: what rows are held against.
        rows: where to start.
        sweeps: at most so many.
        generator: a CPU generator.
        temperature: draw a candidate with weight ``exp(-objective / temperature)`` (by Gumbel noise) in place of the
            best, to leave poor minima; 0 takes the best.
    """
    for _ in range(sweeps):
        rows, changed = _sweep(problem, rows, generator, temperature)
        if not changed:
            break
    return rows


def _sweep(
    problem: JointProblem, rows: JointRows, generator: torch.Generator, temperature: float
) -> tuple[JointRows, int]:
    """One pass over the rows, and how many of them changed."""
    dtype = torch.float32
    kernels = problem.kernels.to(dtype)
    applied = tuple(r.to(dtype) for r in problem.kernels.apply(problem.residual(rows)))
    codes, numbers, labels = rows.codes.clone(), rows.numbers.clone(), rows.labels.clone()
    tried = number_moves(problem.space, numbers, generator)
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
        if temperature > 0:
            uniform = torch.rand(energy.shape, generator=generator).to(energy).clamp(TINY, 1 - TINY)
            energy = energy + temperature * (-uniform.log()).log()
        choice, to = divmod(int(energy.argmin()), energy.shape[1])
        kept = energy[0, label]
        if not float(energy[choice, to]) < float(kept - LEAST_GAIN * kept.abs()):
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


def number_moves(space: RowDomain, numbers: Tensor, generator: torch.Generator) -> Tensor:
    """Values to try for the numbers ``[n, F]``: ``[n, F, m]``, inside their bounds."""
    shape, device = numbers.shape, numbers.device
    size = 10 ** (-LOCAL_DECADES * torch.rand(*shape, NEAR, generator=generator, dtype=torch.float64))
    steps = (size * torch.randn(*shape, NEAR, generator=generator, dtype=torch.float64)).to(device)
    wide = torch.randn(*shape, WIDE, generator=generator, dtype=torch.float64).to(device)
    even = torch.rand(*shape, 1, generator=generator, dtype=torch.float64).to(device)
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
