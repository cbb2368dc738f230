"""Which rows may be in a batch, in coordinates that a search moves in: a code per categorical column, a number each.

Everything that turns coordinates into an encoded row is affine in one-hot codes and numbers, so what a network's first
layer makes of a row is a sum of table look-ups: changing one cell of a candidate costs one addition.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.tables.row_prior import SKEWED_WITHIN, RowPrior
from lightleak.core.errors import UnsupportedError
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import ColumnKind

STARTS_AT_BOUND = 0.85
"""Part of the candidates whose skewed numbers start at their lower bound."""


@dataclass(frozen=True)
class Tie:
    """A number that is a function of one categorical column (Adult: education-num of education).

    Attributes:
        column: index among the categorical columns.
        values: the number for every category of that column ``[width]``, in the table's units.
    """

    column: int
    values: Tensor


@dataclass(frozen=True)
class RowTables:
    """An affine function of rows, by cell.

    Attributes:
        base: value at number 0 without any category ``[h]``.
        categories: per categorical column ``[present, h]``, to be added.
        numbers: per unit of every free number ``[free, h]``.
    """

    base: Tensor
    categories: tuple[Tensor, ...]
    numbers: Tensor

    @classmethod
    def side_by_side(cls, tables: Sequence["RowTables"]) -> "RowTables":
        """The functions' values one after the other."""
        categories = tuple(torch.cat(each, -1) for each in zip(*(one.categories for one in tables), strict=True))
        bases, numbers = [one.base for one in tables], [one.numbers for one in tables]
        return cls(torch.cat(bases), categories, torch.cat(numbers, -1))

    def to(self, dtype: torch.dtype) -> "RowTables":
        """The same in another precision."""
        each = tuple(table.to(dtype) for table in self.categories)
        return RowTables(self.base.to(dtype), each, self.numbers.to(dtype))

    def of(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """The function at rows ``[..., K]`` and ``[..., F]``: ``[..., h]``."""
        value = self.base + numbers.to(self.base.dtype) @ self.numbers
        for k, table in enumerate(self.categories):
            value = value + table[codes[..., k]]
        return value

    @cached_property
    def _every(self) -> tuple[Tensor, Tensor, Tensor]:
        """All categories' values ``[C, h]``, the column of each ``[C]``, and where every column begins ``[K]``."""
        sizes = torch.tensor([len(table) for table in self.categories], device=self.base.device)
        columns = torch.arange(len(sizes), device=self.base.device).repeat_interleave(sizes)
        return torch.cat(self.categories), columns, sizes.cumsum(0) - sizes

    def around(self, codes: Tensor, numbers: Tensor, tried: Tensor) -> Tensor:
        """The function at a row ``[K]``, ``[F]`` and at all that differ from it in one cell ``[1 + C + F m, h]``.

        Each of them costs one addition: first the row itself, then every category of every column, then the numbers.

        Args:
            codes: of the row.
            numbers: likewise.
            tried: values to try for every number ``[F, m]``.
        """
        own = self.of(codes, numbers)
        each = [own.unsqueeze(0)]
        if self.categories:
            every, columns, begin = self._every
            changed = every + (own - every[begin + codes])[columns]
            changed[begin + codes] = own  # without rounding: a search must see that nothing changed
            each.append(changed)
        steps = (tried - numbers.unsqueeze(-1)).to(own.dtype)
        each.append((own + steps.unsqueeze(-1) * self.numbers.unsqueeze(1)).flatten(0, 1))
        return torch.cat(each)


@dataclass(frozen=True)
class RowDomain:
    """The rows that a batch may hold.

    Coordinates of a row are ``codes`` (LongTensor ``[..., K]``, indices into ``present`` of each categorical column)
    and ``numbers`` (float64 ``[..., F]``, free numerical columns in deviations from the prior's mean).

    Attributes:
        encoder: schema and statistics, on the device of the work.
        prior: what is believed of cells.
        present: per categorical column, the categories that may occur (indices among the column's categories).
        constants: value of the numerical columns (by index among them) that are the same in every row, table units.
        ties: numerical columns that follow from a categorical one.

    Raises:
        UnsupportedError: an encoding in which numbers are not affine (``quantile``).
    """

    encoder: TableEncoder
    prior: RowPrior
    present: tuple[Tensor, ...]
    constants: Mapping[int, float]
    ties: Mapping[int, Tie]

    def __post_init__(self) -> None:
        if self.encoder.encoding == "quantile":
            raise UnsupportedError(
                "exact inversion needs numbers encoded by an affine map; got the encoding 'quantile', use "
                "'standardized', 'onehot' or 'minmax'"
            )

    @classmethod
    def whole(cls, encoder: TableEncoder, prior: RowPrior) -> "RowDomain":
        """Every row of the schema."""
        widths = [block.width for block in encoder.layout.categorical]
        return cls(encoder, prior, tuple(torch.arange(w, device=encoder.shift.device) for w in widths), {}, {})

    def widened(self, share: float) -> "RowDomain":
        """The same with numbers that may lie this share of their range beyond either bound."""
        encoder = copy.deepcopy(self.encoder)  # its tensors are buffers, which a shallow copy shares
        beyond = share * (encoder.upper - encoder.lower)
        encoder.lower, encoder.upper = encoder.lower - beyond, encoder.upper + beyond
        return replace(self, encoder=encoder)

    @cached_property
    def free(self) -> tuple[int, ...]:
        """Numerical columns (by index among them) that are neither constant nor tied."""
        m = len(self.encoder.schema.numerical)
        return tuple(j for j in range(m) if j not in self.constants and j not in self.ties)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of present categories of every categorical column."""
        return tuple(len(p) for p in self.present)

    @cached_property
    def free_positions(self) -> list[int]:
        """Encoded positions of the free numbers."""
        return [self.encoder.numerical_positions[j] for j in self.free]

    @cached_property
    def is_present(self) -> Tensor:
        """Encoded positions of the present categories, bool ``[d]``."""
        found = torch.zeros(self.encoder.width, dtype=torch.bool, device=self.encoder.shift.device)
        for block, present in zip(self.encoder.layout.categorical, self.present, strict=True):
            found[block.start + present] = True
        return found

    @cached_property
    def integer(self) -> Tensor:
        """Which of the free numbers are whole numbers in the table, bool ``[F]``."""
        kinds = [self.encoder.schema.numerical[j].kind is ColumnKind.INTEGER for j in self.free]
        return torch.tensor(kinds, dtype=torch.bool, device=self.encoder.shift.device)

    @cached_property
    def center(self) -> Tensor:
        """Table value of number 0 of every free column ``[F]``."""
        return self.prior.mean[list(self.free)]

    @cached_property
    def unit(self) -> Tensor:
        """Table units per unit of every free number ``[F]``."""
        return self.prior.deviation[list(self.free)]

    @cached_property
    def lower(self) -> Tensor:
        """Least free numbers ``[F]``."""
        return (self.encoder.lower[list(self.free)] - self.center) / self.unit

    @cached_property
    def upper(self) -> Tensor:
        """Greatest free numbers ``[F]``."""
        return (self.encoder.upper[list(self.free)] - self.center) / self.unit

    @cached_property
    def skewed(self) -> Tensor:
        """Which free numbers pile up at their lower bound, bool ``[F]``."""
        return self.lower > -SKEWED_WITHIN

    @cached_property
    def rows(self) -> RowTables:
        """Encoded rows ``[..., d]`` as a function of coordinates."""
        encoder, scale = self.encoder, self.encoder.scale
        at = encoder.numerical_positions
        origin = -encoder.shift / scale
        for j, value in self.constants.items():
            origin[at[j]] = (value - encoder.shift[at[j]]) / scale[at[j]]
        tables = []
        for k, block in enumerate(encoder.layout.categorical):
            positions = block.start + self.present[k]
            table = origin.new_zeros(len(positions), encoder.width)
            table[torch.arange(len(positions)), positions] = 1 / scale[positions]
            for j, tie in self.ties.items():
                if tie.column == k:
                    table[:, at[j]] = tie.values[self.present[k]] / scale[at[j]]
            tables.append(table)
        numbers = origin.new_zeros(len(self.free), encoder.width)
        for i, j in enumerate(self.free):
            numbers[i, at[j]] = self.unit[i] / scale[at[j]]
            origin[at[j]] = (self.center[i] - encoder.shift[at[j]]) / scale[at[j]]
        return RowTables(origin, tuple(tables), numbers)

    def first_layer(self, weight: Tensor, bias: Tensor) -> RowTables:
        """What a linear layer ``[h, d]`` makes of rows ``[..., h]`` as a function of coordinates."""
        weight, rows = weight.double().T, self.rows
        return RowTables(
            rows.base @ weight + bias.double(),
            tuple(table @ weight for table in rows.categories),
            rows.numbers @ weight,
        )

    def dependence(self, columns: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Encoded numbers as an affine function of the encoded row, ``[b]`` and ``[d, b]``; free ones of themselves.

        Args:
            columns: b of the numerical columns, by index among them.
        """
        encoder, at = self.encoder, self.encoder.numerical_positions
        offset, follows = encoder.shift.new_zeros(len(columns)), encoder.shift.new_zeros(encoder.width, len(columns))
        for i, j in enumerate(columns):
            if j in self.free:
                follows[at[j], i] = 1
                continue
            offset[i] = (self.constants.get(j, 0.0) - encoder.shift[at[j]]) / encoder.scale[at[j]]
            if j in self.ties:
                block, values = encoder.layout.categorical[self.ties[j].column], self.ties[j].values
                values = values / encoder.scale[at[j]]
                follows[block.slice, i] = encoder.scale[block.slice] * values
                offset[i] += (encoder.shift[block.slice] * values).sum()
        return offset, follows

    def draw(self, n: int, generator: torch.Generator, from_prior: bool = False) -> tuple[Tensor, Tensor]:
        """Random rows: codes ``[n, K]`` and numbers ``[n, F]``.

        Args:
            n: rows.
            generator: a CPU generator.
            from_prior: draw categories by their shares and put every skewed number at its bound; else categories
                evenly, for a search that must meet rare ones.
        """
        device = self.encoder.shift.device
        codes = []
        for k, present in enumerate(self.present):
            weights = self.prior.shares[k][present].cpu() if from_prior else torch.ones(len(present))
            weights = weights if float(weights.sum()) > 0 else torch.ones(len(present))
            codes.append(torch.multinomial(weights, n, replacement=True, generator=generator))
        numbers = torch.randn(n, len(self.free), generator=generator, dtype=torch.float64).to(device)
        at_bound = torch.rand(n, len(self.free), generator=generator) < (1.0 if from_prior else STARTS_AT_BOUND)
        skewed = torch.where(at_bound.to(device), self.lower, numbers.abs())
        numbers = self.clamp(torch.where(self.skewed, skewed, numbers))
        stacked = torch.stack(codes, -1) if codes else torch.empty(n, 0, dtype=torch.long)
        return stacked.to(device), numbers

    def clamp(self, numbers: Tensor) -> Tensor:
        """Numbers ``[..., F]`` inside their bounds."""
        return torch.maximum(torch.minimum(numbers, self.upper), self.lower)

    def rounded(self, numbers: Tensor, column: int | None = None) -> Tensor:
        """Numbers ``[..., F]`` at whole values of the table, whatever the columns' kinds.

        Args:
            numbers: ``[..., F]``.
            column: the one that is rounded; default all.
        """
        at = slice(None) if column is None else column
        whole, center, unit = numbers.clone(), self.center[at], self.unit[at]
        whole[..., at] = ((center + unit * numbers[..., at]).round() - center) / unit
        return whole

    def cells(self, codes: Tensor, numbers: Tensor, rounded: bool = True) -> tuple[Tensor, Tensor]:
        """Coordinates to what `TableEncoder.project` returns: category indices ``[..., K]``, values ``[..., m]``.

        Args:
            codes: ``[..., K]``.
            numbers: ``[..., F]``.
            rounded: give integer columns whole numbers.
        """
        empty = codes.new_empty(*codes.shape[:-1], 0)
        full = [present[codes[..., k]] for k, present in enumerate(self.present)]
        values = numbers.new_zeros(*numbers.shape[:-1], len(self.encoder.schema.numerical))
        free = self.center + numbers * self.unit
        values[..., list(self.free)] = torch.where(self.integer, free.round(), free) if rounded else free
        for j, value in self.constants.items():
            values[..., j] = value
        for j, tie in self.ties.items():
            values[..., j] = tie.values[full[tie.column]]
        return torch.stack(full, -1) if full else empty, values

    def coordinates(self, cells: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Inverse of `cells`; a category that is not present takes the first that is."""
        full, values = cells
        codes = [(full[..., k, None] == present).int().argmax(-1) for k, present in enumerate(self.present)]
        numbers = (values[..., list(self.free)] - self.center) / self.unit
        return torch.stack(codes, -1) if codes else full, self.clamp(numbers)

    def encode(self, cells: tuple[Tensor, Tensor]) -> Tensor:
        """Cells as the client's network saw them: float64 ``[..., d]`` with the rounding of float32."""
        return self.encoder.assemble(*cells).double()
