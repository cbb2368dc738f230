"""How far a candidate's gradient is from the client's: value and derivative, for many candidates at once.

Every function takes gradients as a list of tensors ``[updates, restarts, *parameter]`` and targets ``[updates,
*parameter]`` and returns the loss ``[updates, restarts]`` with its derivative by each gradient. The derivative is in
closed form because it is the innermost step of the engine.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Objective = Callable[[Sequence[Tensor], Sequence[Tensor]], tuple[Tensor, list[Tensor]]]


def _per_candidate(values: Tensor) -> Tensor:
    return values.flatten(2)


def cosine(gradients: Sequence[Tensor], targets: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """``1 - <g, t> / (|g| |t|)`` over all parameters together (TabLeak Eq. 5; Geiping et al. 2020).

    Returns:
        Loss ``[updates, restarts]`` and its derivative by each gradient. A candidate whose gradient vanishes has loss 1
        and derivative 0.

    >>> g, t = [torch.tensor([[[3.0, 4.0]]])], [torch.tensor([[3.0, 4.0]])]
    >>> cosine(g, t)[0]
    tensor([[0.]])
    """
    inner, norm_sq, target_sq = 0.0, 0.0, 0.0
    for gradient, target in zip(gradients, targets, strict=True):
        g, t = _per_candidate(gradient), target.flatten(1)
        inner = inner + torch.bmm(g, t.unsqueeze(-1)).squeeze(-1)
        norm_sq = norm_sq + torch.linalg.vector_norm(g, dim=-1).square()
        target_sq = target_sq + torch.linalg.vector_norm(t, dim=-1).square()
    norm = torch.as_tensor(norm_sq).sqrt()
    scale = norm * torch.as_tensor(target_sq).sqrt().unsqueeze(-1)
    safe = torch.where(scale > 0, scale, torch.ones_like(scale))
    similarity = torch.as_tensor(inner) / safe
    by_target = torch.where(scale > 0, -1 / safe, torch.zeros_like(safe))
    by_gradient = torch.where(norm > 0, similarity / norm.square().clamp_min(torch.finfo(norm.dtype).tiny), torch.zeros_like(norm))
    derivatives = []
    for gradient, target in zip(gradients, targets, strict=True):
        shape = (*by_target.shape, *[1] * (gradient.dim() - 2))
        derivatives.append(torch.addcmul(gradient * by_gradient.view(shape), target.unsqueeze(1), by_target.view(shape)))
    return 1 - similarity, derivatives


def squared_error(gradients: Sequence[Tensor], targets: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Sum over parameters of the mean squared difference (Zhu et al. 2019, as TabLeak's baseline computes it).

    >>> g, t = [torch.tensor([[[1.0, 3.0]]])], [torch.tensor([[1.0, 1.0]])]
    >>> squared_error(g, t)[0]
    tensor([[2.]])
    """
    loss = torch.zeros(gradients[0].shape[:2], dtype=gradients[0].dtype, device=gradients[0].device)
    derivatives = []
    for gradient, target in zip(gradients, targets, strict=True):
        difference = gradient - target.unsqueeze(1)
        loss = loss + _per_candidate(difference).square().mean(-1)
        derivatives.append(difference * (2 / max(1, target[0].numel())))
    return loss, derivatives


OBJECTIVES: dict[str, Objective] = {"cosine": cosine, "squared_error": squared_error}
