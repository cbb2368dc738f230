"""Cells that enter a network through embeddings: the first tested layer sees a sum of one vector per cell.

Such a layer's input is an affine function of the encoded row, found by exchanging one cell at a time, so its row space
gives linear equations on cells as that of a layer on the encoded row does. Which categories are in a batch is read off
the tables: the gradient of an embedding's row is the sum over the rows of that category. Tables are found by what their
gradient does as a cell is exchanged, not by their class or name: look-ups, and products with encoded blocks. Where a
block is standardized, a category that no row has shares the gradient ``-m_j / s_j`` times a vector common to its block.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor, nn

from lightleak.core.seeds import generator
from lightleak.data.encoder import TableEncoder

PROBES = 6
"""Random rows on which what one exchanged cell at a time says is checked."""

SAME = 1e-9
"""Relative difference in float64 below which two computations are the same."""

FAR = (10.0, -10.0, 100.0, -100.0)
"""Factors of random encoded values at which a layer must see them as it sees small ones: a clip shows there."""

ABSENT = 1e-5
"""Standardized blocks: part of the block's common vector within which those of absent categories agree."""


@dataclass(frozen=True)
class Affine:
    """``weight @ x + bias`` of encoded rows ``x``.

    Attributes:
        weight: ``[F, d]``.
        bias: ``[F]``.
    """

    weight: Tensor
    bias: Tensor

    def of(self, x: Tensor) -> Tensor:
        """``[n, F]`` of encoded rows ``[n, d]``."""
        return x @ self.weight.T + self.bias


@dataclass(frozen=True)
class _Table:
    """Where one categorical column's vectors lie.

    Attributes:
        name: of the parameter.
        transposed: categories are its columns.
        rows: of every category ``[width]``.
        standardized: it is multiplied with the encoded block rather than with zeros and a one.
    """

    name: str
    transposed: bool
    rows: Tensor
    standardized: bool

    def of(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Its part of a parameter, or of a gradient ``[width, e]``."""
        whole = parameters[self.name]
        return (whole.T if self.transposed else whole)[self.rows]


class Cells:
    """What the first layer and the tables say of cells.

    Args:
        module: float64, in the client's mode.
        encoder: of the rows, on the module's device.
        seen: the first tested layer's input as a function of encoded rows.
        observed: gradient of every parameter by name; None: nothing is known of the tables'.
    """

    def __init__(
        self, module: nn.Module, encoder: TableEncoder, seen: Affine, observed: Mapping[str, Tensor] | None
    ) -> None:
        self.module, self.encoder, self.seen = module, encoder, seen
        self.observed = None if observed is None else {k: v.to(seen.bias) for k, v in observed.items()}

    def scaled(self, factor: float) -> Self:
        """The same for a gradient times a factor."""
        observed = None if self.observed is None else {k: factor * v for k, v in self.observed.items()}
        return type(self)(self.module, self.encoder, self.seen, observed)

    def columns(self, gradient: Tensor, x: Tensor, counts: Tensor, n_rows: int) -> Tensor:
        """As the gradient of a layer that sees encoded rows, as far as the cells determine it; see `infer_domain`.

        Numbers, and categories whose vectors are independent, follow from the first layer's gradient; other categories
        from their tables. Categories that neither shows have the column of all rows: each may be there.

        Args:
            gradient: of the first layer, or what explained rows leave of it ``[h, F + 1]``.
            x: explained rows ``[r, d]``.
            counts: rows of each class equal to them ``[r, classes]``.
            n_rows: of the batch.
        """
        shift, scale = self.encoder.shift, self.encoder.scale
        weights, found = self._functionals
        by_cell = gradient @ weights
        # By raw cells, so that a column that is not determined is zero.
        raw = by_cell[:, :-1] * scale + by_cell[:, -1:] * shift
        tables = self.of_tables(x, counts, n_rows)
        raw = torch.where(found[:-1], raw, by_cell[:, -1:])
        for k in tables:
            raw[:, self.encoder.layout.categorical[k].slice] = 0
        encoded = (raw - by_cell[:, -1:] * shift) / scale
        parts = [torch.cat([encoded, by_cell[:, -1:]], 1)]
        for k, vectors in tables.items():
            part = gradient.new_zeros(vectors.shape[1], len(scale) + 1)
            at = self.encoder.layout.categorical[k].slice
            part[:, at] = vectors.T / scale[at]
            parts.append(part)
        return torch.cat(parts)

    @cached_property
    def _functionals(self) -> tuple[Tensor, Tensor]:
        """What turns ``(v, 1)`` into ``(x, 1)`` for rows of the table ``[F + 1, d + 1]``, and where it does."""
        shift, scale = self.encoder.shift, self.encoder.scale
        weight, bias = self.seen.weight, self.seen.bias
        last = torch.cat([bias, torch.ones_like(bias[:1])]).unsqueeze(0)
        matrix = torch.cat([torch.cat([weight.T, torch.zeros_like(weight[:1].T)], 1), last])
        sums = weight.new_zeros(len(self.encoder.layout.categorical), len(scale) + 1)
        for k, block in enumerate(self.encoder.layout.categorical):
            sums[k, block.slice], sums[k, -1] = scale[block.slice], shift[block.slice].sum() - 1
        basis = torch.linalg.qr(sums.T, mode="complete")[0][:, len(sums) :]
        seen = basis.T @ matrix
        weights = torch.linalg.pinv(seen, rtol=SAME) @ basis.T
        missed = (seen @ weights - basis.T).norm(dim=0)
        return weights, missed < 1e3 * SAME

    def of_tables(self, x: Tensor, counts: Tensor, n_rows: int) -> dict[int, Tensor]:
        """Sum of the errors at a column's vectors over the rows of every category ``[width, e]``, by column."""
        if self.observed is None or not self.tables:
            return {}
        left = self._left(sorted({table.name for each in self.tables.values() for table in each}), x, counts, n_rows)
        found = {}
        for k, tables in self.tables.items():
            block = self.encoder.layout.categorical[k].slice
            shift, scale = self.encoder.shift[block], self.encoder.scale[block]
            parts = [
                _unstandardized(table.of(left), table.of(self.observed), shift, scale)
                if table.standardized
                else table.of(left)
                for table in tables
            ]
            if all(part is not None for part in parts):
                found[k] = torch.cat([part for part in parts if part is not None], 1)
        return found

    def _left(self, names: list[str], x: Tensor, counts: Tensor, n_rows: int) -> Mapping[str, Tensor]:
        """What explained rows leave of the gradients by some parameters."""
        assert self.observed is not None
        if not len(x):
            return {name: self.observed[name] for name in names}
        gradients = gradients_by(self.module, names, x, mean_cross_entropy(counts, n_rows))
        return {name: self.observed[name] - gradients[name] for name in names}

    @cached_property
    def tables(self) -> dict[int, tuple[_Table, ...]]:
        """Tables of every categorical column that has any."""
        return find_tables(self.module, self.encoder)


def _unstandardized(left: Tensor, whole: Tensor, shift: Tensor, scale: Tensor) -> Tensor | None:
    """Sum of errors over the rows of each category, from products with a standardized block ``[width, e]``.

    ``s_j G_j = [rows of j] - m_j [all rows]``: the vector of all rows is the one that absent categories agree on.
    None where no two agree: then all categories may be there.
    """
    there = shift.abs() > 0
    size = (scale.unsqueeze(1) * whole)[there] / shift[there].unsqueeze(1)
    common = -(scale.unsqueeze(1) * left)[there] / shift[there].unsqueeze(1)
    near = torch.cdist(common, common) <= ABSENT * size.norm(dim=1).median()
    most = near.sum(1)
    if not len(common) or int(most.max()) < 2:
        return None
    agreed = near[most.argmax()]
    vectors = scale.unsqueeze(1) * left + shift.unsqueeze(1) * common[agreed].mean(0)
    vectors[there.nonzero().flatten()[agreed]] = 0
    return vectors


def affine_inputs(inputs: Tensor, encoder: TableEncoder) -> Affine | None:
    """A function of rows as an affine one, from its values at `exchanged_cells`; None where it is none.

    Args:
        inputs: ``[1 + d + PROBES, F]``.
        encoder: of the rows.
    """
    found = _by_exchange(inputs, encoder)
    made, probes = found.of(exchanged_cells(encoder)[1 + encoder.width :]), inputs[1 + encoder.width :]
    return found if bool((made - probes).norm() <= SAME * (1e-300 + probes.norm())) else None


def affine_elements(inputs: Tensor, encoder: TableEncoder) -> Tensor:
    """Derivatives by the numbers ``[E, m]`` of those elements that are affine in cells, large numbers included.

    Args:
        inputs: values at `exchanged_cells`, then at `far_cells` ``[n, F]``.
        encoder: of the rows.
    """
    found, rows = _by_exchange(inputs, encoder), torch.cat([exchanged_cells(encoder), far_cells(encoder)])
    is_affine = (found.of(rows) - inputs).norm(dim=0) <= SAME * inputs.norm(dim=0)
    return found.weight[is_affine][:, encoder.numerical_positions]


def _by_exchange(inputs: Tensor, encoder: TableEncoder) -> Affine:
    """The affine function of rows with these values at the first of `exchanged_cells`, one exchange each."""
    base, single = inputs[0], inputs[1 : 1 + encoder.width]
    by_cell = single - base
    weight, bias = by_cell.T * encoder.scale, base.clone()
    for block in encoder.layout.categorical:
        bias = bias + by_cell[block.slice].T @ encoder.shift[block.slice]
    at = encoder.numerical_positions
    weight[:, at] = by_cell[at].T
    return Affine(weight, bias)


def exchanged_cells(encoder: TableEncoder) -> Tensor:
    """A row, the same with one cell exchanged (a number 1 higher) by encoded position, random rows: float64."""
    draws = generator(0, "cells")
    blocks, at = encoder.layout.categorical, encoder.numerical_positions
    base = torch.zeros(1 + encoder.width + PROBES, encoder.width, dtype=torch.float64).to(encoder.shift.device)
    codes = torch.zeros(len(base), len(blocks), dtype=torch.long)
    for k, block in enumerate(blocks):
        codes[1 + block.start : 1 + block.stop, k] = torch.arange(block.width)
        codes[1 + encoder.width :, k] = torch.randint(block.width, (PROBES,), generator=draws)
        base[torch.arange(len(base)), block.start + codes[:, k]] = 1
    x = (base - encoder.shift) / encoder.scale
    x[:, at] = 0
    for j in at:
        x[1 + j, j] = 1
    x[1 + encoder.width :, at] = torch.randn(PROBES, len(at), generator=draws, dtype=torch.float64).to(x)
    return x


def far_cells(encoder: TableEncoder) -> Tensor:
    """The random rows of `exchanged_cells` with `FAR` times their numbers: float64 ``[len(FAR) PROBES, d]``."""
    rows, at = exchanged_cells(encoder)[-PROBES:], encoder.numerical_positions
    x = rows.repeat(len(FAR), 1)
    x[:, at] = torch.cat([factor * rows[:, at] for factor in FAR])
    return x


def find_tables(module: nn.Module, encoder: TableEncoder) -> dict[int, tuple[_Table, ...]]:
    """Parameters whose gradient shows which category of a column a row has, by column."""
    names = [name for name, parameter in module.named_parameters() if parameter.dim() == 2]
    rows = exchanged_cells(encoder)
    n_classes = module(rows[:1]).shape[-1]
    weights = torch.randn(n_classes, generator=generator(0, "margin"), dtype=torch.float64).to(rows)

    def gradients(index: int) -> dict[str, Tensor]:
        return gradients_by(module, names, rows[index : index + 1], lambda logits: (logits @ weights).sum())

    probes = {index: gradients(index) for index in range(1 + encoder.width, len(rows))}
    found: dict[int, tuple[_Table, ...]] = {}
    for k, block in enumerate(encoder.layout.categorical):
        each = [gradients(1 + p) for p in range(block.start, block.stop)]
        of_block = []
        for name in names:
            for transposed in (False, True):
                stacked = torch.stack([g[name].T if transposed else g[name] for g in each])
                table = _as_table(name, transposed, stacked, rows[1 + block.start : 1 + block.stop, block.slice])
                if table is not None and all(_holds(table, g, rows[i, block.slice]) for i, g in probes.items()):
                    of_block.append(table)
        if of_block:
            found[k] = tuple(of_block)
    return found


def _as_table(name: str, transposed: bool, gradients: Tensor, encoded: Tensor) -> _Table | None:
    """A column's table, from gradients ``[width, n, e]`` of one row of each category and their blocks."""
    there = gradients.any(-1)
    own = there & (there.sum(0) == 1)
    if bool((own.sum(1) == 1).all()):
        return _Table(name, transposed, own.int().argmax(1), standardized=False)
    rows = there.any(0).nonzero().flatten()
    if len(rows) != len(encoded) or len(rows) < 2:
        return None
    table = _Table(name, transposed, rows, standardized=True)
    parameters = (g.T if transposed else g for g in gradients)
    return table if all(_holds(table, {name: g}, x) for g, x in zip(parameters, encoded, strict=True)) else None


def _holds(table: _Table, gradients: Mapping[str, Tensor], encoded: Tensor) -> bool:
    """Whether one row's gradient by a table is its block times a vector."""
    part = table.of(gradients)
    code = int(encoded.argmax())
    factors = encoded / encoded[code] if table.standardized else (torch.arange(len(encoded)) == code).to(part)
    return bool((part - factors.unsqueeze(1) * part[code]).norm() <= 1e-6 * part.norm()) and bool(part[code].any())


def mean_cross_entropy(counts: Tensor, n_rows: int) -> Callable[[Tensor], Tensor]:
    """Mean loss over ``n_rows`` rows as a function of the logits of distinct ones, ``counts`` ``[r, classes]`` each."""
    return lambda logits: -(counts.to(logits) * logits.log_softmax(-1)).sum() / n_rows


def gradients_by(module: nn.Module, names: list[str], x: Tensor, loss: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Gradient by some parameters of a function of the logits of rows."""
    parameters = [module.get_parameter(name).requires_grad_(True) for name in names]
    try:
        with torch.enable_grad():
            found = torch.autograd.grad(loss(module(x)), parameters, materialize_grads=True)
    finally:
        for parameter in parameters:
            parameter.requires_grad_(False)
    return dict(zip(names, found, strict=True))
