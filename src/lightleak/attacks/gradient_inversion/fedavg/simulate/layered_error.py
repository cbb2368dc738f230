"""The distance of updates that the code of the FedAvg paper minimizes."""

import torch
from torch import Tensor


def layered_error(inner: Tensor, norm: Tensor, target_norm: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Squared difference, each layer (weight and bias) counting ``1/e`` of the one before it.

    It is what the code of the FedAvg paper minimizes, where the text says cosine distance (Dimitrov et al. 2022).
    """
    layer = torch.arange(len(sizes), dtype=inner.dtype, device=inner.device) // 2
    weights = torch.exp(-layer).expand_as(inner)
    return ((norm - 2 * inner + target_norm) * weights).sum(-1), -2 * weights, weights
