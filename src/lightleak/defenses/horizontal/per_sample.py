"""Gradients row by row, and their clipped mean: what DP-SGD starts from (Abadi et al. 2016, Algorithm 1)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from lightleak.targets.functional import criterion, functional_call

NORM_FLOOR = 1e-6
"""Added to every norm, as opacus does, so that a row without gradient can be clipped."""


def per_sample_gradients(
    network: nn.Module,
    parameters: Mapping[str, Tensor],
    buffers: Mapping[str, Tensor],
    inputs: Tensor,
    labels: Tensor,
    loss: str = "cross_entropy",
) -> dict[str, Tensor]:
    """Gradient of each row's loss, ``[n, *shape]`` per parameter, every row computed on its own.

    Dropout draws from torch's global generator, for each row anew.

    Args:
        network: the module in its mode; only its computation is used.
        parameters: named parameters.
        buffers: named buffers; those left out are the network's own.
        inputs: ``[n, d]``.
        labels: class indices ``[n]``.
        loss: name of the criterion.

    >>> layer = nn.Linear(1, 2)
    >>> zero = {name: torch.zeros_like(value) for name, value in layer.named_parameters()}
    >>> per_sample_gradients(layer, zero, {}, torch.ones(2, 1), torch.tensor([0, 1]))["bias"]
    tensor([[-0.5000,  0.5000],
            [ 0.5000, -0.5000]])
    """
    measure = criterion(loss)

    def row_loss(values: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        return measure(functional_call(network, (values, dict(buffers)), (row.unsqueeze(0),)), label.unsqueeze(0))

    each_row = vmap(grad(row_loss), in_dims=(None, 0, 0), randomness="different")
    return each_row({name: value.detach() for name, value in parameters.items()}, inputs, labels)


def clip_factors(gradients: Mapping[str, Tensor], max_norm: float) -> Tensor:
    """Factor ``[n]`` that scales each row's gradient down to Euclidean norm ``max_norm`` over all parameters together.

    >>> clip_factors({"w": torch.tensor([[3.0, 4.0], [0.0, 1.0]])}, max_norm=1.0)
    tensor([0.2000, 1.0000])
    """
    norms = torch.stack([g.reshape(len(g), -1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
    return (max_norm / (norms + NORM_FLOOR)).clamp(max=1)


def clipped_mean(gradients: Mapping[str, Tensor], max_norm: float) -> dict[str, Tensor]:
    """Mean over rows of the gradients, each scaled down to Euclidean norm ``max_norm`` over all parameters together.

    >>> clipped_mean({"w": torch.tensor([[3.0, 4.0], [0.0, 1.0]])}, max_norm=1.0)["w"]
    tensor([0.3000, 0.9000])
    """
    factors = clip_factors(gradients, max_norm)
    share = factors / len(factors)
    return {name: torch.einsum("n,n...->...", share, g) for name, g in gradients.items()}
