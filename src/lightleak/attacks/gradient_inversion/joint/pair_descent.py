"""Two rows improved together: the way out where two rows nearly make up for each other.

Two rows that are alike and have different labels add nearly opposite terms, and two of one label nearly equal ones. In
the first case a cell that is wrong in both, in the second one that is exchanged between them, hardly shows in the
gradient as long as only one of the rows may change. So every change of one cell of either is measured with every
change of the other: both rows out of the batch leave R, and terms a and b in their places make the squared distance
``|R|^2 + (|a|^2 - 2 <a, R>) + (|b|^2 - 2 <b, R>) + 2 <a, b>``. Of these only ``<a, b>`` is of the pair: the rest is
measured once for every row, and anew where the row, or what the batch leaves, has changed.
"""

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.joint.coordinate_descent import LOCAL_DECADES, added, neighbor
from lightleak.attacks.gradient_inversion.joint.kernels import Gradient, Kernels
from lightleak.attacks.gradient_inversion.joint.problem import JointProblem, JointRows
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain

ALIKE = 0.7
"""Cosine of two rows' terms, either sign, from which on they are moved together: random rows of one table have 0.2 to
0.5, rows that differ in two or three of fourteen cells 0.8 and more."""

STEPS_TOGETHER = 6
"""Random steps tried for every number, up and down, in a pass the same ones for all rows."""

TRIES = 4
"""Times that a pair which has just been improved is tried again."""

LEAST_PAIR_GAIN = 1e-7
"""Part of a pair's energy that a change must gain at least: float32 inner products are not surer than that."""


@dataclass(frozen=True)
class Weighted:
    """Terms with their coefficients: what m rows add to the gradient.

    Attributes:
        errors: per layer ``e_l`` ``[T, m, out]``.
        hidden: per layer ``(h_{l-1}, 1)`` ``[T, m, in + 1]``.
        apart: see `Nodes`.
    """

    errors: Gradient
    hidden: Gradient
    apart: bool = False

    @classmethod
    def of(
        cls, problem: JointProblem, codes: Tensor, numbers: Tensor, labels: Tensor, dtype: torch.dtype
    ) -> "Weighted":
        """The terms of rows with their labels."""
        terms = problem.terms(codes, numbers, dtype)
        return cls(terms.weighted(terms.of_labels(labels, problem.n_rows)), terms.hidden, terms.apart)

    def row(self, index: int) -> "Weighted":
        """One of them."""
        at = slice(index, index + 1)
        return Weighted(tuple(e[:, at] for e in self.errors), tuple(h[:, at] for h in self.hidden), self.apart)


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
    steps, sides, inner = _steps(problem.space, generator), dict[int, Candidates](), dict[int, Tensor]()
    for pair in pairs:
        for _ in range(TRIES):
            for i in pair:
                if i not in sides:
                    sides[i] = Candidates.of(problem, codes[i], numbers[i], int(labels[i]), steps, kernels, dtype)
                if i not in inner:
                    inner[i] = inner_products(sides[i].weighted, applied)
            one, other = (sides[i] for i in pair)
            energy = pair_energies(one, other, inner[pair[0]], inner[pair[1]], kernels)
            kept, best = energy[0, 0], int(energy.argmin())
            if not float(energy.flatten()[best]) < float(kept - LEAST_PAIR_GAIN * kept.abs()):
                break
            changes += 1
            for i, side, choice in zip(pair, (one, other), divmod(best, energy.shape[1]), strict=True):
                codes[i], numbers[i], labels[i] = side.row(choice)
                for at, sign in ((0, 1.0), (choice, -1.0)):
                    row = side.weighted.row(at)
                    applied = added(applied, row.errors, row.hidden, kernels, sign)
                sides.pop(i)
            inner.clear()
    return JointRows(codes, numbers, labels), changes


@dataclass(frozen=True)
class Candidates:
    """What may stand in a row's place: itself, all that differ in one cell, and itself with every other label.

    They depend on the row alone: as long as it stays, every pair it is in uses the same ones.

    Attributes:
        space: the rows.
        codes: of the row itself ``[K]``.
        numbers: likewise ``[F]``.
        labels: of every candidate ``[m]``.
        tried: values that were tried for the numbers ``[F, v]``.
        weighted: their terms.
        alone: what every candidate adds to the objective of a batch that leaves nothing without the row ``[m]``.
    """

    space: RowDomain
    codes: Tensor
    numbers: Tensor
    labels: list[int]
    tried: Tensor
    weighted: Weighted
    alone: Tensor

    @classmethod
    def of(
        cls,
        problem: JointProblem,
        codes: Tensor,
        numbers: Tensor,
        label: int,
        steps: Tensor,
        kernels: Kernels,
        dtype: torch.dtype,
    ) -> "Candidates":
        """Those of one row.

        Args:
            problem: what rows are held against.
            codes: ``[K]``.
            numbers: ``[F]``.
            label: of the row.
            steps: of its numbers ``[F, s]``.
            kernels: the problem's, in ``dtype``.
            dtype: precision in which candidates are measured.
        """
        space, classes = problem.space, problem.nodes.weights[-1].shape[1]
        tried = torch.cat([space.clamp((numbers.unsqueeze(1) + steps).T).T, space.lower.unsqueeze(1)], 1)
        others = [c for c in range(classes) if c != label]
        around = problem.terms_around(codes, numbers, tried, dtype)
        count = around.probabilities.shape[1]
        at, labels = [*range(count), *[0] * len(others)], [label] * count + others
        coefficients = around.coefficients(problem.n_rows)[at, labels]
        terms = around.rows(torch.tensor(at, device=codes.device))
        weighted = Weighted(terms.weighted(coefficients), terms.hidden, terms.apart)
        alone = squares(weighted, kernels) - 2 * cross_products(weighted, weighted.row(0), kernels)[:, 0]
        if problem.prior is not None:
            penalties = problem.penalties_around(codes, numbers, tried)[at]
            alone = alone + problem.prior_weight * penalties.to(alone.dtype)
        return cls(space, codes.clone(), numbers.clone(), labels, tried, weighted, alone)

    def row(self, index: int) -> tuple[Tensor, Tensor, int]:
        """Codes, numbers and label of one of them."""
        unchanged = index >= 1 + sum(self.space.sizes) + self.tried.numel()
        at = 0 if unchanged else index
        return (*neighbor(self.space, self.codes, self.numbers, self.tried, at), self.labels[index])


def alike_pairs(rows: Weighted, kernels: Kernels) -> list[tuple[int, int]]:
    """Pairs of rows whose terms have a cosine of at least `ALIKE`, either sign; the most alike first."""
    products = cross_products(rows, rows, kernels)
    norms = products.diagonal().clamp_min(torch.finfo(products.dtype).tiny).sqrt()
    cosine = (products / norms / norms.unsqueeze(1)).abs().triu(1)
    at = (cosine >= ALIKE).nonzero()
    order = cosine[at[:, 0], at[:, 1]].argsort(descending=True, stable=True)
    return [(i, j) for i, j in at[order].tolist()]


def pair_energies(one: Candidates, other: Candidates, of_one: Tensor, of_other: Tensor, kernels: Kernels) -> Tensor:
    """Objective of every pair of candidates ``[m, m']``, minus that of the batch without both rows.

    Args:
        one: candidates for one row.
        other: for another row.
        of_one: inner products of the one's terms with what the batch, both rows included, leaves ``[m]``.
        of_other: likewise of the other's ``[m']``.
        kernels: the distance.
    """
    products = cross_products(one.weighted, other.weighted, kernels)
    of_one = one.alone - 2 * (of_one + products[:, 0])
    of_other = other.alone - 2 * (of_other + products[0])
    return of_one.unsqueeze(1) + of_other + 2 * products


def cross_products(one: Weighted, other: Weighted, kernels: Kernels) -> Tensor:
    """Inner products ``[m, m']`` of what rows add to the gradient."""
    total = one.errors[0].new_zeros(())
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
    return total


def inner_products(rows: Weighted, applied: Gradient) -> Tensor:
    """Inner products ``[m]`` of what rows add with a residual to which the kernels were applied."""
    each = zip(rows.errors, rows.hidden, applied, strict=True)
    return torch.stack([((h @ r.mT) * e).sum((0, 2)) for e, h, r in each]).sum(0)


def squares(rows: Weighted, kernels: Kernels) -> Tensor:
    """Squared norms ``[m]`` of what rows add."""
    of_nodes = "tmo,tmo->mt" if rows.apart else "tmo,smo->mts"

    def of_layer(e: Tensor, h: Tensor, a: Tensor | None, b: Tensor | None) -> Tensor:
        of_errors = torch.einsum(of_nodes, e if a is None else e @ a, e).flatten(1)
        of_hidden = torch.einsum(of_nodes, h if b is None else h @ b, h).flatten(1)
        return (of_errors * of_hidden).sum(1)

    return reduce(torch.add, map(of_layer, rows.errors, rows.hidden, kernels.left, kernels.right))


def _steps(space: RowDomain, generator: torch.Generator) -> Tensor:
    """Steps ``[F, 2 STEPS_TOGETHER]``, each up and down."""
    shape = (len(space.free), STEPS_TOGETHER)
    size = 10 ** (-LOCAL_DECADES * torch.rand(*shape, generator=generator, dtype=torch.float64))
    steps = (size * torch.randn(*shape, generator=generator, dtype=torch.float64)).to(space.unit.device)
    return torch.cat([steps, -steps], 1)
