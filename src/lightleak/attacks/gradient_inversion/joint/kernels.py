"""The distance between gradients that joint inversion minimizes: ``sum_l <R_l, A_l R_l B_l>`` over layers.

Plain (A and B identities) it is the squared error, which is the likelihood under even noise. Whitened, A and B are
inverse second moments of ``e_l`` and ``(h_{l-1}, 1)`` over random rows: these vectors have a few strong directions
that all rows share and many weak ones that tell rows apart, and whitening lets the weak ones count as much.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.joint.atoms import Nodes, Terms
from lightleak.attacks.gradient_inversion.optimize.chain_options import LEAST_SIZE
from lightleak.attacks.gradient_inversion.optimize.whitening import maps_of
from lightleak.attacks.gradient_inversion.tables.row_domain import RowDomain

RANDOM_ROWS = 4000
"""Rows behind second moments: forty times as many as a moment of 100 units has rows."""

Gradient = tuple[Tensor, ...]
"""``[out_l, in_l + 1]`` per layer, or of every release ``[T, out_l, in_l + 1]`` (`Nodes.apart`)."""


@dataclass(frozen=True)
class Kernels:
    """A and B of every layer; ``None`` stands for the identity.

    Attributes:
        left: ``[out_l, out_l]`` per layer, symmetric.
        right: ``[in_l + 1, in_l + 1]`` per layer, symmetric.
    """

    left: tuple[Tensor | None, ...]
    right: tuple[Tensor | None, ...]

    @classmethod
    def plain(cls, depth: int) -> "Kernels":
        """The squared error."""
        return cls((None,) * depth, (None,) * depth)

    @classmethod
    def whitened(cls, nodes: Nodes, space: RowDomain, ridge: float, generator: torch.Generator) -> "Kernels":
        """Inverse second moments over random rows, scaled so that every layer of a typical row weighs 1.

        Args:
            nodes: float64.
            space: the rows.
            ridge: added to the moments, as a share of their largest eigenvalue.
            generator: a CPU generator.
        """
        terms = nodes.terms(space.rows.of(*space.draw(RANDOM_ROWS, generator)))
        sizes = [*(_unmasked_size(w, e) for w, e in zip(nodes.weights[1:], terms.errors[1:], strict=True)), None]
        directions = terms.errors[0].shape[2]
        maps = [
            maps_of(e.flatten(0, 2), h.unsqueeze(2).expand(-1, -1, directions, -1).flatten(0, 2), ridge, size)
            for e, h, size in zip(terms.errors, terms.hidden, sizes, strict=True)
        ]
        return cls(tuple(left for left, _ in maps), tuple(right for _, right in maps))

    def of_noise(self, shapes: Sequence[torch.Size]) -> float:
        """Squared distance that independent noise of deviation 1 on every element has on average.

        Args:
            shapes: of the layers' gradients ``(out, in + 1)``.
        """
        each = zip(shapes, self.left, self.right, strict=True)
        return sum(_trace(left, out) * _trace(right, into) for (out, into), left, right in each)

    def to(self, dtype: torch.dtype) -> "Kernels":
        """The same in another precision."""
        left, right = (tuple(None if k is None else k.to(dtype) for k in each) for each in (self.left, self.right))
        return Kernels(left, right)

    def apply(self, residual: Gradient) -> Gradient:
        """``A_l R_l B_l`` of every layer."""
        each = zip(residual, self.left, self.right, strict=True)
        return tuple(_times(r if a is None else a @ r, b) for r, a, b in each)

    def value(self, residual: Gradient) -> Tensor:
        """The squared distance, a scalar."""
        pairs = zip(residual, self.apply(residual), strict=True)
        return torch.stack([(r * applied).sum() for r, applied in pairs]).sum()


def gram(terms: Terms, kernels: Kernels) -> Tensor:
    """Inner products ``[n, T D, T D]`` of every row's directions among each other, over all layers."""
    directions = terms.errors[0].shape[2]

    def of_layer(errors: Tensor, hidden: Tensor, left: Tensor | None, right: Tensor | None) -> Tensor:
        of_hidden = _products(hidden.transpose(0, 1), right)
        of_hidden = of_hidden.repeat_interleave(directions, 1).repeat_interleave(directions, 2)
        return _products(errors.transpose(0, 1).flatten(1, 2), left) * of_hidden

    total = reduce(torch.add, map(of_layer, terms.errors, terms.hidden, kernels.left, kernels.right))
    if not terms.apart:
        return total
    releases = torch.arange(len(terms.shares), device=total.device).repeat_interleave(directions)
    return total * (releases == releases.unsqueeze(1))


def inner(terms: Terms, applied: Gradient) -> Tensor:
    """Inner products ``[n, T D]`` of every row's directions with a residual to which the kernels were applied."""
    layers = zip(terms.errors, terms.hidden, applied, strict=True)
    each = (((hidden @ matrix.mT).unsqueeze(-2) * errors).sum(-1) for errors, hidden, matrix in layers)
    return reduce(torch.add, each).transpose(0, 1).flatten(1)


def _trace(kernel: Tensor | None, size: int) -> float:
    return size if kernel is None else float(kernel.trace())


def _times(vectors: Tensor, kernel: Tensor | None) -> Tensor:
    return vectors if kernel is None else vectors @ kernel


def _quadratic(vectors: Tensor, kernel: Tensor | None) -> Tensor:
    return (_times(vectors, kernel) * vectors).sum(-1)


def _products(vectors: Tensor, kernel: Tensor | None) -> Tensor:
    """``[n, k, k]`` inner products of ``[n, k, m]``; k views of one vector, as all nodes see one row, count once."""
    k = vectors.shape[1]
    if k == 1 or vectors.stride(1) == 0:
        return _quadratic(vectors[:, :1], kernel).unsqueeze(-1).expand(-1, k, k)
    return _times(vectors, kernel) @ vectors.transpose(1, 2)


def _unmasked_size(weight: Tensor, error: Tensor) -> Tensor:
    """Typical size of each unit's error before its mask, which is what the ridge of `maps_of` is measured in.

    Args:
        weight: of the layer above ``[T, out, in]``.
        error: that layer's ``[T, n, D, out]``.
    """
    size = (error.flatten(1, 2) @ weight).square().mean((0, 1)).sqrt()
    return size.clamp_min(LEAST_SIZE * float(size.max()))
