"""Two rows improved together: the way out where two rows nearly make up for each other.

Two rows that are alike and have different labels add nearly opposite terms, and two of one label nearly equal ones. In
the first case a cell that is wrong in both, in the second one that is exchanged between them, hardly shows in the
gradient as long as only one of the rows may change. So every change of one cell of either is measured with every
change of the other: both rows out of the batch leave R, and terms a and b in their places make the squared distance
``|R|^2 + (|a|^2 - 2 <a, R>) + (|b|^2 - 2 <b, R>) + 2 <a, b>``.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.joint.coordinate_descent import LOCAL_DECADES, added, neighbors
from lightleak.attacks.gradient_inversion.joint.kernels import Gradient, Kernels
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows

ALIKE = 0.7
"""Cosine of two rows' terms, either sign, from which on they are moved together: random rows of one table have 0.2 to
0.5, rows that differ in two or three of fourteen cells 0.8 and more."""

STEPS_TOGETHER = 6
"""Random steps tried for every number, up and down, the same ones for both rows."""

TRIES = 4
"""Times that a pair which has just been improved is tried again."""

LEAST_PAIR_GAIN = 1e-7
"""Part of a pair's energy that a change must gain at least: float32 inner products are not surer than that."""


@dataclass(frozen=True)
class Weighted:
    """Terms with their coefficients: what m rows add to the gradient.

    Attributes:
        codes: of the rows ``[m, K]``.
        numbers: likewise ``[m, F]``.
        labels: likewise ``[m]``.
        errors: per layer ``e_l`` ``[T, m, out]``.
        hidden: per layer ``(h_{l-1}, 1)`` ``[T, m, in + 1]``.
        apart: see `Nodes`.
    """

    codes: Tensor
    numbers: Tensor
    labels: Tensor
    errors: Gradient
    hidden: Gradient
    apart: bool = False

    @classmethod
    def of(
        cls, problem: JointProblem, codes: Tensor, numbers: Tensor, labels: Tensor, dtype: torch.dtype
    ) -> "Weighted":
        """The terms of rows with their labels."""
        terms = problem.terms(codes, numbers, dtype)
        errors = terms.weighted(terms.of_labels(labels, problem.n_rows))
        return cls(codes, numbers, labels, errors, terms.hidden, terms.apart)

    def row(self, index: int) -> "Weighted":
        """One of them."""
        at = slice(index, index + 1)
        return Weighted(
            self.codes[at],
            self.numbers[at],
            self.labels[at],
            tuple(e[:, at] for e in self.errors),
            tuple(h[:, at] for h in self.hidden),
            self.apart,
        )


def descend_pairs(
    problem: JointProblem, rows: JointRows, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> tuple[JointRows, int]:
    """Move every pair of rows that are alike, once through; the rows, and how many changes were made.

    Args:
        problem: what rows are held against.
        rows: where to start.
        generator: a CPU generator.
        dtype: precision in which candidates are measured.
    """
    kernels = problem.kernels.to(dtype)
    applied = tuple(r.to(dtype) for r in problem.kernels.apply(problem.residual(rows)))
    codes, numbers, labels = rows.codes.clone(), rows.numbers.clone(), rows.labels.clone()
    pairs, changes = alike_pairs(Weighted.of(problem, codes, numbers, labels, dtype), kernels), 0
    for pair in pairs:
        for _ in range(TRIES):
            steps = _steps(numbers[pair[0]], generator)
            sides = [_candidates(problem, codes[i], numbers[i], int(labels[i]), steps, dtype) for i in pair]
            without = applied
            for side in sides:
                without = add(without, side.row(0), 1.0, kernels)
            energy = pair_energies(problem, sides[0], sides[1], without, kernels)
            kept, best = energy[0, 0], int(energy.argmin())
            if not float(energy.flatten()[best]) < float(kept - LEAST_PAIR_GAIN * kept.abs()):
                break
            applied, changes = without, changes + 1
            for i, side, choice in zip(pair, sides, divmod(best, energy.shape[1]), strict=True):
                codes[i], numbers[i], labels[i] = side.codes[choice], side.numbers[choice], side.labels[choice]
                applied = add(applied, side.row(choice), -1.0, kernels)
    return JointRows(codes, numbers, labels), changes


def alike_pairs(rows: Weighted, kernels: Kernels) -> list[tuple[int, int]]:
    """Pairs of rows whose terms have a cosine of at least `ALIKE`, either sign; the most alike first."""
    products = cross_products(rows, rows, kernels)
    norms = products.diagonal().clamp_min(torch.finfo(products.dtype).tiny).sqrt()
    cosine = (products / norms / norms.unsqueeze(1)).abs().triu(1)
    at = (cosine >= ALIKE).nonzero()
    order = cosine[at[:, 0], at[:, 1]].argsort(descending=True, stable=True)
    return [(i, j) for i, j in at[order].tolist()]


def pair_energies(problem: JointProblem, one: Weighted, other: Weighted, applied: Gradient, kernels: Kernels) -> Tensor:
    """Objective of every pair of candidates ``[m, m']``, minus that of the batch without both rows."""
    each = []
    for side in (one, other):
        alone = _squares(side, kernels) - 2 * _inner(side, applied)
        if problem.prior is not None:
            alone = alone + problem.prior_weight * problem.penalties(side.codes, side.numbers).to(alone.dtype)
        each.append(alone)
    return each[0].unsqueeze(1) + each[1] + 2 * cross_products(one, other, kernels)


def cross_products(one: Weighted, other: Weighted, kernels: Kernels) -> Tensor:
    """Inner products ``[m, m']`` of what rows add to the gradient."""
    total: Tensor | float = 0.0
    for layer, (a, b) in enumerate(zip(kernels.left, kernels.right, strict=True)):
        errors, hidden = one.errors[layer], one.hidden[layer]
        errors, hidden = errors if a is None else errors @ a, hidden if b is None else hidden @ b
        if one.apart:
            products = (errors @ other.errors[layer].mT) * (hidden @ other.hidden[layer].mT)
            total = total + products.sum(0)
            continue
        for e, h in zip(errors, hidden, strict=True):
            for other_e, other_h in zip(other.errors[layer], other.hidden[layer], strict=True):
                total = total + (e @ other_e.T) * (h @ other_h.T)
    assert isinstance(total, Tensor)  # a network has a layer
    return total


def add(applied: Gradient, row: Weighted, sign: float, kernels: Kernels) -> Gradient:
    """Residuals under the kernels after a row's term, times ``sign``, is added to them."""
    return added(applied, row.errors, row.hidden, kernels, sign)


def _inner(rows: Weighted, applied: Gradient) -> Tensor:
    each = zip(rows.errors, rows.hidden, applied, strict=True)
    return torch.stack([((h @ r.mT) * e).sum((0, 2)) for e, h, r in each]).sum(0)


def _squares(rows: Weighted, kernels: Kernels) -> Tensor:
    """Squared norms ``[m]`` of what rows add."""
    total: Tensor | float = 0.0
    for e, h, a, b in zip(rows.errors, rows.hidden, kernels.left, kernels.right, strict=True):
        of_nodes = "tmo,tmo->mt" if rows.apart else "tmo,smo->mts"
        of_errors = torch.einsum(of_nodes, e if a is None else e @ a, e).flatten(1)
        of_hidden = torch.einsum(of_nodes, h if b is None else h @ b, h).flatten(1)
        total = total + (of_errors * of_hidden).sum(1)
    assert isinstance(total, Tensor)  # a network has a layer
    return total


def _steps(numbers: Tensor, generator: torch.Generator) -> Tensor:
    """Steps ``[F, 2 STEPS_TOGETHER]``, each up and down."""
    shape = (len(numbers), STEPS_TOGETHER)
    size = 10 ** (-LOCAL_DECADES * torch.rand(*shape, generator=generator, dtype=torch.float64))
    steps = (size * torch.randn(*shape, generator=generator, dtype=torch.float64)).to(numbers.device)
    return torch.cat([steps, -steps], 1)


def _candidates(
    problem: JointProblem, codes: Tensor, numbers: Tensor, label: int, steps: Tensor, dtype: torch.dtype
) -> Weighted:
    """A row itself, all that differ in one cell and keep the label, and itself with every other label."""
    space = problem.space
    tried = space.clamp((numbers.unsqueeze(1) + steps).T).T
    all_codes, all_numbers = neighbors(space, codes, numbers, torch.cat([tried, space.lower.unsqueeze(1)], 1))
    classes = problem.nodes.weights[-1].shape[1]
    others = [c for c in range(classes) if c != label]
    labels = torch.tensor([label] * len(all_codes) + others, device=codes.device)
    all_codes = torch.cat([all_codes, codes.repeat(len(others), 1)])
    all_numbers = torch.cat([all_numbers, numbers.repeat(len(others), 1)])
    return Weighted.of(problem, all_codes, all_numbers, labels, dtype)
