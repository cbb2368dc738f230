"""Merging reconstructions of one batch: an ensemble (TabLeak Sec. 3.1.2, Fig. 3, Eq. 3-4), or those of epochs."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.config import Pooling
from lightleak.attacks.gradient_inversion.tables.codec import similarity
from lightleak.core.matching import match_rows
from lightleak.data.encoder import TableEncoder


def align(encoder: TableEncoder, ensemble: Tensor, best: int) -> Tensor:
    """Reorder the rows of every restart to match those of the best one.

    Args:
        encoder: schema and statistics.
        ensemble: ``[restarts, n, d]``.
        best: restart of least loss.

    Returns:
        ``[restarts, n, d]``.
    """
    return align_rows(partial(similarity, encoder), ensemble[best], ensemble)


def align_rows(similar: Callable[[Tensor, Tensor], Tensor], reference: Tensor, candidates: Tensor) -> Tensor:
    """Candidates ``[..., n, d]`` with their rows in the order that matches ``reference`` ``[..., n, d]`` best.

    Args:
        similar: how alike reference row i and candidate row j are, ``[..., n, n]``.
        reference: its leading dimensions broadcast against those of the candidates.
        candidates: what is reordered.
    """
    order = match_rows(similar(reference, candidates))
    return torch.gather(candidates, -2, order.unsqueeze(-1).expand(*order.shape, candidates.shape[-1]))


def pool(aligned: Tensor, best: int, pooling: Pooling) -> Tensor:
    """One batch ``[n, d]`` from the aligned ensemble (TabLeak Eq. 3-4).

    Args:
        aligned: ``[restarts, n, d]``.
        best: restart that ``none`` keeps.
        pooling: ``median`` (of an even number the lower one), ``mean``, or ``none``.
    """
    if pooling == "median":
        return aligned.median(0).values
    return aligned.mean(0) if pooling == "mean" else aligned[best]


def match_epochs(similar: Callable[[Tensor, Tensor], Tensor], x: Tensor) -> Tensor:
    """Average the rows of all epochs that belong together (FedAvg paper, Algorithm 3).

    Args:
        similar: how alike two rows are; see `align_rows`.
        x: ``[..., epochs, n, d]``.

    Returns:
        ``[..., n, d]``, in the order of the first epoch.
    """
    if x.shape[-3] == 1:
        return x.squeeze(-3)
    return align_rows(similar, x[..., :1, :, :], x).mean(-3)
