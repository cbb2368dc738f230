"""How probable a cell is before the gradient is seen: what decides where noise leaves several rows equally likely."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain, Tie
from lightleak.data.encoder import TableEncoder
from lightleak.data.marginals import Marginals

SUPPORT = 40
"""Values at most that a number may take: at 40 equal shares of a Gaussian, neighbors near the mean lie 0.06 deviations
apart, a fifth of the tolerance within which a number counts as right (0.319)."""

LEAST_SHARE = 1e-5
"""Share given to a category that the marginals have not seen: about one row of a large table."""

SAME_SHARE = 1e-9
"""Difference below which two shares are the same count of the same rows: rounding of float64 and no more."""


@dataclass(frozen=True)
class CellPrior:
    """Independent priors of the cells of a `RowDomain`; a free number takes one of a few values.

    Attributes:
        categories: per categorical column, minus log share of every present category.
        values: per free number, the values it may take in deviations from the mean, ascending.
        numbers: per free number, minus log share of each.
    """

    categories: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    numbers: tuple[Tensor, ...]

    @classmethod
    def of(cls, space: RowDomain, marginals: Marginals | None = None) -> "CellPrior":
        """Categories by the space's prior; numbers by the marginals, or Gaussian (half of a skewed one at its bound).

        Args:
            space: the rows.
            marginals: of the table; ``None`` where they are not known.
        """
        shares = [share[present] for share, present in zip(space.prior.shares, space.present, strict=True)]
        shares = [s.clamp_min(LEAST_SHARE) / s.clamp_min(LEAST_SHARE).sum() for s in shares]
        values, numbers = [], []
        for i in range(len(space.free)):
            points, weights = _gaussian(space, i) if marginals is None else _counted(space, i, marginals)
            at, share = _thinned(points, weights)
            values.append(at.to(space.unit))
            numbers.append(-share.log().to(space.unit))
        return cls(tuple(-s.log() for s in shares), tuple(values), tuple(numbers))

    def draw(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Random rows: codes ``[n, K]`` and numbers ``[n, F]``.

        Args:
            n: rows.
            generator: a CPU generator.
        """
        numbers = [self.draw_number(q, n, generator) for q in range(len(self.values))]
        codes = [_drawn(each, n, generator) for each in self.categories]
        device = (*self.categories, *self.values)[0].device
        return (
            torch.stack(codes, -1) if codes else torch.empty(n, 0, dtype=torch.long, device=device),
            torch.stack(numbers, -1) if numbers else torch.empty(n, 0, dtype=torch.float64, device=device),
        )

    def draw_number(self, index: int, n: int, generator: torch.Generator) -> Tensor:
        """Random values ``[n]`` of one of the free numbers."""
        return self.values[index][_drawn(self.numbers[index], n, generator)]

    @cached_property
    def _every(self) -> tuple[Tensor, Tensor, Tensor]:
        """All categories' penalties ``[C]``, the column of each ``[C]``, and where every column begins ``[K]``."""
        device = self.categories[0].device
        sizes = torch.tensor([len(table) for table in self.categories], device=device)
        columns = torch.arange(len(sizes), device=device).repeat_interleave(sizes)
        return torch.cat(self.categories), columns, sizes.cumsum(0) - sizes

    @cached_property
    def _edges(self) -> tuple[Tensor, Tensor]:
        """Where the value next to a number changes ``[F, v - 1]`` and penalties ``[F, v]``, filled up to one length."""
        most = max(len(values) for values in self.values)
        edges = [pad((v[1:] + v[:-1]) / 2, (0, most - len(v)), value=torch.inf) for v in self.values]
        penalties = [pad(p, (0, most - len(p))) for p in self.numbers]
        return torch.stack(edges), torch.stack(penalties)

    def _of_numbers(self, numbers: Tensor) -> Tensor:
        """Penalties of numbers ``[F, m]``; a number counts as the value next to it."""
        edges, penalties = self._edges
        return penalties.gather(1, torch.searchsorted(edges, numbers.contiguous()))

    def penalties(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Minus log prior ``[...]`` of rows ``[..., K]`` and ``[..., F]``; a number counts as the value next to it."""
        total = numbers.new_zeros(codes.shape[:-1])
        if self.categories:
            every, _, begin = self._every
            total = total + every[begin + codes].sum(-1)
        if self.values:
            total = total + self._of_numbers(numbers.flatten(0, -2).T).sum(0).view_as(total)
        return total

    def penalties_around(self, codes: Tensor, numbers: Tensor, tried: Tensor) -> Tensor:
        """`penalties` of a row ``[K]``, ``[F]`` and of all that differ from it in one cell, as `RowTables.around`."""
        own = numbers.new_zeros(1)
        changes = []
        if self.categories:
            every, columns, begin = self._every
            present = every[begin + codes]
            own = own + present.sum()
            changes.append(every - present[columns])
        if self.values:
            of_numbers = self._of_numbers(torch.cat([numbers.unsqueeze(-1), tried], 1))
            own = own + of_numbers[:, 0].sum()
            changes.append((of_numbers[:, 1:] - of_numbers[:, :1]).flatten())
        return torch.cat([own, *(own + change for change in changes)])


def _drawn(penalties: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Indices ``[n]`` by their shares, of which ``penalties`` are minus the logarithms."""
    return torch.multinomial((-penalties).exp().cpu(), n, True, generator=generator).to(penalties.device)


def ties_of_marginals(encoder: TableEncoder, marginals: Marginals) -> dict[int, Tie]:
    """Numbers that follow from a categorical column, recognized by shares that are equal one by one.

    A noised gradient cannot tell a tie; but when every value of a number has the share of one category, and no two
    categories have the same, then both columns count the same rows.

    Args:
        encoder: the table's.
        marginals: counted shares.
    """
    found: dict[int, Tie] = {}
    for j, number in enumerate(encoder.schema.numerical):
        values, shares = (
            np.asarray(each[number.name], "float64") for each in (marginals.values, marginals.probabilities)
        )
        values, shares = values[shares > 0], shares[shares > 0]
        order = np.argsort(shares)
        for k, column in enumerate(encoder.schema.categorical):
            known = dict(zip(marginals.values[column.name], marginals.probabilities[column.name], strict=True))
            of_categories = np.array([known.get(category, 0.0) for category in column.categories])
            seen = np.flatnonzero(of_categories)
            ranked = seen[np.argsort(of_categories[seen])]
            if len(ranked) != len(order) or len(order) < 2:
                continue
            matched = np.abs(of_categories[ranked] - shares[order]).max() < SAME_SHARE
            if not matched or np.diff(shares[order]).min() < SAME_SHARE:
                continue
            full = torch.full((len(column.categories),), float(values @ shares / shares.sum()), dtype=torch.float64)
            full[torch.as_tensor(ranked)] = torch.as_tensor(values[order])
            found[j] = Tie(k, full.to(encoder.shift.device))
            break
    return found


def _gaussian(space: RowDomain, index: int) -> tuple[Tensor, Tensor]:
    levels = (torch.arange(SUPPORT, dtype=torch.float64) + 0.5) / SUPPORT
    points = (2**0.5 * torch.erfinv(2 * levels - 1)).clamp(float(space.lower[index]), float(space.upper[index]))
    return points, torch.full_like(points, 1 / SUPPORT)


def _counted(space: RowDomain, index: int, marginals: Marginals) -> tuple[Tensor, Tensor]:
    name = space.encoder.schema.numerical[space.free[index]].name
    values = torch.as_tensor(np.asarray(marginals.values[name], "float64"))
    shares = torch.as_tensor(np.asarray(marginals.probabilities[name], "float64"))
    points = (values - float(space.center[index])) / float(space.unit[index])
    return points.clamp(float(space.lower[index]), float(space.upper[index])), shares / shares.sum()


def _thinned(points: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """At most `SUPPORT` points: those in one part of the cumulated shares become their commonest one."""
    order = points.argsort()
    points, shares = points[order], shares[order]
    part = ((shares.cumsum(0) - shares / 2) * SUPPORT).long().clamp(0, SUPPORT - 1)
    kept, masses = [], []
    for each in part.unique():
        inside = part == each
        mass = shares[inside].sum()
        if float(mass) > 0:
            kept.append(points[inside][shares[inside].argmax()])
            masses.append(mass)
    return torch.stack(kept), torch.stack(masses)
