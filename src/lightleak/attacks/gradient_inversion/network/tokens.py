"""Networks that embed cells as tokens and mix these, as attention does, before any layer sees one vector per row.

With a CLS head the feed-forward layers of the last block see all tokens, but the loss reads one of them: their gradient
is a sum of one product per row, its rank is at most the number of rows, and it tests whole rows. The same holds for
layers behind a pooling of tokens. No tested layer is linear in cells, so candidates are encoded rows, and each costs a
forward pass. The gradients of the embeddings show which categories and which constant numbers a batch has.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor, nn

from lightleak.attacks.gradient_inversion.network.cells import PROBES as NEAR
from lightleak.attacks.gradient_inversion.network.cells import (
    Affine,
    Cells,
    exchanged_cells,
    far_cells,
    gradients_by,
    mean_cross_entropy,
)
from lightleak.attacks.gradient_inversion.network.traced import (
    PROBES,
    Call,
    Cut,
    TracedNetwork,
    TracedView,
    affine_layers,
    apart,
    linear_layer,
    require_row_wise,
    same,
    slopes_by_outputs,
    tests_rows,
    trace,
    untrue,
)
from lightleak.core.errors import UnsupportedError
from lightleak.core.seeds import generator
from lightleak.data.encoder import TableEncoder
from lightleak.data.schema import ColumnKind
from lightleak.targets.client_form import network_name

AT_ONCE = 1024
"""Rows per forward pass: a transformer stores many vectors for each."""

MOST_VECTORS = 64
"""Parameters with more rows than this are not searched for the embeddings of numbers."""

PRESENT = 1e-6
"""A category is in the batch where the gradient of its embedding exceeds this part of the largest in its column."""

UNEXPLAINED = 1e-5
"""Part of an embedding's gradient that explained rows, whose numbers are not exact yet, may leave over; also the
relative difference within which the gradients of a number's weight and bias agree on a constant."""

ENOUGH_EQUATIONS = 16
"""Equations on a row with which a search finds it; more of them are worth less than clear ones."""

WHOLE_WITHIN = 0.1
"""Distance from a whole number below which the constant of an integer column is rounded."""


@dataclass(frozen=True)
class TokenPosition:
    """Position of the token that the loss reads, in the inputs and outputs of a layer.

    Attributes:
        dim: dimension of the tokens, 0 in ``[tokens, n, e]`` and 1 in ``[n, tokens, e]``.
        index: of the token.
    """

    dim: int
    index: int

    def select(self, tensor: Tensor) -> Tensor:
        """Return the token's vectors ``[n, e]``."""
        return tensor.select(self.dim, self.index)


class TokenNetwork(TracedNetwork):
    """A module whose tested layers all lie behind its tokens.

    Args:
        module: in the client's mode, with its weights, float64; it is not changed.
        names: tested layers in the order of their calls, that of the logits last.
        searched: see `RowNetwork.searched`.
        cells: what the gradients of embeddings show of a batch's cells.
        positions: of the token that the loss reads, by name of each layer that sees several vectors per row.
    """

    first_sees_cells: ClassVar[bool] = False
    search_share: ClassVar[float] = 0.125
    at_once = AT_ONCE
    cells: "TokenCells"

    def __init__(
        self,
        module: nn.Module,
        names: Sequence[str],
        searched: int,
        cells: "TokenCells",
        positions: Mapping[str, TokenPosition],
    ) -> None:
        super().__init__(module, names, searched, cells)
        self.positions = positions
        _ = self._cut  # a module that stores its attention weights cannot be copied after a pass with gradients

    @property
    def state_map(self) -> tuple[Tensor, Tensor]:
        """See `RowNetwork.state_map`: a state is the encoded row itself."""
        return self.cells.seen.weight, self.cells.seen.bias

    @property
    def first_input(self) -> Affine | None:
        """See `RowNetwork.first_input`: no tested layer sees an affine function of the row."""
        return None

    @property
    def _width(self) -> int:
        return len(self.cells.seen.bias)

    def known_of_numbers(self, encoder: TableEncoder) -> Tensor:
        """See `TracedNetwork.known_of_numbers`: numbers that multiply a vector enter affinely, too."""
        known = super().known_of_numbers(encoder)
        return torch.cat([known, torch.eye(known.shape[1]).to(known)[sorted(self.cells.numbers)]])

    def columns(self, gradient: Tensor, x: Tensor, counts: Tensor, n_rows: int) -> Tensor:
        """See `RowNetwork.columns`: a substitute gradient that shows the same categories and constants."""
        return self.cells.columns(gradient, x, counts, n_rows)

    def replay(self, x: Tensor, counts: Tensor, n_rows: int) -> Tensor:
        """See `RowNetwork.replay`: most parameters, those of embeddings and attention, belong to no tested layer."""
        observed = self.cells.observed or {}
        names = [name for name, _ in self.module.named_parameters() if name in observed]  # a client may freeze some
        loss, in_float32 = mean_cross_entropy(counts, n_rows), self._cut.to(torch.float32).module
        exact = gradients_by(self.module, names, x, loss)
        rounded = gradients_by(in_float32, names, x.float(), loss)
        norms = [
            ((observed[name] - own).norm(), observed[name].norm(), (rounded[name].double() - own).norm())
            for name, own in exact.items()
        ]
        return torch.stack([torch.stack(each) for each in norms])

    def of_rows(self, name: str, tensor: Tensor) -> Tensor:
        """See `TracedNetwork.of_rows`: the token that the loss reads."""
        return self.positions[name].select(tensor) if name in self.positions else tensor

    def gradient(self, x: Tensor, counts: Tensor, n_rows: int) -> tuple[Tensor, ...]:
        """See `RowNetwork.gradient`; the last column of a layer without a bias is zero."""
        gradients = super().gradient(x, counts, n_rows)
        has_bias = [linear_layer(self.module, name).bias is not None for name in self.names]
        return tuple(
            part if bias else torch.cat([part[:, :-1], torch.zeros_like(part[:, -1:])], 1)
            for part, bias in zip(gradients, has_bias, strict=True)
        )

    def view(self) -> "TokenView":
        """See `RowNetwork.view`."""
        return TokenView(self._cut, self.n_classes)

    @cached_property
    def _cut(self) -> Cut:
        name = self.names[self.searched]
        return _RowCut(self.module, name, self._width, self.positions.get(name))


class TokenView(TracedView):
    """View of a token network: the row space alone is searched, as a backward pass per candidate costs too much."""

    def to(self, dtype: torch.dtype) -> "TokenView":
        """See `SearchView.to`."""
        return TokenView(self.cut.to(dtype), self.n_classes)

    @property
    def has_directions(self) -> bool:
        """See `SearchView.has_directions`."""
        return False


class _RowCut(Cut):
    """A copy of a module that takes encoded rows as states.

    Args:
        module: the whole.
        searched: name of the searched layer.
        width: of encoded rows.
        position: of the token that the loss reads; None: the searched layer sees one vector per row.
    """

    def __init__(self, module: nn.Module, searched: str, width: int, position: TokenPosition | None) -> None:
        super().__init__(module, searched, searched, width, reads_rows=True)
        self.position = position

    def searched_input(self, state: Tensor) -> Tensor:
        """See `Cut.searched_input`."""
        reached = super().searched_input
        inputs = [reached(rows) for rows in state.split(AT_ONCE)]
        return torch.cat(inputs if self.position is None else [self.position.select(part) for part in inputs])


class TokenCells(Cells):
    """What the gradients of embeddings show of a batch's cells."""

    def columns(self, gradient: Tensor, x: Tensor, counts: Tensor, n_rows: int) -> Tensor:
        """Return a gradient ``[2, d + 1]`` from which `infer_domain` reads the categories and constants of a batch.

        Both its rows have a bias column, ``(1, 0)``. The column of a number that is constant is a multiple of it, that
        of an absent category is zero; all others are independent of it.

        Args:
            gradient: only its device and precision are used.
            x: explained rows ``[r, d]``.
            counts: rows of each class that are equal to them ``[r, classes]``.
            n_rows: rows of the batch.
        """
        raw = torch.zeros(2, self.encoder.width + 1).to(gradient)
        raw[0, -1] = 1
        for block, present in zip(self.encoder.layout.categorical, self._present(x, counts, n_rows), strict=True):
            raw[1, block.start : block.stop] = present.to(raw)
        constants = self._constants(x, counts, n_rows)
        for j, position in enumerate(self.encoder.numerical_positions):
            raw[0, position], raw[1, position] = constants.get(j, 0.0), float(j not in constants)
        encoded = (raw[:, :-1] - raw[:, -1:] * self.encoder.shift) / self.encoder.scale
        return torch.cat([encoded, raw[:, -1:]], 1)

    def _present(self, x: Tensor, counts: Tensor, n_rows: int) -> list[Tensor]:
        """Return the categories that unexplained rows may have, bool ``[width]`` per column; all if it has no table."""
        left = self.of_tables(x, counts, n_rows)
        whole = self.of_tables(x[:0], counts[:0], n_rows) if len(x) else left
        columns = []
        for k, block in enumerate(self.encoder.layout.categorical):
            if k not in left or k not in whole:
                columns.append(torch.ones(block.width, dtype=torch.bool))
                continue
            norms, all_norms = left[k].norm(dim=1), whole[k].norm(dim=1)
            present = norms > PRESENT * all_norms.max() + (UNEXPLAINED * all_norms if len(x) else 0)
            columns.append(present if bool(present.any()) else norms >= norms.max())
        return columns

    def _constants(self, x: Tensor, counts: Tensor, n_rows: int) -> dict[int, float]:
        """Return the values, in the table's units, of numbers that are equal in all unexplained rows, by column."""
        if self.observed is None or not self.numbers:
            return {}
        names = sorted({vector.name for pair in self.numbers.values() for vector in (pair.weight, pair.bias)})
        left, constants = self._left(names, x, counts, n_rows), {}
        positions = self.encoder.numerical_positions
        for j, pair in self.numbers.items():
            weight, bias = pair.weight.of(left), pair.bias.of(left)
            all_weight, all_bias = (vector.of(self.observed).norm() for vector in (pair.weight, pair.bias))
            if not bool(bias.norm() > 1e3 * PRESENT * all_bias):
                continue
            factor = (bias @ weight) / (bias @ bias)
            allowed = UNEXPLAINED * torch.maximum(all_weight, factor.abs() * all_bias)
            if not bool((weight - factor * bias).norm() <= allowed):
                continue
            at, encoded = positions[j], (factor - pair.offset) / pair.slope
            value = float(encoded * self.encoder.scale[at] + self.encoder.shift[at])
            if self.encoder.schema.numerical[j].kind is ColumnKind.INTEGER:
                if abs(value - round(value)) >= WHOLE_WITHIN:
                    continue
                value = float(round(value))
            constants[j] = value
        return constants

    @cached_property
    def numbers(self) -> dict[int, "NumberEmbedding"]:
        """Embeddings of numbers by column, as far as `find_number_embeddings` finds any."""
        return find_number_embeddings(self.module, self.encoder)


@dataclass(frozen=True)
class ParameterRow:
    """One row of a parameter.

    Attributes:
        name: of the parameter.
        transposed: rows are those of its transpose.
        row: index.
    """

    name: str
    transposed: bool
    row: int

    def of(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Return the same row of the parameter's gradient ``[e]``."""
        return _rows_of(tensors[self.name], self.transposed)[self.row]


@dataclass(frozen=True)
class NumberEmbedding:
    """A number x, encoded, whose token is ``(slope x + offset) weight + bias``: its gradients have the same ratio."""

    weight: ParameterRow
    bias: ParameterRow
    slope: float
    offset: float


def find_number_embeddings(module: nn.Module, encoder: TableEncoder) -> dict[int, NumberEmbedding]:
    """Find pairs of parameter rows the ratio of whose gradients is, for every row, affine in one number.

    Args:
        module: float64, without gradients.
        encoder: of its rows.

    Returns:
        Embeddings by numerical column.
    """
    near = exchanged_cells(encoder)[-NEAR:]
    rows = torch.cat([near, far_cells(encoder)])
    names = [name for name, parameter in module.named_parameters() if parameter.dim() in (1, 2)]
    weights = torch.randn(module(rows[:1]).shape[-1], generator=generator(0, "margin"), dtype=torch.float64).to(rows)
    each = [gradients_by(module, names, row.unsqueeze(0), lambda logits: (logits @ weights).sum()) for row in rows]
    candidates: dict[int, list[tuple[ParameterRow, Tensor]]] = {}
    for name in names:
        for transposed in (False, True)[: each[0][name].dim()]:
            stacked = torch.stack([_rows_of(gradients[name], transposed) for gradients in each])
            if stacked.shape[1] > MOST_VECTORS or stacked.shape[2] < 2:
                continue
            for row in stacked[:NEAR].any(-1).all(0).nonzero().flatten().tolist():
                candidate = ParameterRow(name, transposed, row), stacked[:, row]
                candidates.setdefault(stacked.shape[2], []).append(candidate)
    found: dict[int, NumberEmbedding] = {}
    for of_one_length in candidates.values():
        _match(of_one_length, rows[:, encoder.numerical_positions], found)
    return found


def _match(candidates: list[tuple[ParameterRow, Tensor]], numbers: Tensor, found: dict[int, NumberEmbedding]) -> None:
    """Add the pairs among parameter rows of one length to ``found``.

    Args:
        candidates: parameter rows and their gradients ``[rows, e]``.
        numbers: encoded numbers of the same rows, the first `NEAR` of them small ``[rows, m]``.
        found: embeddings by column.
    """
    gradients = torch.stack([gradient for _, gradient in candidates])
    direction = torch.randn(gradients.shape[-1], generator=generator(0, "mixed"), dtype=torch.float64)
    projected = gradients[:, :NEAR] @ direction.to(numbers)
    for j in range(numbers.shape[1]):
        every = torch.stack([numbers[:, j], torch.ones_like(numbers[:, j])], 1)
        design = every[:NEAR]
        inverse = torch.linalg.pinv(design)
        for at, (bias, gradient) in enumerate(candidates):
            ratios = projected / projected[at]
            fits = ratios @ inverse.T
            misfit, size = (ratios - fits @ design.T).norm(dim=1), ratios.norm(dim=1)
            affine = (misfit <= PRESENT * size) & (fits[:, 0].abs() > PRESENT * size)
            for other in affine.nonzero().flatten().tolist():
                difference = (gradients[other] - (every @ fits[other]).unsqueeze(1) * gradient).norm(dim=1)
                allowed = PRESENT * (every.abs() @ fits[other].abs()) * gradient.norm(dim=1)
                # Attention may pay no heed to a large number, and then nothing is seen of it.
                seen = numbers[NEAR:, j][gradient[NEAR:].any(1)]
                is_seen = bool((seen > 0).any() and (seen < 0).any())
                if j not in found and is_seen and bool((difference <= allowed).all()):
                    slope, offset = fits[other].tolist()
                    found[j] = NumberEmbedding(candidates[other][0], bias, slope, offset)


def _rows_of(tensor: Tensor, transposed: bool) -> Tensor:
    if tensor.dim() == 1:
        return tensor.unsqueeze(0)
    return tensor.T if transposed else tensor


def trace_any(
    module: nn.Module,
    width: int,
    n_rows: int,
    encoder: TableEncoder | None = None,
    observed: Mapping[str, Tensor] | None = None,
) -> TracedNetwork:
    """Trace a module as `trace` does, including modules that mix tokens before any layer sees one vector per row.

    Raises:
        UnsupportedError: naming the reason.
    """
    if encoder is not None and (found := _trace_tokens(module, n_rows, encoder, observed)) is not None:
        return found
    return trace(module, width, n_rows, encoder, observed)


def _trace_tokens(
    module: nn.Module, n_rows: int, encoder: TableEncoder, observed: Mapping[str, Tensor] | None
) -> TokenNetwork | None:
    """Return the layers behind the tokens; None where the module has no tokens."""
    module = copy.deepcopy(module).double().requires_grad_(False)
    probes = exchanged_cells(encoder)[-PROBES:]
    linears = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    try:
        calls, positions, logits = _watched_calls(copy.deepcopy(module), linears, probes)
    except RuntimeError:
        return None  # `trace` reports the reason
    flat = [name for name, call in calls.items() if tests_rows(linear_layer(module, name), call, needs_bias=False)]
    if any(same(calls[name].inputs, probes) for name in flat):
        return None
    affine = affine_layers(module, flat, encoder)
    if affine and not positions:
        return None
    require_row_wise(module, probes)
    # The order of a dict is that of the calls.
    own = {name for name, _ in module.named_parameters()}
    usable = [name for name in calls if name in positions or (name in flat and name not in affine)]
    usable = [name for name in usable if f"{name}.weight" in own]  # no weight that is shared or computed
    last = next((name for name in usable if name in flat and same(calls[name].output, logits)), None)
    if last is None or linear_layer(module, last).bias is None:
        return None
    read = {name: Call(at.select(calls[name].inputs), calls[name].output) for name, at in positions.items()}
    inner = apart(module, [name for name in usable if name != last], {**calls, **read}, probes)
    cells = TokenCells(module, encoder, _identity(encoder), observed)
    wrong = untrue(TokenNetwork(copy.deepcopy(module), [*inner, last], 0, cells, positions), probes) if inner else set()
    names = [name for name in (*inner, last) if name not in wrong]
    if len(names) < 2 or names[-1] != last:
        raise UnsupportedError(
            f"no Linear layer of {network_name(module)} between its tokens and its logits sees one vector per row"
        )
    shapes = TokenNetwork(module, names, 0, cells, positions).shapes[:-1]
    searched = _searched_layer(shapes, n_rows, None if observed is None else [observed[f"{n}.weight"] for n in names])
    return TokenNetwork(module, names, searched, cells, positions)


def _searched_layer(shapes: Sequence[tuple[int, int]], n_rows: int, gradients: Sequence[Tensor] | None) -> int:
    """Return the layer whose gradient shows most rows, and shows them most clearly.

    A wide layer that sees nearly the same vector for every row leaves many equations, all of them blurred by rounding.

    Args:
        shapes: outputs, and inputs and a one, of every layer but that of the logits.
        n_rows: rows of the batch.
        gradients: by the weights of the same layers ``[out, in]``; None: nothing was observed.
    """

    def preference(i: int) -> tuple[int, bool, float, int, int]:
        rows, inputs = min(*shapes[i], n_rows), shapes[i][1]
        return (
            rows,
            inputs - rows >= ENOUGH_EQUATIONS,
            0.0 if gradients is None else _clarity(gradients[i], rows),
            inputs,
            -i,
        )

    return max(range(len(shapes)), key=preference)


def _clarity(gradient: Tensor, rows: int) -> float:
    """Mean logarithm of the singular values that ``rows`` rows cause, relative to the largest."""
    values = torch.linalg.svdvals(gradient.double())[:rows]
    return (
        float((values / values[0]).clamp_min(torch.finfo(torch.float32).eps).log().mean())
        if bool(values.any())
        else -torch.inf
    )


def _identity(encoder: TableEncoder) -> Affine:
    eye = torch.eye(encoder.width, dtype=torch.float64, device=encoder.shift.device)
    return Affine(eye, torch.zeros_like(eye[0]))


def _watched_calls(
    module: nn.Module, names: Sequence[str], probes: Tensor
) -> tuple[dict[str, Call], dict[str, TokenPosition], Tensor]:
    """Return the calls of linear layers that the logits follow from, the positions of tokens, and the logits.

    Positions are of the layers that see several vectors per row, exactly one of which the logits ``[n, classes]``
    depend on.
    """
    calls, found, logits = slopes_by_outputs(module, names, probes)
    positions = {}
    for name, slopes in found.items():
        for dim in (0, 1) if slopes.dim() == 3 and calls[name].times == 1 else ():
            reached = slopes.any(-1).any(1 - dim).nonzero().flatten().tolist()
            if len(reached) == 1 and slopes.shape[1 - dim] == len(probes):
                positions[name] = TokenPosition(dim, reached[0])
    return {name: calls[name] for name in found}, positions, logits
