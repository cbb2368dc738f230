"""A ReLU network's gradient as a sum of one term per row: the algebra that exact inversion rests on.

With ``a_l = W_l h_{l-1} + b_l``, ``h_0 = x``, ``h_l = relu(a_l)`` and ``m_l = 1[a_l > 0]``, a row of label y adds
``e_l (h_{l-1}, 1)^T / n`` to the gradient ``[G_l gb_l]`` of layer l, where ``e_L = p - y`` and
``e_l = (W_{l+1}^T e_{l+1}) m_l``. Rows that are equal add one term, with ``e_L = N p - counts`` for the N rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.network.client import client_network, relu_chain, require_chain
from lightleak.core.errors import UnsupportedError
from lightleak.core.observations import ClientUpdate


@dataclass(frozen=True)
class Activations:
    """What a chain computes for rows.

    Attributes:
        hidden: inputs of every layer, ``[..., in_l]``; the first are the rows themselves.
        preactivations: ``a_1 .. a_{L-1}``, ``[..., out_l]``.
        probabilities: softmax of the logits ``[..., classes]``.
    """

    hidden: tuple[Tensor, ...]
    preactivations: tuple[Tensor, ...]
    probabilities: Tensor

    @property
    def masks(self) -> tuple[Tensor, ...]:
        """``m_1 .. m_{L-1}`` as numbers."""
        return tuple((a > 0).to(a.dtype) for a in self.preactivations)


@dataclass(frozen=True)
class ReLUChain:
    """Linear layers with ReLU between them.

    Attributes:
        weights: per layer ``[out, in]``.
        biases: per layer ``[out]``.
    """

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
        return Activations(tuple(hidden), tuple(preactivations), logits.softmax(-1))

    def errors(self, activations: Activations, output: Tensor) -> tuple[Tensor, ...]:
        """``e_1 .. e_L`` of rows whose logits' derivative is ``output`` ``[..., classes]``."""
        errors = [output]
        for weight, mask in zip(reversed(self.weights[1:]), reversed(activations.masks), strict=True):
            errors.insert(0, (errors[0] @ weight) * mask)
        return tuple(errors)

    def slopes(self, masks: Sequence[Tensor], directions: Tensor) -> Iterator[Tensor]:
        """Derivatives of every layer's input as rows move, masks held fixed; one layer after the other, as needed.

        Args:
            masks: of the rows, per hidden layer ``[..., out_l]``.
            directions: in which every row moves ``[F, d]``.

        Yields:
            Per layer ``[..., F, in_l]``.
        """
        moved = directions.expand(*masks[0].shape[:-1], *directions.shape)
        yield moved
        for weight, mask in zip(self.weights[:-1], masks, strict=True):
            moved = (moved @ weight.T) * mask.unsqueeze(-2)
            yield moved

    def gradient(self, x: Tensor, counts: Tensor, n_rows: int) -> tuple[Tensor, ...]:
        """Contribution of rows to the gradient of the mean loss over ``n_rows`` rows, ``[out, in + 1]`` per layer.

        Args:
            x: distinct rows ``[r, d]``.
            counts: rows of each class that are equal to them, ``[r, classes]``.
            n_rows: rows of the batch.
        """
        activations = self.forward(x)
        output = counts.sum(-1, keepdim=True) * activations.probabilities - counts
        errors = self.errors(activations, output / n_rows)
        return tuple(e.T @ with_one(h) for e, h in zip(errors, activations.hidden, strict=True))


def with_one(hidden: Tensor) -> Tensor:
    """``(h, 1)``: what a layer's weights and bias are multiplied with."""
    return torch.cat([hidden, torch.ones_like(hidden[..., :1])], -1)


def layer_names(update: ClientUpdate) -> list[str]:
    """Names of the layers of the update's network.

    Raises:
        UnsupportedError: it is no plain ReLU network with a hidden layer.
    """
    network = client_network(update)
    require_chain(network, "exact inversion is for")
    names = relu_chain(network) or []
    if len(names) < 2:
        raise UnsupportedError("exact inversion needs a hidden layer, and this network is linear")
    return names


def observed_gradient(update: ClientUpdate, device: torch.device | str = "cpu") -> tuple[Tensor, ...]:
    """``[G_l gb_l]`` of every layer, float64 ``[out, in + 1]``, of a gradient update."""
    weights, biases = _stacked(update.update, layer_names(update), device, torch.float64)
    return tuple(torch.cat([w, b.unsqueeze(-1)], -1) for w, b in zip(weights, biases, strict=True))


def _stacked(
    tensors: Mapping[str, Tensor], names: Sequence[str], device: torch.device | str, dtype: torch.dtype
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    weights = tuple(tensors[f"{name}.weight"].to(device, dtype) for name in names)
    return weights, tuple(tensors[f"{name}.bias"].to(device, dtype) for name in names)
