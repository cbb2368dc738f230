"""A ReLU network's gradient as a sum of one term per row: the algebra that exact inversion rests on.

With ``a_l = W_l h_{l-1} + b_l``, ``h_0 = x``, ``h_l = relu(a_l)`` and ``m_l = 1[a_l > 0]``, a row of label y adds
``e_l (h_{l-1}, 1)^T / n`` to the gradient ``[G_l gb_l]`` of layer l, where ``e_L = p - y`` and
``e_l = (W_{l+1}^T e_{l+1}) m_l``. Rows that are equal add one term, with ``e_L = N p - counts`` for the N rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.network.activation import RELU, Activation
from lightleak.attacks.gradient_inversion.network.client import (
    client_network,
    relu_chain,
    require_chain,
    smooth_chain,
)
from lightleak.attacks.gradient_inversion.network.row_network import (
    RowActivations,
    RowNetwork,
    output_slopes,
)
from lightleak.attacks.gradient_inversion.network.search_view import ChainView
from lightleak.core.errors import UnsupportedError
from lightleak.core.observations import ClientUpdate
from lightleak.data.encoder import TableEncoder

SEARCHED = 1
"""The second layer: its input depends on one matrix alone, and it has more inputs than the first layer has columns."""


@dataclass(frozen=True)
class Activations(RowActivations):
    """What a chain computes for rows; the inputs of its first layer are the rows themselves.

    Attributes:
        preactivations: ``a_1 .. a_{L-1}``, ``[..., out_l]``.
    """

    preactivations: tuple[Tensor, ...]

    @property
    def masks(self) -> tuple[Tensor, ...]:
        """``m_1 .. m_{L-1}`` as numbers."""
        return tuple((a > 0).to(a.dtype) for a in self.preactivations)


@dataclass(frozen=True)
class ReLUChain(RowNetwork):
    """Linear layers with ReLU between them.

    Attributes:
        weights: per layer ``[out, in]``.
        biases: per layer ``[out]``.
    """

    errors_bend: ClassVar[bool] = False
    activation: ClassVar[Activation] = RELU

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]

    @classmethod
    def of(
        cls, update: ClientUpdate, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float64
    ) -> "ReLUChain":
        """The client's network before its update.

        Raises:
            UnsupportedError: it is no plain ReLU network with a hidden layer.
        """
        return cls(*_stacked(update.parameters, layer_names(update), device, dtype))

    @property
    def depth(self) -> int:
        """Number of linear layers L."""
        return len(self.weights)

    @property
    def n_classes(self) -> int:
        """Number of logits."""
        return self.weights[-1].shape[0]

    @property
    def searched(self) -> int:
        """See `RowNetwork.searched`."""
        return SEARCHED

    @property
    def state_map(self) -> tuple[Tensor, Tensor]:
        """See `RowNetwork.state_map`."""
        return self.weights[0], self.biases[0]

    def view(self) -> ChainView:
        """See `RowNetwork.view`."""
        return ChainView.of(self.weights, self.biases)

    def to(self, dtype: torch.dtype) -> "ReLUChain":
        """The same in another precision."""
        return ReLUChain(tuple(w.to(dtype) for w in self.weights), tuple(b.to(dtype) for b in self.biases))

    def forward(self, x: Tensor) -> Activations:
        """Activations of rows ``[..., d]``."""
        hidden, preactivations = [x], []
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            preactivations.append(hidden[-1] @ weight.T + bias)
            hidden.append(preactivations[-1].relu())
        logits = hidden[-1] @ self.weights[-1].T + self.biases[-1]
        return Activations(tuple(hidden), logits.softmax(-1), tuple(preactivations))

    def errors(self, activations: Activations, output: Tensor) -> tuple[Tensor, ...]:
        """See `RowNetwork.errors`."""
        return tuple(reversed([*self._downwards(activations, output)]))

    def backpropagated(self, layer: int, activations: Activations, output: Tensor) -> Tensor:
        """See `RowNetwork.backpropagated`."""
        errors = self._downwards(activations, output)
        return next(error for at, error in zip(range(self.depth - 1, -1, -1), errors, strict=True) if at == layer)

    def _downwards(self, activations: Activations, output: Tensor) -> Iterator[Tensor]:
        """``e_L .. e_1``, one layer after the other, as needed."""
        masks, error = activations.masks, output
        yield error
        for weight, mask in zip(reversed(self.weights[1:]), reversed(masks), strict=True):
            error = (error @ weight) * (mask.unsqueeze(-2) if error.dim() > mask.dim() else mask)
            yield error

    def slopes(self, activations: Activations, directions: Tensor) -> Iterator[Tensor]:
        """See `RowNetwork.slopes`; masks are fixed. One layer after the other, as needed."""
        masks = activations.masks
        moved = directions.expand(*masks[0].shape[:-1], *directions.shape)
        yield moved
        for weight, mask in zip(self.weights[:-1], masks, strict=True):
            moved = (moved @ weight.T) * mask.unsqueeze(-2)
            yield moved

    def error_slopes(
        self, activations: Activations, counts: Tensor, directions: Tensor, n_rows: int = 1
    ) -> tuple[Tensor, ...]:
        """See `RowNetwork.error_slopes`; masks are fixed."""
        *_, last = self.slopes(activations, directions)
        logits = last @ self.weights[-1].T
        return self.errors(activations, output_slopes(activations.probabilities, logits, counts, n_rows))

    def cell_steps(self, x: Tensor, encoder: TableEncoder) -> tuple[Tensor, ...]:
        """See `RowNetwork.cell_steps`; to first order, masks fixed."""
        return tuple(self.slopes(self.forward(x), torch.eye(x.shape[1]).to(x)))


@dataclass(frozen=True)
class SmoothChain:
    """Linear layers with one smooth activation between them, as joint inversion sees them.

    Attributes:
        weights: per layer ``[out, in]``.
        biases: per layer ``[out]``.
        activation: between them.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    activation: Activation


def any_chain(update: ClientUpdate, device: torch.device | str = "cpu") -> ReLUChain | SmoothChain:
    """The client's network before its update, float64.

    Raises:
        UnsupportedError: see `chain_names`.
    """
    found = smooth_chain(client_network(update))
    if found is None:
        return ReLUChain.of(update, device)
    return SmoothChain(*_stacked(update.parameters, chain_names(update), device, torch.float64), Activation(found[1]))


def layer_names(update: ClientUpdate) -> list[str]:
    """Names of the layers of the update's network.

    Raises:
        UnsupportedError: it is no plain ReLU network with a hidden layer.
    """
    network = client_network(update)
    require_chain(network, "exact inversion is for")
    return _with_hidden(relu_chain(network) or [])


def chain_names(update: ClientUpdate) -> list[str]:
    """The same, of a chain with any one smooth activation as well.

    Raises:
        UnsupportedError: it is no such chain with a hidden layer.
    """
    found = smooth_chain(client_network(update))
    return layer_names(update) if found is None else _with_hidden(found[0])


def _with_hidden(names: list[str]) -> list[str]:
    if len(names) < 2:
        raise UnsupportedError("exact inversion needs a hidden layer, and this network has none")
    return names


def first_layer_gradient(update: ClientUpdate, device: torch.device | str = "cpu") -> Tensor:
    """``[G gb]`` of the first layer of a plain ReLU network, which may have no other, float64 ``[out, in + 1]``."""
    first = (relu_chain(client_network(update)) or layer_names(update))[:1]
    weights, biases = _stacked(update.update, first, device, torch.float64)
    return torch.cat([weights[0], biases[0].unsqueeze(-1)], -1)


def observed_gradient(update: ClientUpdate, device: torch.device | str = "cpu") -> tuple[Tensor, ...]:
    """``[G_l gb_l]`` of every layer of a chain, float64 ``[out, in + 1]``, of a gradient update."""
    weights, biases = _stacked(update.update, chain_names(update), device, torch.float64)
    return tuple(torch.cat([w, b.unsqueeze(-1)], -1) for w, b in zip(weights, biases, strict=True))


def _stacked(
    tensors: Mapping[str, Tensor], names: Sequence[str], device: torch.device | str, dtype: torch.dtype
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    weights = tuple(tensors[f"{name}.weight"].to(device, dtype) for name in names)
    return weights, tuple(tensors[f"{name}.bias"].to(device, dtype) for name in names)
