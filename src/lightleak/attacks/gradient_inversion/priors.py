"""Priors added to the matching loss (GradInversion, Yin et al. 2021, as TabLeak adapts it to tables)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.config import InversionConfig
from lightleak.attacks.gradient_inversion.matcher import Penalty, Statistics
from lightleak.core.observations import ClientUpdate


def batch_norm_distance(measured: Statistics, true: Statistics) -> Tensor:
    """Squared distance of BatchNorm means and variances, summed over layers and channels.

    Args:
        measured: per layer mean and variance of the candidates, ``[updates, restarts, channels]`` each.
        true: those of the client's batch, ``[updates, channels]`` each.

    Returns:
        ``[updates, restarts]``.
    """
    terms = [
        (found - expected.unsqueeze(1)).square().sum(-1)
        for layer, pair in true.items()
        for found, expected in zip(measured[layer], pair, strict=True)
    ]
    return torch.stack(terms).sum(0)


def inversion_penalty(
    updates: Sequence[ClientUpdate], config: InversionConfig, device: torch.device, dtype: torch.dtype
) -> Penalty | None:
    """The penalty a configuration asks for, or ``None``. A network without BatchNorm has no statistics to match.

    Args:
        updates: observations of one network.
        config: ``l2_prior`` and ``batch_norm_prior``.
        device: where to work.
        dtype: in which precision.
    """
    layers = sorted({name.rsplit(".", 1)[0] for name in updates[0].batch_statistics})
    use_statistics = config.batch_norm_prior > 0 and bool(layers)
    if config.l2_prior == 0 and not use_statistics:
        return None

    def shared(name: str) -> Tensor:
        return torch.stack([u.batch_statistics[name] for u in updates]).to(device, dtype)

    true = {layer: (shared(f"{layer}.mean"), shared(f"{layer}.var")) for layer in layers} if use_statistics else {}

    def penalty(x: Tensor, statistics: Statistics) -> Tensor:
        total = config.l2_prior * x.square().sum((-1, -2))
        return total + config.batch_norm_prior * batch_norm_distance(statistics, true) if true else total

    return penalty
