"""What a search evaluates: a network cut behind the part that is additive in a row's cells.

The state of a row is what the first layer makes of it, a base plus one vector per cell, so changing a cell of a
candidate costs one addition. The input of the searched layer and the direction of its error are functions of the state.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor


class SearchView(ABC):
    """Input and error direction of the searched layer as functions of a row's state."""

    @abstractmethod
    def to(self, dtype: torch.dtype) -> Self:
        """The same in another precision."""

    @abstractmethod
    def hidden(self, state: Tensor) -> Tensor:
        """Input of the searched layer ``[..., in]`` of rows with states ``[..., h]``."""

    @abstractmethod
    def jacobian(self, state: Tensor, steps: Tensor, metric: Tensor) -> Tensor:
        """Derivatives ``[n, q, F]`` of ``hidden @ metric`` as states ``[n, h]`` move along ``steps`` ``[F, h]``."""

    @property
    @abstractmethod
    def has_directions(self) -> bool:
        """Whether no label changes the direction of the searched layer's error: two classes, and layers above it."""

    @abstractmethod
    def onto(self, metric: Tensor) -> Self:
        """The same with `directions` projected on ``metric`` ``[out, q]``."""

    @abstractmethod
    def directions(self, state: Tensor) -> Tensor:
        """Derivative of the first logit minus the second by the searched layer's output, or its projection."""

    @abstractmethod
    def direction_slopes(self, state: Tensor, steps: Tensor) -> Tensor:
        """Derivatives ``[n, q, F]`` of `directions` as states ``[n, h]`` move along ``steps`` ``[F, h]``."""


@dataclass(frozen=True)
class ChainView(SearchView):
    """Of linear layers with ReLU between them, searched at the second; states are first pre-activations.

    Attributes:
        units: directions of the searched layer's error; None where labels change them.
    """

    units: "UnitDirections | None"

    @classmethod
    def of(cls, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> "ChainView":
        """Of a chain with these layers ``[out, in]``."""
        two_classes = len(weights[-1]) == 2 and len(weights) > 2
        return cls(UnitDirections.of(weights, biases) if two_classes else None)

    def to(self, dtype: torch.dtype) -> "ChainView":
        """See `SearchView.to`."""
        return ChainView(None if self.units is None else self.units.to(dtype))

    def hidden(self, state: Tensor) -> Tensor:
        """See `SearchView.hidden`."""
        return state.relu()

    def jacobian(self, state: Tensor, steps: Tensor, metric: Tensor) -> Tensor:
        """See `SearchView.jacobian`; masks are fixed."""
        return torch.einsum("fh,nh,hq->nqf", steps, (state > 0).to(steps.dtype), metric)

    @property
    def has_directions(self) -> bool:
        """See `SearchView.has_directions`."""
        return self.units is not None

    def onto(self, metric: Tensor) -> "ChainView":
        """See `SearchView.onto`."""
        return ChainView(None if self.units is None else self.units.onto(metric))

    def directions(self, state: Tensor) -> Tensor:
        """See `SearchView.directions`."""
        assert self.units is not None
        return self.units(state.relu())

    def direction_slopes(self, state: Tensor, steps: Tensor) -> Tensor:
        """See `SearchView.direction_slopes`; masks are fixed."""
        directions = self.directions(state)
        return directions.new_zeros(*directions.shape, len(steps))


@dataclass(frozen=True)
class UnitDirections:
    """From ``h_1`` to the direction of ``e_2``; with two classes no label changes it, as ``e_L`` is along (1, -1).

    Attributes:
        weights: transposed weights of the hidden layers from the second on.
        biases: theirs.
        backward: one matrix per mask, from the last mask to the first: it carries the error past its layer; the first
            matrix holds the last layer as well, and the last one what the direction is projected on.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    backward: tuple[Tensor, ...]

    @classmethod
    def of(cls, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> "UnitDirections":
        """The directions themselves, of a chain with two classes and layers ``[out, in]``."""
        hidden = tuple(weights[1:-1])
        matrices = [torch.diag(weights[-1][0] - weights[-1][1]), *reversed(hidden[1:])]
        if len(matrices) > 1:
            matrices = [matrices[0] @ matrices[1], *matrices[2:], torch.eye(len(hidden[0])).to(hidden[0])]
        return cls(tuple(w.T for w in hidden), tuple(biases[1:-1]), tuple(matrices))

    def onto(self, metric: Tensor) -> "UnitDirections":
        """Projected on ``metric`` ``[h_2, q]``."""
        return UnitDirections(self.weights, self.biases, (*self.backward[:-1], self.backward[-1] @ metric))

    def to(self, dtype: torch.dtype) -> "UnitDirections":
        """The same in another precision."""
        return UnitDirections(*(tuple(t.to(dtype).contiguous() for t in part) for part in self._parts))

    @property
    def _parts(self) -> tuple[tuple[Tensor, ...], ...]:
        return self.weights, self.biases, self.backward

    def __call__(self, hidden: Tensor) -> Tensor:
        """``[..., h_1]`` to ``[..., h_2]``, or to what it is projected on."""
        masks = []
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            preactivation = hidden @ weight
            if i + 1 < len(self.weights):
                hidden = (preactivation + bias).relu_()
            masks.append(preactivation.gt_(-bias))
        error = masks[-1]
        for i, matrix in enumerate(self.backward):
            error = error @ matrix
            if i + 1 < len(masks):
                error = error * masks[-2 - i]
        return error
