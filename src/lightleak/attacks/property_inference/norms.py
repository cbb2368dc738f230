"""One number per record from its intermediate result (ProVFL Sec. IV)."""

from typing import Literal, get_args

from torch import Tensor

from lightleak.core.errors import UsageError

Norm = Literal["l1", "l2", "linf"]
NORMS: tuple[Norm, ...] = get_args(Norm)


def record_norms(results: Tensor, norm: Norm = "l1") -> Tensor:
    """Norm of every record's vector, ``[.., n, width] -> [.., n]``.

    As in the published code the L1 norm is a mean, ``mean |z|``; the L2 norm is the root of the mean square, and Linf
    the greatest ``|z|``. Dividing by the width changes no order, so trees and the mixture do not feel it.

    >>> import torch
    >>> record_norms(torch.tensor([[3.0, -1.0]]), "l1").tolist()
    [2.0]

    Raises:
        UsageError: an unknown norm.
    """
    size = results.abs()
    if norm == "l1":
        return size.mean(-1)
    if norm == "l2":
        return size.square().mean(-1).sqrt()
    if norm == "linf":
        return size.amax(-1)
    raise UsageError(f"norm must be one of {', '.join(NORMS)}, got {norm!r}")
