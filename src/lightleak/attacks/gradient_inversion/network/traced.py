"""Any network that works row by row, seen through its linear layers: found by running it, not by its name.

A module is run on made rows while every linear layer is watched. A layer that is called once, on one vector per row,
has a gradient that is a sum over rows (`RowNetwork`); what lies between such layers (activations, residual sums, layer
normalization, gates, statistics that are known) may be anything. Errors follow by backward passes, one per class but
one, as they are linear in the derivatives by the logits; derivatives by differences in float64.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from lightleak.attacks.gradient_inversion.network.row_network import RowActivations, RowNetwork, output_slopes
from lightleak.attacks.gradient_inversion.network.search_view import SearchView
from lightleak.core.errors import UnsupportedError
from lightleak.core.seeds import generator
from lightleak.data.encoder import TableEncoder

PROBES = 5
"""Made rows on which a module is run to see what it computes."""

SAME = 1e-9
"""Relative difference in float64 below which two computations are the same."""

STEP = 1e-5
"""Of central differences, in encoded units: their error is about 1e-10 of the third derivative, rounding 1e-11."""

AT_ONCE = 8192
"""Rows whose backward passes are made at once."""


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
    """

    def __init__(self, module: nn.Module, names: Sequence[str], searched: int) -> None:
        self.module, self.names, self._searched = module, tuple(names), searched

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
    def state_map(self) -> tuple[Tensor, Tensor]:
        """See `RowNetwork.state_map`: the first layer, and the row itself where the network also reads it elsewhere."""
        first = self._layer(0)
        if not self._cut.reads_rows:
            return first.weight, first.bias
        eye = torch.eye(first.in_features).to(first.weight)
        return torch.cat([first.weight, eye]), torch.cat([first.bias, torch.zeros_like(eye[0])])

    def view(self) -> "TracedView":
        """See `RowNetwork.view`."""
        return TracedView(self._cut, self._layer(self.searched).in_features, 0 < self.searched, self.n_classes == 2)

    def forward(self, x: Tensor) -> TracedActivations:
        """See `RowNetwork.forward`."""
        flat = x.flatten(0, -2)
        with torch.no_grad(), watched(self.module, self.names) as calls:
            logits = self.module(flat)
        hidden = tuple(calls[name].inputs.unflatten(0, x.shape[:-1]) for name in self.names)
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

    def error_slopes(self, activations: TracedActivations, counts: Tensor, directions: Tensor) -> tuple[Tensor, ...]:
        """See `RowNetwork.error_slopes`."""

        def errors(x: Tensor) -> tuple[Tensor, ...]:
            moved = self.forward(x)
            beside = counts.unsqueeze(-2).expand(*counts.shape[:-1], len(directions), -1)
            output = beside.sum(-1, keepdim=True) * moved.probabilities - beside
            return self.errors(moved, output)

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
        return Cut.of(self.module, self.names[0], self.names[self.searched])

    def _layer(self, index: int) -> nn.Linear:
        layer = self.module.get_submodule(self.names[index])
        assert isinstance(layer, nn.Linear)
        return layer

    def _by_logits(self, x: Tensor, names: Sequence[str]) -> tuple[Tensor, ...]:
        """Derivatives of every logit minus the last by the layers' outputs, ``[..., classes - 1, out]``."""
        parts = [_derivatives(self.module, rows, names) for rows in x.flatten(0, -2).split(AT_ONCE)]
        return tuple(torch.cat(layer).unflatten(0, x.shape[:-1]) for layer in zip(*parts, strict=True))

    @staticmethod
    def _differences(
        function: Callable[[Tensor], tuple[Tensor, ...]], x: Tensor, directions: Tensor
    ) -> tuple[Tensor, ...]:
        steps = STEP * directions
        ahead, behind = (function(x.unsqueeze(-2) + sign * steps) for sign in (1, -1))
        return tuple((a - b) / (2 * STEP) for a, b in zip(ahead, behind, strict=True))
