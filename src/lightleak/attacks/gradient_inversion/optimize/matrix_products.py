"""Batched matrix products in full precision, or with factors rounded to a shorter type that tensor cores multiply."""

import torch
from torch import Tensor


class MatrixProducts:
    """Products of ``[b, i, k]`` and ``[b, k, j]``.

    Args:
        dtype: type that both factors, and so the product, are rounded to; ``None`` keeps their type. What a
            product is added to stays float32.
    """

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        self.dtype = dtype

    def rounded(self, factor: Tensor) -> Tensor:
        """A factor of several products, rounded once for all of them."""
        return factor if self.dtype is None else factor.to(self.dtype)

    def bmm(self, left: Tensor, right: Tensor) -> Tensor:
        """The product.

        >>> MatrixProducts(torch.bfloat16).bmm(torch.full((1, 1, 1), 1.001), torch.ones(1, 1, 1)).item()
        1.0
        """
        if self.dtype is None:
            return torch.bmm(left, right)
        return torch.bmm(self.rounded(left), self.rounded(right)).float()

    def baddbmm(self, total: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """``total`` plus the product."""
        if self.dtype is None:
            return torch.baddbmm(total, left, right)
        return total + torch.bmm(self.rounded(left), self.rounded(right))

    def baddbmm_(self, total: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """As `baddbmm`, into ``total``."""
        if self.dtype is None:
            return total.baddbmm_(left, right)
        return total.add_(torch.bmm(self.rounded(left), self.rounded(right)))
