"""The epoch order-invariant prior: every local epoch sees the same rows (FedAvg paper, Sec. 4.4, Eq. 3)."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor

PriorDistance = Literal["l2", "l1"]
PriorStatistic = Literal["mean", "max", "conv_mean", "conv_max"]


def epoch_prior(
    x: Tensor,
    distance: PriorDistance = "l2",
    statistic: str = "mean",
    features: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """``1/E^2 sum_{e1,e2} D(g(epoch e1), g(epoch e2))``, with D the mean over features of squares or of magnitudes.

    Args:
        x: ``[..., epochs, rows, d]``.
        distance: D_inv.
        statistic: g: ``mean`` or ``max`` over the rows of an epoch.
        features: what of a row is compared, ``[..., d] -> [..., f]``; None: the row itself.

    Returns:
        ``[...]``.

    >>> import torch
    >>> epoch_prior(torch.tensor([[[0.0], [2.0]], [[3.0], [3.0]]]))
    tensor(2.)
    """
    values = x if features is None else features(x)
    of_epoch = values.amax(-2) if statistic.endswith("max") else values.mean(-2)
    if distance == "l2":
        # Over all pairs the mean of (a - b)^2 is twice the variance.
        return 2 * of_epoch.var(-2, unbiased=False).mean(-1)
    return (of_epoch.unsqueeze(-2) - of_epoch.unsqueeze(-3)).abs().mean((-1, -2, -3))
