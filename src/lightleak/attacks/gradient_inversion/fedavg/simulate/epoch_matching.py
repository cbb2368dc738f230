"""One reconstruction out of the epochs': match every epoch to the first and average (FedAvg paper, Algorithm 3)."""

from collections.abc import Callable

from torch import Tensor

from lightleak.attacks.gradient_inversion.optimize.pooling import align_rows


def match_epochs(similar: Callable[[Tensor, Tensor], Tensor], x: Tensor) -> Tensor:
    """Average the rows of all epochs that belong together.

    Args:
        similar: how alike two rows are; see `align_rows`.
        x: ``[..., epochs, n, d]``.

    Returns:
        ``[..., n, d]``, in the order of the first epoch.
    """
    if x.shape[-3] == 1:
        return x.squeeze(-3)
    return align_rows(similar, x[..., :1, :, :], x).mean(-3)
