"""What one row adds to a gradient: a product of two vectors per layer, known up to a coefficient that its label sets.

A row's ``e_l`` is linear in the derivative of the loss by the logits, ``p - y``, which sums to zero: with the C - 1
directions ``d_c = 1_c - 1_C`` it is ``sum_c (p - y)_c d_c``. So a row is carried back through the network once per
direction, and every label it may have is a choice of coefficients.

An update that sums gradients at several weights (local training) is a sum over nodes: weights with a share each.
Several releases of the same rows are nodes apart: each has a gradient of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.network.activation import Activation
from lightleak.attacks.gradient_inversion.network.chain import ReLUChain, SmoothChain
from lightleak.attacks.gradient_inversion.network.row_network import with_one


@dataclass(frozen=True)
class Terms:
    """The terms of n rows at T nodes, for D = classes - 1 directions.

    Attributes:
        hidden: per layer ``(h_{l-1}, 1)``, ``[T, n, in_l + 1]``.
        errors: per layer ``e_l`` of every direction ``[T, n, D, out_l]``.
        slopes: of the activation, per hidden layer ``[T, n, out_l]``; ReLU's masks.
        probabilities: ``[T, n, classes]``.
        shares: of the nodes ``[T]``.
        apart: see `Nodes`.
    """

    hidden: tuple[Tensor, ...]
    errors: tuple[Tensor, ...]
    slopes: tuple[Tensor, ...]
    probabilities: Tensor
    shares: Tensor
    apart: bool = False

    def coefficients(self, n_rows: int) -> Tensor:
        """Weights of the directions for every label, ``[n, classes, T D]``, in a mean over ``n_rows`` rows."""
        classes = self.probabilities.shape[-1]
        labels = torch.eye(classes, dtype=self.probabilities.dtype, device=self.probabilities.device)
        output = (self.probabilities.unsqueeze(-2) - labels)[..., :-1]
        return (output * (self.shares / n_rows)[:, None, None, None]).permute(1, 2, 0, 3).flatten(2)

    def of_labels(self, labels: Tensor, n_rows: int) -> Tensor:
        """Weights of the directions ``[n, T D]`` of rows with these labels ``[n]``."""
        every = self.coefficients(n_rows)
        return every[torch.arange(len(labels), device=labels.device), labels]

    def weighted(self, coefficients: Tensor) -> tuple[Tensor, ...]:
        """``e_l`` of rows with coefficients ``[n, T D]``: ``[T, n, out_l]`` per layer."""
        weights = coefficients.unflatten(-1, (len(self.shares), -1)).permute(1, 0, 2).unsqueeze(-2)
        return tuple((weights @ errors).squeeze(-2) for errors in self.errors)

    def gradient(self, coefficients: Tensor) -> tuple[Tensor, ...]:
        """What rows with coefficients ``[n, T D]`` add together: a `Gradient` of the nodes' sum, or of each node."""
        each = zip(self.weighted(coefficients), self.hidden, strict=True)
        return tuple(e.mT @ h if self.apart else (e.mT @ h).sum(0) for e, h in each)

    def row(self, index: int) -> "Terms":
        """The terms of one row."""
        return self.rows(slice(index, index + 1))

    def rows(self, at: slice | Tensor) -> "Terms":
        """The terms of some rows."""
        return Terms(
            tuple(h[:, at] for h in self.hidden),
            tuple(e[:, at] for e in self.errors),
            tuple(s[:, at] for s in self.slopes),
            self.probabilities[:, at],
            self.shares,
            self.apart,
        )


@dataclass(frozen=True)
class Nodes:
    """Weights at which gradients are summed.

    Attributes:
        weights: per layer ``[T, out, in]``.
        biases: per layer ``[T, out]``.
        shares: of every node in the sum ``[T]``; a plain gradient has one node of share 1.
        activation: between the layers.
        apart: the nodes' gradients are not summed, but stacked ``[T, out, in + 1]``; a share is then the weight of a
            node's residual.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    shares: Tensor
    activation: Activation
    apart: bool = False

    @classmethod
    def of(
        cls, chains: Sequence[ReLUChain | SmoothChain], shares: Sequence[float] = (1.0,), apart: bool = False
    ) -> "Nodes":
        """Nodes from networks of one shape and activation."""
        weights = tuple(torch.stack(each) for each in zip(*(chain.weights for chain in chains), strict=True))
        biases = tuple(torch.stack(each) for each in zip(*(chain.biases for chain in chains), strict=True))
        return cls(weights, biases, weights[0].new_tensor(shares), chains[0].activation, apart)

    @property
    def chains(self) -> tuple[ReLUChain, ...]:
        """The networks, of ReLU."""
        return tuple(
            ReLUChain(tuple(w[t] for w in self.weights), tuple(b[t] for b in self.biases))
            for t in range(len(self.shares))
        )

    @property
    def depth(self) -> int:
        """Number of linear layers."""
        return len(self.weights)

    def to(self, dtype: torch.dtype) -> "Nodes":
        """The same in another precision."""
        weights, biases = (tuple(t.to(dtype) for t in each) for each in (self.weights, self.biases))
        return Nodes(weights, biases, self.shares.to(dtype), self.activation, self.apart)

    def terms(self, x: Tensor, first: Tensor | None = None) -> Terms:
        """Terms of rows ``[n, d]``.

        Args:
            x: encoded rows.
            first: first pre-activations ``[T, n, h]`` where they are already known.
        """
        nodes = len(self.shares)
        hidden, slopes = [with_one(x).expand(nodes, *x.shape[:-1], -1)], []
        current = x.expand(nodes, *x.shape)
        for i, (weight, bias) in enumerate(zip(self.weights[:-1], self.biases[:-1], strict=True)):
            known = first if i == 0 else None
            before = torch.baddbmm(bias.unsqueeze(1), current, weight.transpose(1, 2)) if known is None else known
            current, slope = self.activation.value_and_slope(before)
            slopes.append(slope)
            hidden.append(with_one(current))
        logits = torch.baddbmm(self.biases[-1].unsqueeze(1), current, self.weights[-1].transpose(1, 2))
        return Terms(tuple(hidden), self._errors(slopes), tuple(slopes), logits.softmax(-1), self.shares, self.apart)

    def _errors(self, slopes: Sequence[Tensor]) -> tuple[Tensor, ...]:
        classes = self.weights[-1].shape[1]
        directions = torch.eye(classes, dtype=self.shares.dtype, device=self.shares.device)
        directions = directions[:-1] - directions[-1]
        errors = [directions.expand(len(self.shares), slopes[0].shape[1], -1, -1)]
        error = (directions @ self.weights[-1]).unsqueeze(1)
        for i in range(len(slopes) - 1, -1, -1):
            error = error * slopes[i].unsqueeze(-2)
            errors.insert(0, error)
            if i:
                error = (error.flatten(1, 2) @ self.weights[i]).unflatten(1, (-1, classes - 1))
        return tuple(errors)
