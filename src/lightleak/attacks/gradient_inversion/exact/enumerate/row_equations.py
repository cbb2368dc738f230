"""Linear equations that hold for every row of a batch: the null space of the first layer's gradient, by cells.

The first layer's gradient is ``sum_i D_i (x_i, 1)^T``, whatever the other layers, the loss, the epochs and the batches
are. Written in the coordinates of a `RowDomain` (a 0/1 per present category, a value per free number, a 1) its null
space is a set of equations for the cells of a row; numbers follow from the categories by least squares.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.network.cells import Affine
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain

DETERMINED = 1e-3
"""Combinations of numbers whose equations are all smaller than this are taken as not determined: dividing by so little
would only make rounding errors visible."""

ROUGHLY_DETERMINED = 1e-2
"""The same with equations that hold to some 1e-3 only."""

EXACTLY = 1e-12
"""Singular values below this part of the largest are float64's own rounding, whatever the noise."""

RESOLVED = 0.1
"""A whole number is rounded where noise moves it by less than this (one deviation, in the table's units)."""

ALONE = 1e-6
"""Part of a number's unit vector that may lie in undetermined combinations while it counts as determined."""


@dataclass(frozen=True)
class RowEquations:
    """``values @ (one-hot codes, numbers, 1) = 0`` for every row of the batch.

    Attributes:
        space: whose coordinates.
        gradient: the first layer's gradient by coordinates ``[h, coordinates]``.
        span: orthonormal rows that span what the rows of the batch span, block sums taken out ``[rank, coordinates]``.
        singular: the gradient's singular values along them ``[rank]``.
        values: orthogonal equations ``[q, coordinates]``, of length 1 where the layer sees the row itself; that each
            block of categories sums to 1 is not among them.
        noise: deviation of the errors in the gradient's elements.
        determined: least norm of the equations along combinations of numbers that are solved for.
    """

    space: RowDomain
    gradient: Tensor
    span: Tensor
    singular: Tensor
    values: Tensor
    noise: float
    determined: float = DETERMINED

    @classmethod
    def of(
        cls, residual: Tensor, space: RowDomain, rank: int, noise: float = 0.0, seen: Affine | None = None
    ) -> "RowEquations":
        """From the first layer's gradient.

        Args:
            residual: ``[h, d + 1]``, or what known rows leave of it.
            space: the rows that may be in the batch.
            rank: number of distinct rows behind it; lower where singular values vanish in the noise.
            noise: deviation of the errors in the residual's elements.
            seen: what that layer sees of an encoded row, where that is not the row itself; then without noise.
        """
        if seen is not None:
            return cls._through(residual.double(), space, rank, seen)
        gradient = coordinate_gradient(residual, space)
        within = _complement(_block_sums(space))
        _, singular, right = torch.linalg.svd(gradient @ within.T, full_matrices=True)
        floor = max(noise * (sqrt(gradient.shape[0]) + sqrt(gradient.shape[1])), float(singular[:1].sum()) * EXACTLY)
        rank = min(rank, int((singular > floor).sum()))
        return cls(space, gradient, right[:rank] @ within, singular[:rank], right[rank:] @ within, noise)

    @classmethod
    def _through(cls, residual: Tensor, space: RowDomain, rank: int, seen: Affine) -> "RowEquations":
        """Null directions of a layer's inputs, by the coordinates of the rows; they keep the length they have there."""
        _, singular, right = torch.linalg.svd(residual, full_matrices=True)
        tables = space.first_layer(seen.weight, seen.bias)
        cells = torch.cat([*tables.categories, tables.numbers, tables.base.unsqueeze(0)])
        constant = torch.zeros_like(cells[:, :1])
        constant[-1] = 1
        within = _complement(_block_sums(space))
        _, size, found = torch.linalg.svd(right[rank:] @ torch.cat([cells, constant], 1).T @ within.T)
        kept = size > DETERMINED
        values = (size[kept].unsqueeze(1) * found[: len(size)][kept]) @ within
        return cls(space, residual, right[:rank], singular[:rank], values, 0.0)

    @property
    def rank(self) -> int:
        """Distinct rows behind the gradient."""
        return len(self.singular)

    @cached_property
    def of_numbers(self) -> Tensor:
        """Columns of the free numbers ``[q, F]``."""
        start = sum(self.space.sizes)
        return self.values[:, start : start + len(self.space.free)]

    def on_categories(self, at_bound: Sequence[int] = ()) -> Tensor:
        """Equations without the numbers ``[p, categories + 1]``: projected out, or put at their lower bound.

        Args:
            at_bound: which of the free numbers are at their bound.
        """
        n_categories = sum(self.space.sizes)
        constant = self.values[:, -1] + self.of_numbers[:, list(at_bound)] @ self.space.lower[list(at_bound)]
        onto = torch.cat([self.values[:, :n_categories], constant[:, None]], 1)
        solved = [f for f in range(len(self.space.free)) if f not in at_bound]
        if not solved:
            return onto
        left, singular, _ = torch.linalg.svd(self.of_numbers[:, solved], full_matrices=True)
        return left[:, int((singular > self.determined).sum()) :].T @ onto

    def sharpness(self, numbers: Sequence[int]) -> float:
        """Least norm of the equations along a unit direction of these numbers; infinite for none.

        Distances from the equations, divided by it, bound the error of numbers solved for.
        """
        columns = self.of_numbers[:, list(numbers)]
        if not len(numbers):
            return float("inf")
        return float(torch.linalg.svdvals(columns)[-1]) if len(columns) >= len(numbers) else 0.0

    def determines(self, numbers: Sequence[int]) -> bool:
        """Whether categories and the other numbers determine these."""
        return self.sharpness(numbers) > self.determined

    def with_equations(self, values: Tensor) -> "RowEquations":
        """The same with further equations of length 1 ``[p, coordinates]`` that hold roughly, to some 1e-3."""
        return replace(self, values=torch.cat([self.values, values]), noise=0.0, determined=ROUGHLY_DETERMINED)

    def orthogonal_to(self, coordinates: Tensor) -> "RowEquations":
        """The same with a span for duals alone: what is orthogonal to known rows ``[m, coordinates]``."""
        known = coordinates @ self.span.T
        basis, _ = torch.linalg.qr(known.T, mode="complete")
        return replace(self, span=basis[:, len(known) :].T @ self.span, singular=self.singular[len(known) :])

    def coordinates(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """``(one-hot codes, numbers, 1)`` of rows, float64 ``[n, coordinates]``."""
        row = self.values.new_zeros(len(codes), self.values.shape[1])
        each, start = torch.arange(len(codes), device=row.device), 0
        for k, size in enumerate(self.space.sizes):
            row[each, start + codes[:, k]] = 1
            start += size
        row[:, start : start + len(self.space.free)] = numbers
        row[:, -1] = 1
        return row

    def solve(self, codes: Tensor, at_bound: Sequence[int] = ()) -> Tensor:
        """Numbers ``[n, F]`` by least squares within their bounds; whole ones rounded where noise leaves no doubt.

        A number that violates its bound, or is rounded, is held, and the others are solved for again.

        Args:
            codes: ``[n, K]``.
            at_bound: which of the numbers are held at their lower bound from the beginning.
        """
        n_numbers = len(self.space.free)
        numbers = self.values.new_zeros(len(codes), n_numbers)
        held = torch.zeros(len(codes), n_numbers, dtype=torch.bool, device=codes.device)
        numbers[:, list(at_bound)], held[:, list(at_bound)] = self.space.lower[list(at_bound)], True
        open_ = torch.arange(len(codes), device=codes.device)
        for _ in range(n_numbers):
            open_ = open_[~held[open_].all(1)]
            if not len(open_):
                break
            patterns, which = torch.unique(held[open_], dim=0, return_inverse=True)
            still = []
            for i, pattern in enumerate(patterns):
                some = open_[which == i]
                numbers[some], held[some] = self._solve_free(codes[some], numbers[some], ~pattern)
                still.append(some[(held[some] != pattern).any(1)])
            open_ = torch.cat(still)
        return numbers

    def solve_near(self, codes: Tensor, numbers: Tensor, at_bound: Sequence[int] = ()) -> Tensor:
        """Numbers ``[n, F]`` that satisfy the equations and differ least from given ones; clamped to their bounds."""
        free = [f for f in range(len(self.space.free)) if f not in at_bound]
        near = numbers.clone()
        near[:, list(at_bound)] = self.space.lower[list(at_bound)]
        left, singular, right = torch.linalg.svd(self.of_numbers[:, free], full_matrices=False)
        kept = singular > self.determined
        inverse = (right[kept].T / singular[kept]) @ left[:, kept].T
        near[:, free] -= (self.coordinates(codes, near) @ self.values.T) @ inverse.T
        return self.space.clamp(near)

    def deviation(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Deviation of the noise in one equation of rows ``[n]``: it grows as their shares in the gradient shrink."""
        return self.noise * (self.coordinates(codes, numbers) @ self.span.T / self.singular).norm(dim=1)

    def distance(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Norm of what is left of all equations ``[n]``."""
        return (self.coordinates(codes, numbers) @ self.values.T).norm(dim=1)

    def _solve_free(self, codes: Tensor, numbers: Tensor, free: Tensor) -> tuple[Tensor, Tensor]:
        """One least-squares solution for the ``free`` numbers, and which numbers are held from now on."""
        space = self.space
        left, singular, right = torch.linalg.svd(self.of_numbers[:, free], full_matrices=False)
        kept = singular > self.determined
        inverse = (right[kept].T / singular[kept]) @ left[:, kept].T
        known = torch.where(free, 0.0, numbers)
        solved = -(self.coordinates(codes, known) @ self.values.T) @ inverse.T
        value = known.clone()
        value[:, free] = solved
        inside = space.clamp(value)
        beyond = (value - inside).abs() * free
        worst = beyond.argmax(1, keepdim=True)
        breaks = beyond.gather(1, worst) > 0
        held = (~free).expand_as(value) | torch.zeros_like(beyond, dtype=torch.bool).scatter(1, worst, breaks)
        if self.noise > 0:
            # A rounded number must not be held before the bounds are met: it would move for nothing.
            certain = self._certain(codes, inside, free, inverse, right[kept])
            value = torch.where(certain & ~breaks, space.rounded(value), value)
            held = held | (certain & ~breaks)
        return torch.where(held, space.clamp(value), value), held

    def _certain(self, codes: Tensor, numbers: Tensor, free: Tensor, inverse: Tensor, kept: Tensor) -> Tensor:
        """Which whole numbers the noise leaves no doubt about ``[n, F]``."""
        spread = torch.zeros_like(numbers)
        spread[:, free] = self.deviation(codes, numbers)[:, None] * inverse.norm(dim=1) * self.space.unit[free]
        determined = torch.zeros_like(free)
        determined[free] = kept.square().sum(0) > 1 - ALONE
        return (spread < RESOLVED) & determined & self.space.integer


def coordinate_gradient(residual: Tensor, space: RowDomain) -> Tensor:
    """A first layer's gradient by a row's coordinates: ``[h, present categories + free numbers + 1]``.

    The encoded row is ``(raw - shift) / scale``, so ``sum_i D_i x_i^T`` and ``sum_i D_i`` give ``sum_i D_i raw_i^T``.
    """
    encoder = space.encoder
    residual = residual.double()
    constant = residual[:, -1:]
    raw = residual[:, :-1] * encoder.scale + constant * encoder.shift
    blocks = encoder.layout.categorical
    columns = [raw[:, block.start + present] for block, present in zip(blocks, space.present, strict=True)]
    columns.append((raw[:, space.free_positions] - constant * space.center) / space.unit)
    return torch.cat([*columns, constant], 1)


def _block_sums(space: RowDomain) -> Tensor:
    """What holds for any row: every block of categories sums to the constant, ``[K, coordinates]``."""
    sums = space.encoder.shift.new_zeros(len(space.sizes), sum(space.sizes) + len(space.free) + 1)
    start = 0
    for k, size in enumerate(space.sizes):
        sums[k, start : start + size] = 1
        start += size
    sums[:, -1] = -1
    return sums


def _complement(rows: Tensor) -> Tensor:
    """Orthonormal rows that span what is orthogonal to independent ``rows``."""
    basis, _ = torch.linalg.qr(rows.T, mode="complete")
    return basis[:, len(rows) :].T
