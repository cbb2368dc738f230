"""What is left of a gradient when explained rows are taken out."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.network.row_network import RowNetwork

NOISE = 1e-7
"""Rounding of a layer's float32 gradient relative to its norm; it weighs the layers against each other."""

EXPLAINED = 1e-6
"""Part of the gradient that may be left of a batch that counts as explained: rounding leaves 1e-7; two rows of equal
masks read as one, the nearest wrong explanation that was met, leave 1e-3."""


@dataclass(frozen=True)
class Residual:
    """An observed gradient and the rows that explain a part of it.

    Attributes:
        network: whose gradient it is.
        observed: ``[G_l gb_l]`` per layer, float64.
        n_rows: rows of the batch.
        x: explained distinct rows ``[r, d]``, float64 with the rounding of the client's float32.
        counts: rows of each class equal to them ``[r, classes]``.
        left: the observed gradient minus theirs.
    """

    network: RowNetwork
    observed: tuple[Tensor, ...]
    n_rows: int
    x: Tensor
    counts: Tensor
    left: tuple[Tensor, ...]

    @classmethod
    def of(cls, network: RowNetwork, observed: tuple[Tensor, ...], n_rows: int) -> "Residual":
        """Nothing explained yet."""
        x = observed[0].new_empty(0, network.state_map[0].shape[1])
        return cls(network, observed, n_rows, x, x.new_empty(0, network.n_classes), observed)

    def explaining(self, x: Tensor, counts: Tensor) -> "Residual":
        """The same gradient explained by these rows instead."""
        explained = self.network.gradient(x, counts, self.n_rows)
        left = tuple(o - e for o, e in zip(self.observed, explained, strict=True))
        return Residual(self.network, self.observed, self.n_rows, x, counts, left)

    def with_rows(self, x: Tensor, counts: Tensor) -> "Residual":
        """Further rows explained."""
        return self.explaining(torch.cat([self.x, x]), torch.cat([self.counts, counts]))

    @property
    def columns(self) -> Tensor:
        """What is left of the first layer's gradient by encoded cells ``[h, d + 1]``; see `RowNetwork.columns`."""
        return self.network.columns(self.left[0], self.x, self.counts, self.n_rows)

    @property
    def rows_left(self) -> int:
        """Rows of the batch that are not explained."""
        return self.n_rows - int(self.counts.sum())

    @property
    def relative(self) -> float:
        """Norm of what is left relative to the observed gradient's, over all layers; 0 where nothing was observed."""
        left, whole = (torch.stack([t.square().sum() for t in part]).sum() for part in (self.left, self.observed))
        return float((left / whole).sqrt()) if float(whole) > 0 else 0.0
