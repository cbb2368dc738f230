"""How far a candidate's gradient is from the client's.

Every objective here is a function of inner products alone: ``<g, t>`` and ``<g, g>`` per parameter tensor, with g the
candidate's gradient and t the client's. So a matcher needs no gradient in memory where it can compute those products
more cheaply, and the derivative by g is ``by_inner * t + 2 * by_norm * g``.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Objective = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""From inner products to the loss and its derivatives by them.

Arguments: ``inner`` and ``norm`` ``[updates, restarts, tensors]``, ``target_norm`` ``[updates, 1, tensors]`` (squared
norms) and ``sizes`` ``[tensors]``. Results: the loss ``[updates, restarts]``, ``by_inner`` and ``by_norm``
``[updates, restarts, tensors]``.
"""


def cosine(inner: Tensor, norm: Tensor, target_norm: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``1 - <g, t> / (|g| |t|)`` over all parameters together (TabLeak Eq. 5; Geiping et al. 2020).

    A candidate whose gradient vanishes has loss 1 and derivative 0.

    >>> loss, _, _ = cosine(torch.tensor([[[25.0]]]), torch.tensor([[[25.0]]]), torch.tensor([[[25.0]]]), torch.ones(1))
    >>> loss
    tensor([[0.]])
    """
    # Roots first: the product of two squared norms may be too small for float32. A squared norm that rounding left
    # below zero has no root and counts as vanished.
    total, squares = inner.sum(-1, keepdim=True), norm.sum(-1, keepdim=True)
    scale = squares.sqrt() * target_norm.sum(-1, keepdim=True).sqrt()
    alive = scale > 0
    by_inner = torch.where(alive, -1 / scale, torch.zeros_like(scale))
    by_norm = torch.where(alive, -0.5 * total * by_inner / squares, torch.zeros_like(scale))
    loss = 1 + (total * by_inner).squeeze(-1)
    return loss, by_inner.expand_as(inner), by_norm.expand_as(inner)


def squared_error(inner: Tensor, norm: Tensor, target_norm: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sum over parameter tensors of the mean squared difference (Zhu et al. 2019, as TabLeak's baseline has it).

    >>> g, t = torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0])
    >>> loss, _, _ = squared_error(*(v.view(1, 1, 1) for v in (g @ t, g @ g, t @ t)), torch.tensor([2.0]))
    >>> loss
    tensor([[2.]])
    """
    weights = (1 / sizes).expand_as(inner)
    return ((norm - 2 * inner + target_norm) * weights).sum(-1), -2 * weights, weights


def relative_error(inner: Tensor, norm: Tensor, target_norm: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``|g - t|^2 / |t|^2`` over all parameters together: under Gaussian noise the likelihood, up to a factor.

    >>> g, t = torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0])
    >>> loss, _, _ = relative_error(*(v.view(1, 1, 1) for v in (g @ t, g @ g, t @ t)), torch.tensor([2.0]))
    >>> loss
    tensor([[2.]])
    """
    scale = (1 / target_norm.sum(-1, keepdim=True)).expand_as(inner)
    return ((norm - 2 * inner + target_norm) * scale).sum(-1), -2 * scale, scale


OBJECTIVES: dict[str, Objective] = {"cosine": cosine, "squared_error": squared_error, "relative_error": relative_error}


def layered_error(inner: Tensor, norm: Tensor, target_norm: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Squared difference, each layer (weight and bias) counting ``1/e`` of the one before it.

    It is what the code of the FedAvg paper minimizes, where the text says cosine distance (Dimitrov et al. 2022).
    """
    layer = torch.arange(len(sizes), dtype=inner.dtype, device=inner.device) // 2
    weights = torch.exp(-layer).expand_as(inner)
    return ((norm - 2 * inner + target_norm) * weights).sum(-1), -2 * weights, weights
