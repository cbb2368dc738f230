"""Any network that works row by row, seen through its linear layers: found by running it, not by its name.

A module is run on made rows while every linear layer is watched. A layer that is called once, on one vector per row,
has a gradient that is a sum over rows (`RowNetwork`); what lies between such layers (activations, residual sums, layer
normalization, gates, statistics that are known) may be anything. Errors follow by backward passes, one per class but
one, as they are linear in the derivatives by the logits; derivatives by differences in float64.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Self, TypeVar

import torch
from torch import Tensor, nn

from lightleak.attacks.gradient_inversion.network.cells import (
    FAR,
    Affine,
    Cells,
    affine_elements,
    affine_inputs,
    exchanged_cells,
    far_cells,
)
from lightleak.attacks.gradient_inversion.network.linear_forms import Forms
from lightleak.attacks.gradient_inversion.network.row_network import RowActivations, RowNetwork
from lightleak.attacks.gradient_inversion.network.search_view import SearchView
from lightleak.core.errors import UnsupportedError
from lightleak.core.seeds import generator
from lightleak.data.encoder import TableEncoder
from lightleak.targets.client_form import OneHotEmbedding, network_name

PROBES = 5
"""Made rows on which a module is run to see what it computes."""

SAME = 1e-9
"""Relative difference in float64 below which two computations are the same."""

STEP = 1e-5
"""Of central differences, in encoded units: their error is about 1e-10 of the third derivative, rounding 1e-11."""

COARSE_STEP = 1e-2
"""Of central differences in float32, in deviations of a number; a search needs no more."""

AT_ONCE = 8192
"""Rows whose backward passes are made at once, unless a network holds more per row."""


@dataclass(frozen=True)
class TracedActivations(RowActivations):
    """What a traced network computes for rows.

    Attributes:
        rows: encoded rows ``[..., d]``.
    """

    rows: Tensor


class TracedNetwork(RowNetwork):
    """A module whose linear layers test rows.

    Args:
        module: in the client's mode, with its weights, float64; it is not changed.
        names: tested layers in the order of their calls, the first layer first, the logits' last.
        searched: see `RowNetwork.searched`.
        cells: how cells enter the first layer; None: it sees the encoded row.

    Attributes:
        forms: of the layers that were no ``nn.Linear`` in the client's module, by name.
    """

    forms: Forms = MappingProxyType({})
    at_once = AT_ONCE

    def __init__(self, module: nn.Module, names: Sequence[str], searched: int, cells: Cells | None = None) -> None:
        self.module, self.names, self._searched, self.cells = module, tuple(names), searched, cells

    @property
    def depth(self) -> int:
        """See `RowNetwork.depth`."""
        return len(self.names)

    @property
    def n_classes(self) -> int:
        """See `RowNetwork.n_classes`."""
        return self._layer(-1).out_features

    @property
    def searched(self) -> int:
        """See `RowNetwork.searched`."""
        return self._searched

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Outputs, and inputs and a one, of every tested layer."""
        layers = [self._layer(index) for index in range(self.depth)]
        return [(layer.out_features, layer.in_features + 1) for layer in layers]

    @property
    def state_map(self) -> tuple[Tensor, Tensor]:
        """See `RowNetwork.state_map`: the first layer, and the row itself where the network also reads it elsewhere."""
        first = self._layer(0)
        eye = torch.eye(self._width).to(first.weight)
        rows = eye, torch.zeros_like(eye[0])
        if self._cut.takes_rows:
            return rows
        weight, bias = first.weight.detach(), first.bias.detach()
        if (seen := self.first_input) is not None:
            weight, bias = weight @ seen.weight, weight @ seen.bias + bias
        if not self._cut.reads_rows:
            return weight, bias
        return torch.cat([weight, rows[0]]), torch.cat([bias, rows[1]])

    @property
    def _width(self) -> int:
        return self._layer(0).in_features if self.first_input is None else self.first_input.weight.shape[1]

    @property
    def first_input(self) -> Affine | None:
        """See `RowNetwork.first_input`."""
        return None if self.cells is None else self.cells.seen

    @cached_property
    def numbers_enter_affinely(self) -> bool:
        """See `RowNetwork.numbers_enter_affinely`."""
        if self.cells is None:
            return True
        known = self.known_of_numbers(self.cells.encoder)
        return int(torch.linalg.matrix_rank(known)) == known.shape[1]

    def known_of_numbers(self, encoder: TableEncoder) -> Tensor:
        """Affine functions of numbers that enter linear layers on which the logits depend, their slopes ``[E, m]``."""
        rows = torch.cat([exchanged_cells(encoder), far_cells(encoder)])
        names = [name for name, layer in self.module.named_modules() if isinstance(layer, nn.Linear)]
        found = [rows.new_zeros(0, len(encoder.numerical_positions))]
        calls, slopes, _ = slopes_by_outputs(self.module, names, rows)
        for name, slope in slopes.items():
            inputs = calls[name].inputs
            if calls[name].times == 1 and len(inputs) == len(rows) and bool(slope.any()):
                found.append(affine_elements(inputs.flatten(1), encoder))
        return torch.cat(found)

    def columns(self, gradient: Tensor, x: Tensor, counts: Tensor, n_rows: int) -> Tensor:
        """See `RowNetwork.columns`."""
        return gradient if self.cells is None else self.cells.columns(gradient, x, counts, n_rows)

    def scaled(self, factor: float) -> Self:
        """See `RowNetwork.scaled`."""
        other = copy.copy(self)
        other.cells = None if self.cells is None else self.cells.scaled(factor)
        return other

    def view(self) -> "TracedView":
        """See `RowNetwork.view`."""
        return TracedView(self._cut, self.n_classes)

    def of_rows(self, name: str, tensor: Tensor) -> Tensor:
        """The one vector per row ``[n, ...]`` in a layer's inputs or outputs."""
        return tensor

    def forward(self, x: Tensor) -> TracedActivations:
        """See `RowNetwork.forward`."""
        flat = x.flatten(0, -2)
        with torch.no_grad(), watched(self.module, self.names) as calls:
            logits = self.module(flat)
        hidden = tuple(self.of_rows(name, calls[name].inputs).unflatten(0, x.shape[:-1]) for name in self.names)
        return TracedActivations(hidden, logits.softmax(-1).unflatten(0, x.shape[:-1]), x)

    def backpropagated(self, layer: int, activations: TracedActivations, output: Tensor) -> Tensor:
        """See `RowNetwork.backpropagated`."""
        return _times(output, self._by_logits(activations.rows, [self.names[layer]])[0])

    def errors(self, activations: TracedActivations, output: Tensor) -> tuple[Tensor, ...]:
        """See `RowNetwork.errors`."""
        return tuple(_times(output, each) for each in self._by_logits(activations.rows, self.names))

    def slopes(self, activations: TracedActivations, directions: Tensor) -> tuple[Tensor, ...]:
        """See `RowNetwork.slopes`."""
        return self._differences(lambda x: self.forward(x).hidden, activations.rows, directions)

    def error_slopes(
        self, activations: TracedActivations, counts: Tensor, directions: Tensor, n_rows: int = 1
    ) -> tuple[Tensor, ...]:
        """See `RowNetwork.error_slopes`."""

        def errors(x: Tensor) -> tuple[Tensor, ...]:
            moved = self.forward(x)
            shared = counts.unsqueeze(-2).expand(*counts.shape[:-1], len(directions), -1)
            return self.errors_of_rows(moved, shared, n_rows)

        return self._differences(errors, activations.rows, directions)

    def cell_steps(self, x: Tensor, encoder: TableEncoder) -> tuple[Tensor, ...]:
        """See `RowNetwork.cell_steps`: numbers by differences, categories by what an exchange really does."""
        at = encoder.numerical_positions
        here = self.forward(x)
        steps = tuple(h.new_zeros(*x.shape, h.shape[-1]) for h in here.hidden)
        for step, slopes in zip(steps, self.slopes(here, torch.eye(x.shape[1])[at].to(x)), strict=True):
            step[:, at] = slopes
        codes, values = encoder.project(x, clamp=False)
        for k, block in enumerate(encoder.layout.categorical):
            positions = torch.arange(block.start, block.start + block.width, device=x.device)
            others = codes.unsqueeze(1).repeat(1, block.width, 1)
            others[..., k] = torch.arange(block.width, device=x.device)
            kept = values.unsqueeze(1).expand(-1, block.width, -1)
            swapped = self.forward(encoder.assemble(others, kept).double()).hidden
            for step, moved, own in zip(steps, swapped, here.hidden, strict=True):
                step[:, positions] = (moved - own.unsqueeze(1)) * encoder.scale[positions].unsqueeze(-1)
        return steps

    @cached_property
    def _cut(self) -> "Cut":
        first, searched = self.names[0], self.names[self.searched]
        whole = Cut(self.module, first, searched, self._width, reads_rows=True)
        if whole.takes_rows:
            return whole
        draws = generator(0, "states")
        layer = self._layer(0)
        units = torch.randn(PROBES, layer.out_features, generator=draws, dtype=torch.float64).to(layer.weight)
        rows = torch.randn(2, PROBES, self._width, generator=draws, dtype=torch.float64).to(layer.weight)
        with torch.no_grad():
            one, other = (whole.logits(torch.cat([units, x], -1)) for x in rows)
        return Cut(self.module, first, searched, self._width, reads_rows=not same(one, other))

    def _layer(self, index: int) -> nn.Linear:
        return linear_layer(self.module, self.names[index])

    def _by_logits(self, x: Tensor, names: Sequence[str]) -> tuple[Tensor, ...]:
        """Derivatives of every logit minus the last by the layers' outputs, ``[..., classes - 1, out]``."""
        parts = [self._derivatives(rows, names) for rows in x.flatten(0, -2).split(self.at_once)]
        return tuple(torch.cat(layer).unflatten(0, x.shape[:-1]) for layer in zip(*parts, strict=True))

    def _derivatives(self, rows: Tensor, names: Sequence[str]) -> tuple[Tensor, ...]:
        with torch.enable_grad(), watched(self.module, names) as calls:
            logits = self.module(rows.detach().requires_grad_())
            outputs = [calls[name].output for name in names]
            margins = (logits[:, :-1] - logits[:, -1:]).sum(0)
            found = [
                torch.autograd.grad(margin, outputs, retain_graph=True, materialize_grads=True) for margin in margins
            ]
        by_layer = zip(names, zip(*found, strict=True), strict=True)
        return tuple(torch.stack([self.of_rows(name, part) for part in layer], 1) for name, layer in by_layer)

    @staticmethod
    def _differences(
        function: Callable[[Tensor], tuple[Tensor, ...]], x: Tensor, directions: Tensor
    ) -> tuple[Tensor, ...]:
        """Derivatives of functions of rows ``[..., d]`` along ``directions`` ``[F, d]``, ``[..., F, ...]`` each."""
        length = directions.norm(dim=-1, keepdim=True)
        steps = STEP * directions / length
        ahead, behind = (function(x.unsqueeze(-2) + sign * steps) for sign in (1, -1))
        return tuple((a - b) * length / (2 * STEP) for a, b in zip(ahead, behind, strict=True))


class TracedView(SearchView):
    """Of a traced network; states are outputs of its first layer, or rows where that layer is the searched one.

    Args:
        cut: the network behind its first layer.
        n_classes: of the network.
        metric: see `SearchView.onto`.
    """

    def __init__(self, cut: "Cut", n_classes: int, metric: Tensor | None = None) -> None:
        self.cut, self.n_classes, self.metric = cut, n_classes, metric

    def to(self, dtype: torch.dtype) -> "TracedView":
        """See `SearchView.to`."""
        return TracedView(self.cut.to(dtype), self.n_classes, None if self.metric is None else self.metric.to(dtype))

    def hidden(self, state: Tensor) -> Tensor:
        """See `SearchView.hidden`."""
        return self.cut.searched_input(state.flatten(0, -2)).unflatten(0, state.shape[:-1])

    def jacobian(self, state: Tensor, steps: Tensor, metric: Tensor) -> Tensor:
        """See `SearchView.jacobian`, by differences."""
        return (self._moved(self.hidden, state, steps) @ metric).mT

    def direction_slopes(self, state: Tensor, steps: Tensor) -> Tensor:
        """See `SearchView.direction_slopes`, by differences."""
        return self._moved(self.directions, state, steps).mT

    @staticmethod
    def _moved(function: Callable[[Tensor], Tensor], state: Tensor, steps: Tensor) -> Tensor:
        """Derivatives of a function of states along ``steps`` ``[F, h]``, ``[n, F, ...]``."""
        step = STEP if state.dtype == torch.float64 else COARSE_STEP
        ahead, behind = (function(state.unsqueeze(-2) + sign * step * steps) for sign in (1, -1))
        return (ahead - behind) / (2 * step)

    @property
    def has_directions(self) -> bool:
        """See `SearchView.has_directions`."""
        return self.n_classes == 2

    def onto(self, metric: Tensor) -> "TracedView":
        """See `SearchView.onto`."""
        return TracedView(self.cut, self.n_classes, metric)

    def directions(self, state: Tensor) -> Tensor:
        """See `SearchView.directions`."""
        found = self.cut.margin_slopes(state.flatten(0, -2)).unflatten(0, state.shape[:-1])
        return found if self.metric is None else found @ self.metric


class _Reached(Exception):
    """The searched layer is reached; nothing behind it is needed."""


class _Given(nn.Module):
    """In the place of a first layer: returns what it was given, whatever the rows."""

    value: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """A copy of the given value, into which the next layer may write."""
        return self.value.clone()


class Cut:
    """A copy of a module that takes states: what its first layer returns, and the rows where they are read again.

    Args:
        module: the whole.
        first: name of the first layer.
        searched: name of the searched layer; where it is the first, states are rows.
        width: of encoded rows.
        reads_rows: whether states hold rows behind the first layer's outputs.
    """

    def __init__(self, module: nn.Module, first: str, searched: str, width: int, reads_rows: bool) -> None:
        self.module, self.reads_rows, self._given = copied(module, module), reads_rows, _Given()
        self._width = width
        self._first, self._searched = linear_layer(module, first), searched
        self.takes_rows = first == searched
        if not self.takes_rows:
            self.module.set_submodule(first, self._given)

    def to(self, dtype: torch.dtype) -> "Cut":
        """The same in another precision."""
        other = copied(self, self.module)
        other.module.to(dtype)
        return other

    def searched_input(self, state: Tensor) -> Tensor:
        """Input of the searched layer ``[n, in]``."""
        found: list[Tensor] = []

        def stop(layer: nn.Module, args: tuple[Tensor, ...]) -> None:
            found.append(args[0])
            raise _Reached

        handle = self.module.get_submodule(self._searched).register_forward_pre_hook(stop)
        try:
            with torch.no_grad():
                self.logits(state)
        except _Reached:
            pass
        finally:
            handle.remove()
        return found[0]

    def margin_slopes(self, state: Tensor) -> Tensor:
        """Derivative of the first logit minus the second by the searched layer's output ``[n, out]``."""
        found: list[Tensor] = []

        def start(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
            found.append(output.detach().requires_grad_())
            return found[0].clone()  # no activation may write into a leaf

        handle = self.module.get_submodule(self._searched).register_forward_hook(start)
        try:
            with torch.enable_grad():
                logits = self.logits(state)
                return torch.autograd.grad((logits[:, 0] - logits[:, 1]).sum(), found[0])[0]
        finally:
            handle.remove()

    def logits(self, state: Tensor) -> Tensor:
        """Logits ``[n, classes]``."""
        if self.takes_rows:
            logits: Tensor = self.module(state)
            return logits
        units, rows = state.split([self._first.out_features, state.shape[-1] - self._first.out_features], -1)
        self._given.value = units
        return self.module(rows if self.reads_rows else state.new_zeros(1, 1).expand(len(state), self._width))


def linear_layer(module: nn.Module, name: str) -> nn.Linear:
    """The linear layer of that name."""
    layer = module.get_submodule(name)
    assert isinstance(layer, nn.Linear)
    return layer


Copied = TypeVar("Copied")


def copied(thing: Copied, module: nn.Module) -> Copied:
    """A copy of something that holds a module, without the graph of what a forward pass stored in the module."""
    stored = [each for part in module.modules() for each in vars(part).values() if isinstance(each, Tensor)]
    return copy.deepcopy(thing, {id(each): each.detach() for each in stored})


@dataclass
class Call:
    """What a linear layer was called with.

    Attributes:
        inputs, output: of its last call.
        times: how often.
    """

    inputs: Tensor
    output: Tensor
    times: int = 1


@contextmanager
def watched(module: nn.Module, names: Sequence[str]) -> Iterator[dict[str, Call]]:
    """Within the block, calls of these linear layers are recorded by name, in the order of their first calls.

    The module computes on with a copy of each output: ``ReLU(inplace=True)`` would overwrite what is recorded.
    """
    calls: dict[str, Call] = {}

    def recorder(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
        def record(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
            before = calls[name].times if name in calls else 0
            if torch.is_grad_enabled() and not output.requires_grad:
                output.requires_grad_()  # behind a look-up nothing connects it to the rows
            calls[name] = Call(args[0], output, before + 1)
            return output.clone()

        return record

    handles = [module.get_submodule(name).register_forward_hook(recorder(name)) for name in names]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def slopes_by_outputs(
    module: nn.Module, names: Sequence[str], rows: Tensor
) -> tuple[dict[str, Call], dict[str, Tensor], Tensor]:
    """Calls of linear layers, derivatives by the outputs of those that the logits follow from, and the logits.

    No derivative leads to a decoder that the logits do not use, or to a gate that is open or shut.
    """
    with torch.enable_grad(), watched(module, names) as calls:
        logits = module(rows.clone().requires_grad_())
        weights = torch.randn(logits.shape, generator=generator(0, "margin"), dtype=torch.float64).to(logits)
        outputs = [call.output for call in calls.values()]
        slopes = torch.autograd.grad((logits * weights).sum(), outputs, allow_unused=True) if outputs else ()
    plain = {name: Call(call.inputs.detach(), call.output.detach(), call.times) for name, call in calls.items()}
    found = {name: slope for name, slope in zip(calls, slopes, strict=True) if slope is not None}
    return plain, found, logits.detach()


def trace(
    module: nn.Module,
    width: int,
    n_rows: int,
    encoder: TableEncoder | None = None,
    observed: Mapping[str, Tensor] | None = None,
) -> TracedNetwork:
    """Find the layers of a module that test rows.

    Args:
        module: in the client's mode, with its weights; it is copied.
        width: of encoded rows.
        n_rows: rows behind the gradient: a layer with fewer units or inputs cannot show them all.
        encoder: of the rows, on the module's device; without it only networks that see encoded rows are found.
        observed: gradient of every parameter by name, where there is one.

    Raises:
        UnsupportedError: naming what stands in the way.
    """
    title = network_name(module)
    module = copy.deepcopy(module).double().requires_grad_(False)
    probes = torch.randn(PROBES, width, generator=generator(0, "probes"), dtype=torch.float64)
    probes = probes.to(next(module.parameters()).device)
    linears = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    with torch.no_grad(), watched(module, linears) as calls:
        try:
            logits = module(probes)
        except RuntimeError as error:  # a tensor that is no parameter or buffer stays in float32
            raise UnsupportedError(f"{title} does not compute in float64: {' '.join(str(error).split())}") from error
    require_row_wise(module, probes)
    usable = [name for name, call in calls.items() if tests_rows(module.get_submodule(name), call)]
    reached = slopes_by_outputs(module, usable, probes)[1]
    usable = [name for name in usable if name in reached]
    first = next((name for name in usable if same(calls[name].inputs, probes)), None)
    affine = {} if first is not None or encoder is None else affine_layers(module, usable, encoder)
    if first is None:
        # The one that sees the most cells: numbers may pass a layer of their own before.
        first = max(affine, key=lambda name: int(affine[name].weight.any(0).sum()), default=None)
    if first is None:
        raise UnsupportedError(
            f"no Linear layer of {title} with a bias sees the encoded row itself, or a sum of one vector per cell"
            f"{what_it_has(module, calls)}"
        )
    last = next((name for name in usable if same(calls[name].output, logits)), None)
    if last is None:
        raise UnsupportedError(f"the logits of {title} are not what a Linear layer with a bias returns")
    if first == last:
        raise UnsupportedError(f"exact inversion needs a hidden layer, and {title} has none")
    own = {name for name, _ in module.named_parameters()}
    if lacking := [name for name in (first, last) if f"{name}.weight" not in own]:
        raise UnsupportedError(
            f"weights of {lacking} are shared with another layer of {title}, or computed from other parameters"
        )
    if first in affine and encoder is not None:
        far = far_cells(encoder)
        require_unbent(module, first, far, affine[first].of(far))
    else:
        far = torch.cat([factor * probes for factor in FAR])
        require_unbent(module, first, far, far)
    usable = [name for name in usable if f"{name}.weight" in own]
    inner = apart(module, [name for name in usable if name not in (first, last, *affine)], calls, probes)
    names = [first, *inner, last]
    wrong = untrue(TracedNetwork(module, names, 0), probes)
    if {first, last} & wrong:
        raise UnsupportedError(f"weights of {sorted({first, last} & wrong)} are also used elsewhere in {title}")
    names = [name for name in names if name not in wrong]
    shapes = TracedNetwork(module, names, 0).shapes
    cells = Cells(module, encoder, affine[first], observed) if affine and encoder is not None else None
    return TracedNetwork(module, names, searched_layer(shapes, n_rows), cells)


def require_unbent(module: nn.Module, first: str, far: Tensor, expected: Tensor) -> None:
    """Check that a layer sees large encoded values as it sees small ones.

    Args:
        module: the whole.
        first: name of the layer.
        far: encoded rows with large values ``[n, d]``.
        expected: inputs of the layer for these rows, by what it sees of small values ``[n, F]``.

    Raises:
        UnsupportedError: the module clips them, or bends them otherwise.
    """
    with torch.no_grad(), watched(module, [first]) as calls:
        module(far)
    if not same(calls[first].inputs, expected):
        raise UnsupportedError(
            f"{network_name(module)} changes large encoded values before layer {first!r} sees them, as a clip does"
        )


def require_row_wise(module: nn.Module, probes: Tensor) -> None:
    """Check that a module computes the same for a row whatever else is in its batch.

    Raises:
        UnsupportedError: it does not.
    """
    title = network_name(module)
    with torch.no_grad():
        logits, again = module(probes), module(probes)
        alone = module(probes[:1]) if _reads_single_rows(module) else None
    if not same(logits, again):
        raise UnsupportedError(f"{title} computes something else every time, as dropout does")
    if alone is None or not same(logits[:1], alone):
        raise UnsupportedError(
            f"{title} mixes the rows of a batch{_by_batch_norm(module)}: no row has a gradient of its own"
        )


def affine_layers(module: nn.Module, names: Sequence[str], encoder: TableEncoder) -> dict[str, Affine]:
    """Layers whose inputs are a sum of one vector per cell, numbers times a vector, in the order of their calls."""
    with torch.no_grad(), watched(module, names) as calls:
        module(exchanged_cells(encoder))
    found = {name: affine_inputs(calls[name].inputs, encoder) for name in names}
    return {name: affine for name, affine in found.items() if affine is not None and bool(affine.weight.any())}


def searched_layer(shapes: Sequence[tuple[int, int]], n_rows: int) -> int:
    """The inner layer with the most inputs among those that can show all rows; the first layer where there is none.

    >>> searched_layer([(100, 106), (200, 101), (100, 201), (2, 101)], n_rows=64)
    2
    """
    inner = shapes[1:-1]
    return 1 + max(range(len(inner)), key=lambda i: (min(*inner[i], n_rows), inner[i][1], -i)) if inner else 0


def tests_rows(layer: nn.Module, call: Call, needs_bias: bool = True) -> bool:
    """Whether a layer has a bias and was called once, on one vector per row."""
    has_bias = getattr(layer, "bias", None) is not None
    once_per_row = call.times == 1 and call.inputs.dim() == 2 and len(call.inputs) == PROBES
    return once_per_row and (has_bias or not needs_bias)


def what_it_has(module: nn.Module, calls: Mapping[str, Call]) -> str:
    """Describe the layers that a module has in the place of linear layers that see one vector per row."""
    unbiased = sum(linear_layer(module, name).bias is None for name in calls)
    several = sum(call.times == 1 and call.inputs.dim() > 2 for call in calls.values())
    others = {
        type(layer).__name__
        for layer in module.modules()
        if not isinstance(layer, nn.Linear | nn.Embedding | OneHotEmbedding)
        and any(parameter.dim() > 1 for parameter in layer.parameters(recurse=False))
    }
    parts = [
        f"{unbiased} of {len(calls)} Linear layers have no bias" if unbiased else "",
        f"{sum(call.times > 1 for call in calls.values())} are called several times" if calls else "",
        f"{several} see several vectors of a row" if several else "",
        f"weights are in {', '.join(sorted(others))}" if others else "",
    ]
    said = [part for part in parts if part and not part.startswith("0 ")]
    return f" ({'; '.join(said)})" if said else ""


def apart(module: nn.Module, names: Sequence[str], calls: dict[str, Call], probes: Tensor) -> list[str]:
    """Layers whose inputs say something of their own: not affine in the row, nor those of a layer before them.

    The equations of others are those of the first layer, or of that layer, and must not count twice.
    """
    one, other = probes.roll(1, 0), probes.roll(2, 0)
    with torch.no_grad(), watched(module, names) as moved:
        module(probes + one - other)
    kept: list[str] = []
    for name in names:
        inputs = calls[name].inputs
        if same(moved[name].inputs, inputs + inputs.roll(1, 0) - inputs.roll(2, 0)):
            continue
        if not any(same(inputs, calls[before].inputs) for before in kept):
            kept.append(name)
    return kept


def untrue(network: TracedNetwork, probes: Tensor) -> set[str]:
    """Layers whose gradient is not the sum of their rows' products, as their weights are used elsewhere too."""
    tried = copied(network.module, network.module).requires_grad_(True)
    labels = torch.arange(len(probes), device=probes.device) % network.n_classes
    sums = network.gradient(probes, nn.functional.one_hot(labels, network.n_classes).to(probes), len(probes))
    with torch.enable_grad():
        nn.functional.cross_entropy(tried(probes), labels).backward()
    wrong = set()
    gradients = {name: parameter.grad for name, parameter in tried.named_parameters() if parameter.grad is not None}
    for name, found in zip(network.names, sums, strict=True):
        if not same(layer_gradient(gradients, name), found):
            wrong.add(name)
    return wrong


def layer_gradient(gradients: Mapping[str, Tensor], name: str) -> Tensor:
    """``[G gb]`` of one layer ``[out, in + 1]``; zeros in the place of a bias that it does not have."""
    weight = gradients[f"{name}.weight"]
    bias = gradients.get(f"{name}.bias")
    return torch.cat([weight, (torch.zeros_like(weight[:, 0]) if bias is None else bias).unsqueeze(-1)], -1)


def _reads_single_rows(module: nn.Module) -> bool:
    """Whether a module takes a batch of one row: BatchNorm over a batch does not."""
    return not any(isinstance(layer, nn.BatchNorm1d) and over_batch(layer) for layer in module.modules())


def over_batch(layer: nn.BatchNorm1d) -> bool:
    """Whether a BatchNorm layer normalizes by the statistics of its batch."""
    return layer.training or layer.running_mean is None


def _by_batch_norm(module: nn.Module) -> str:
    if _reads_single_rows(module):
        return ""
    return " by BatchNorm, whose statistics it does not share (exact's batch_statistics assumes that it does)"


def _times(output: Tensor, by_logits: Tensor) -> Tensor:
    """Errors from derivatives by the logits, which sum to 0, of which the last therefore is not needed."""
    free = output[..., :-1]
    if free.dim() == by_logits.dim():
        return free @ by_logits
    return (free.unsqueeze(-2) @ by_logits).squeeze(-2)


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal but for rounding of float64."""
    return one.shape == other.shape and bool((one - other).norm() <= SAME * (1e-300 + one.norm()))
