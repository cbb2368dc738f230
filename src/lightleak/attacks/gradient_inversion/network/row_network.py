"""A network as exact inversion sees it: every tested layer's gradient is a sum of one product per row.

A linear layer ``z_l = W_l v_l + b_l`` that sees one vector per row has the gradient ``sum_i e_l,i (v_l,i, 1)^T / n``,
with ``e_l`` the derivative of a row's loss by ``z_l``. Nothing else is needed for the tests of a row: what lies between
the layers may be any function of the row.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.network.cells import Affine
from lightleak.attacks.gradient_inversion.network.search_view import SearchView
from lightleak.data.encoder import TableEncoder


@dataclass(frozen=True)
class RowActivations:
    """What a network computes for rows.

    Attributes:
        hidden: inputs of every tested layer, ``[..., in_l]``.
        probabilities: softmax of the logits ``[..., classes]``.
    """

    hidden: tuple[Tensor, ...]
    probabilities: Tensor


class RowNetwork(ABC):
    """Tested linear layers, from the first, which sees the row's cells, to the last, which returns the logits.

    Attributes:
        errors_bend: errors vary with a row's numbers also where no unit of a ReLU is switched.
        peels: what known rows leave of a gradient is the gradient of the other rows.
        first_sees_cells: the first tested layer sees a sum of one vector per cell, so that its gradient gives linear
            equations on cells.
        numbers_enter_affinely: every number follows from affine functions of cells that enter the network. Behind an
            absolute value or a clip several numbers look alike, and none is proven.
        search_share: share of a search's starts that pay; trials of a number shrink by its root. Less than 1 where a
            candidate costs much.
    """

    errors_bend: ClassVar[bool] = True
    peels: ClassVar[bool] = True
    first_sees_cells: ClassVar[bool] = True
    search_share: ClassVar[float] = 1.0

    @property
    def numbers_enter_affinely(self) -> bool:
        """See above: true of networks whose first tested layer sees the row itself."""
        return True

    @property
    @abstractmethod
    def depth(self) -> int:
        """Number of tested layers."""

    @property
    @abstractmethod
    def n_classes(self) -> int:
        """Number of logits."""

    @property
    @abstractmethod
    def searched(self) -> int:
        """Index of the layer whose gradient is searched and whose coefficient is read."""

    @abstractmethod
    def forward(self, x: Tensor) -> Any:
        """`RowActivations` of rows ``[..., d]``; only the same network reads more of them."""

    @abstractmethod
    def backpropagated(self, layer: int, activations: Any, output: Tensor) -> Tensor:
        """``e`` of one layer ``[..., out_l]`` from derivatives by the logits ``[..., classes]``.

        ``output`` may have one more dimension, ahead of the classes, than the rows have.
        """

    @abstractmethod
    def slopes(self, activations: Any, directions: Tensor) -> Iterable[Tensor]:
        """Derivatives of every layer's input as rows move, ``[..., F, in_l]`` per layer.

        Args:
            activations: of the rows.
            directions: in which every row moves ``[F, d]``.
        """

    @abstractmethod
    def error_slopes(self, activations: Any, counts: Tensor, directions: Tensor, n_rows: int = 1) -> tuple[Tensor, ...]:
        """Derivatives ``[..., F, out_l]`` of every layer's error of rows that stand for ``counts`` rows of each class.

        Args:
            activations: of the rows.
            counts: ``[..., classes]``; the derivative of their loss by the logits is ``N p - counts`` for N rows.
            directions: in which every row moves ``[F, d]``.
            n_rows: by which that derivative is divided.
        """

    @abstractmethod
    def cell_steps(self, x: Tensor, encoder: TableEncoder) -> tuple[Tensor, ...]:
        """What a change of one cell does to every layer's input, ``[r, d, in_l]`` per layer, by encoded position.

        At a number's position the derivative by it; at a category's such that the difference between two positions,
        each divided by its scale, is what an exchange of the row's category by the other does.
        """

    @property
    @abstractmethod
    def state_map(self) -> tuple[Tensor, Tensor]:
        """Weights ``[h, d]`` and biases ``[h]`` that turn an encoded row into its state, see `SearchView`."""

    @abstractmethod
    def view(self) -> SearchView:
        """What a search evaluates."""

    def error_parts(self, layer: int, activations: Any, directions: Tensor) -> Tensor:
        """What the errors of equal rows consist of, ``[..., k, out_l]``.

        Args:
            layer: index of the layer.
            activations: of the rows.
            directions: of the derivative of their summed loss by the logits, ``[..., k, classes]``.

        Returns:
            The error that each direction causes; networks whose errors also have a part that depends on neither labels
            nor loss append it, once per row.
        """
        return self.backpropagated(layer, activations, directions)

    @property
    def first_input(self) -> Affine | None:
        """What the first layer sees of an encoded row; None: the row itself."""
        return None

    def columns(self, gradient: Tensor, x: Tensor, counts: Tensor, n_rows: int) -> Tensor:
        """As `gradient`, of the first layer, by encoded cells ``[h, d + 1]``; see `Cells.columns`."""
        return gradient

    def replay(self, x: Tensor, counts: Tensor, n_rows: int) -> Tensor:
        """Compare the gradients by all parameters with those of a batch, one parameter at a time.

        Args:
            x: distinct rows ``[r, d]``.
            counts: rows of each class that are equal to them, ``[r, classes]``.
            n_rows: rows of the batch.

        Returns:
            Norms ``[parameters, 3]`` of what the batch leaves of the observed gradient, of that gradient, and of the
            rounding of the batch's gradient in float32. Empty where the tested layers have all parameters that count.
        """
        return x.new_zeros(0, 3)

    def scaled(self, factor: float) -> Self:
        """The same network for a gradient times a factor."""
        return self

    def errors(self, activations: Any, output: Tensor) -> tuple[Tensor, ...]:
        """``e_1 .. e_L`` of rows whose logits' derivative is ``output`` ``[..., classes]``."""
        return tuple(self.backpropagated(layer, activations, output) for layer in range(self.depth))

    def errors_of_rows(self, activations: Any, counts: Tensor, n_rows: int = 1) -> tuple[Tensor, ...]:
        """`errors` of rows that stand for ``counts`` rows of each class, of the mean loss over ``n_rows`` rows.

        Args:
            activations: of the rows.
            counts: ``[..., classes]``, or with one more dimension ahead of the classes than the rows have.
            n_rows: by which the derivatives of their summed loss are divided.
        """
        return self.errors(activations, output_of(activations.probabilities, counts, n_rows))

    def error_of_rows(self, layer: int, activations: Any, counts: Tensor, n_rows: int = 1) -> Tensor:
        """`errors_of_rows` of one layer."""
        return self.backpropagated(layer, activations, output_of(activations.probabilities, counts, n_rows))

    def gradient(self, x: Tensor, counts: Tensor, n_rows: int) -> tuple[Tensor, ...]:
        """Contribution of rows to the gradient of the mean loss over ``n_rows`` rows, ``[out, in + 1]`` per layer.

        Args:
            x: distinct rows ``[r, d]``.
            counts: rows of each class that are equal to them, ``[r, classes]``.
            n_rows: rows of the batch.
        """
        activations = self.forward(x)
        errors = self.errors_of_rows(activations, counts, n_rows)
        return tuple(e.T @ with_one(h) for e, h in zip(errors, activations.hidden, strict=True))


def output_of(probabilities: Tensor, counts: Tensor, n_rows: int = 1) -> Tensor:
    """``(N p - counts) / n_rows``: derivative by the logits of the mean loss of N equal rows."""
    p = probabilities.unsqueeze(-2) if counts.dim() > probabilities.dim() else probabilities
    return (counts.sum(-1, keepdim=True) * p - counts) / n_rows


def output_slopes(probabilities: Tensor, logit_slopes: Tensor, counts: Tensor, n_rows: int) -> Tensor:
    """Derivatives of ``(N p - counts) / n_rows`` by what moves the logits ``[..., F, classes]``."""
    shares = probabilities.unsqueeze(-2)
    moved = shares * (logit_slopes - (shares * logit_slopes).sum(-1, keepdim=True))
    return moved * counts.sum(-1)[..., None, None] / n_rows


def with_one(hidden: Tensor) -> Tensor:
    """``(h, 1)``: what a layer's weights and bias are multiplied with."""
    return torch.cat([hidden, torch.ones_like(hidden[..., :1])], -1)
