"""Gradients compared in coordinates in which the terms of random rows are uncorrelated.

A row adds ``e_l (h_{l-1}, 1)^T`` to the gradient of layer l. These terms point nearly the same way for all rows, so the
plain squared difference sees little but the mean row. With ``K = (C + ridge lambda_max I)^-1`` of the second moments C
of either factor, ``<K_e D K_h, D>`` of a difference D weighs all directions in which rows differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Comparison(Protocol):
    """How far gradients are from the client's."""

    def at(self, share: float) -> "Comparison":
        """The same after that share of the optimization."""

    def __call__(self, gradients: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Value ``[updates, restarts]``, and derivatives by the gradients.

        Args:
            gradients: ``[G gb]`` per layer, ``[updates, restarts, out, in + 1]``.
        """


@dataclass(frozen=True)
class Whitening:
    """The whitened squared difference to the client's gradient, relative to that gradient's own.

    The maps act on the difference, ``out x in`` per candidate, and not on the factors of every row: that costs the same
    for any number of rows, and a small difference of large gradients keeps its digits.

    Attributes:
        errors: ``K_e`` per layer, ``[updates, 1, out, out]``.
        inputs: ``K_h`` per layer, ``[updates, 1, in + 1, in + 1]``.
        targets: the client's ``[G gb]`` per layer, ``[updates, 1, out, in + 1]``.
        norm: the target's own value, summed over layers ``[updates, 1]``.
    """

    errors: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]
    targets: tuple[Tensor, ...]
    norm: Tensor

    @classmethod
    def of(
        cls,
        moments: Sequence[Sequence[tuple[Tensor, Tensor]]],
        targets: Sequence[Tensor],
    ) -> "Whitening":
        """Maps of several updates.

        Args:
            moments: per update and layer what `maps_of` returns.
            targets: ``[G gb]`` per layer, ``[updates, out, in + 1]``, on the device and in the precision of the work.
        """
        by_layer = zip(*moments, strict=True)
        maps = [[torch.stack(side).unsqueeze(1) for side in zip(*layer, strict=True)] for layer in by_layer]
        errors, inputs = (tuple(pair[side].to(targets[0]) for pair in maps) for side in (0, 1))
        single = tuple(target.unsqueeze(1) for target in targets)
        norm = torch.stack([_quadratic(t, k, m)[0] for t, k, m in zip(single, errors, inputs, strict=True)]).sum(0)
        return cls(errors, inputs, single, norm)

    def at(self, share: float) -> "Whitening":
        """See `Comparison`; it does not change."""
        return self

    def __call__(self, gradients: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Value ``[updates, restarts]`` and derivatives by the gradients.

        Args:
            gradients: ``[G gb]`` per layer, ``[updates, restarts, out, in + 1]``.
        """
        values, derivatives = [], []
        layers = zip(gradients, self.targets, self.errors, self.inputs, strict=True)
        for gradient, target, of_error, of_input in layers:
            value, whitened = _quadratic(gradient - target, of_error, of_input)
            values.append(value)
            derivatives.append(whitened.mul_((2 / self.norm)[..., None, None]))
        return torch.stack(values).sum(0) / self.norm, derivatives


def _quadratic(difference: Tensor, of_error: Tensor, of_input: Tensor) -> tuple[Tensor, Tensor]:
    """``<K_e D K_h, D>`` and ``K_e D K_h``."""
    whitened = of_error @ difference @ of_input
    return (whitened * difference).sum((-1, -2)), whitened


def maps_of(errors: Tensor, inputs: Tensor, ridge: float, units: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """``K_e`` and ``K_h`` of one layer, scaled so that ``e (h, 1)^T`` of a typical row has the value 1.

    A layer whose units are silent in all random rows is not whitened.

    Args:
        errors: ``e_l`` of random rows ``[k, out]``, float64.
        inputs: ``(h_{l-1}, 1)`` of the same rows ``[k, in + 1]``.
        ridge: share of the largest eigenvalue that is added to all.
        units: in which each error is measured before the ridge is added, ``[out]``, 0 of units that nothing follows;
            None: all in one.
    """
    units = torch.ones_like(errors[0]) if units is None else torch.where(units > 0, units, 1)
    of_error, of_input = _inverse(errors / units, ridge) / units / units[:, None], _inverse(inputs, ridge)
    typical = (((errors @ of_error) * errors).sum(-1) * ((inputs @ of_input) * inputs).sum(-1)).mean()
    return of_error / torch.where(typical > 0, typical, 1), of_input


def _inverse(rows: Tensor, ridge: float) -> Tensor:
    """``(C + ridge lambda_max I)^-1`` of the second moments about zero."""
    values, vectors = torch.linalg.eigh(rows.T @ rows / len(rows))
    largest = torch.where(values[-1] > 0, values[-1], 1 / ridge)
    inverse: Tensor = (vectors / (values.clamp_min(0) + ridge * largest)) @ vectors.T
    return inverse
