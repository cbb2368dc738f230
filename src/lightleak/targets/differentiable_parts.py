"""Parts of other libraries' models that attacks cannot differentiate, and what computes the same and can be."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

PACKAGE = "pytorch_tabular."
TABNET = "pytorch_tabnet."
"""From which pytorch-tabular takes TabNet."""

FRAME = "torch_frame."
"""pytorch-frame."""


def t_softmax(scores: Tensor, t: Tensor) -> Tensor:
    """Sparse softmax over the last dimension (Bałazy et al. 2023, "r-softmax", arXiv 2304.05243).

    Weights ``relu(scores + t - max)`` multiply the exponentials, so scores further than ``t`` below the largest get
    nothing. Values are those of pytorch-tabular; there is no check of ``t``'s values, which `torch.func.vmap` over
    stacked parameters would refuse.

    Args:
        scores: ``[..., features]``.
        t: broadcasts against ``scores``; at least 0.

    >>> t_softmax(torch.tensor([0.0, -1.0, -3.0]), torch.tensor(2.0))
    tensor([8.4464e-01, 1.5536e-01, 2.1026e-10])
    """
    shifted = scores - scores.amax(dim=-1, keepdim=True)
    # The constant keeps the sum above zero where t = 0; it is pytorch-tabular's.
    weighted = (torch.relu(shifted + t) + 1e-8) * shifted.exp()
    return weighted / weighted.sum(dim=-1, keepdim=True)


def entmax15(scores: Tensor, dim: int = -1) -> Tensor:
    """1.5-entmax (Peters et al. 2019, arXiv 1905.05702), with derivatives of every order and under ``torch.func``.

    >>> entmax15(torch.tensor([1.0, 1.0, -3.0]))
    tensor([0.5000, 0.5000, 0.0000])
    """
    x = (scores - scores.amax(dim, keepdim=True)) / 2
    ordered = x.detach().sort(dim, descending=True).values
    counts = torch.ones_like(ordered).cumsum(dim)
    means, squares = ordered.cumsum(dim) / counts, ordered.square().cumsum(dim) / counts
    thresholds = means - ((1 - counts * (squares - means.square())) / counts).clamp_min(0).sqrt()
    size = (thresholds <= ordered).sum(dim, keepdim=True)
    # The threshold once more, from the support alone: a square root has no derivative at the zeros beyond it.
    support = (x >= (ordered * (counts == size)).sum(dim, keepdim=True)).to(x.dtype)
    mean = (x * support).sum(dim, keepdim=True) / size
    spread = ((x - mean).square() * support).sum(dim, keepdim=True)
    return (x - mean + ((1 - spread) / size).sqrt()).clamp_min(0).square()


def sparsemax(scores: Tensor, dim: int = -1) -> Tensor:
    """Sparsemax (Martins and Astudillo 2016, arXiv 1602.02068), with derivatives of every order and ``torch.func``.

    >>> sparsemax(torch.tensor([1.0, 0.6, -3.0]))
    tensor([0.7000, 0.3000, 0.0000])
    """
    ordered = scores.detach().sort(dim, descending=True).values
    counts = torch.ones_like(ordered).cumsum(dim)
    size = (1 + counts * ordered > ordered.cumsum(dim)).sum(dim, keepdim=True)
    support = (scores >= (ordered * (counts == size)).sum(dim, keepdim=True)).to(scores.dtype)
    threshold = ((scores * support).sum(dim, keepdim=True) - 1) / size
    return (scores - threshold).clamp_min(0)


REPLACED: dict[str, Callable[..., Tensor]] = {"t_softmax": t_softmax, "entmax15": entmax15}


def with_differentiable_parts(network: nn.Module) -> nn.Module:
    """Replace, in place, what ``torch.func`` refuses in other libraries' layers; logits and gradients stay equal.

    These are pytorch-tabular's sparse softmaxes, those of TabNet among them, and the feature importances that its
    FT-Transformer and AutoInt record in a forward; and the mask of missing codes of pytorch-frame's embeddings.

    Returns:
        ``network``.
    """
    for module in network.modules():
        if type(module).__module__.startswith(TABNET):
            _adapt_tabnet(module)
        if type(module).__module__.startswith(FRAME) and type(module).__name__ == "EmbeddingEncoder":
            vars(module)["encode_forward"] = partial(_present_codes, module)
        if not type(module).__module__.startswith(PACKAGE):
            continue
        for name, value in list(vars(module).items()):
            function = value.func if isinstance(value, partial) else value
            if str(getattr(function, "__module__", "")).startswith(PACKAGE) and _name(function) in REPLACED:
                mine = REPLACED[_name(function)]
                bound = partial(mine, *value.args, **value.keywords) if isinstance(value, partial) else mine
                setattr(module, name, bound)
        if hasattr(module, "_calculate_feature_importance"):
            vars(module)["_calculate_feature_importance"] = _nothing
    return network


def _adapt_tabnet(module: Any) -> None:
    """Replace TabNet's sparsemax and its cast of numbers to float32; tensors that are no buffers become buffers."""
    if type(module).__name__ == "Sparsemax":
        vars(module)["forward"] = partial(sparsemax, dim=module.dim)
    if type(module).__name__ == "EmbeddingGenerator" and not module.skip_embedding:
        vars(module)["forward"] = partial(_embedded_columns, module.embeddings, module.continuous_idx.tolist())
    for name, value in list(vars(module).items()):
        if isinstance(value, Tensor) and value.is_floating_point():
            delattr(module, name)
            module.register_buffer(name, value, persistent=False)


def _embedded_columns(embeddings: nn.ModuleList, is_number: list[bool], x: Tensor) -> Tensor:
    """Numbers as they are and codes embedded, in the order of the columns ``[n, columns]``."""
    layers = iter(embeddings)
    columns = [x[:, [k]] if number else next(layers)(x[:, k].long()) for k, number in enumerate(is_number)]
    return torch.cat(columns, 1)


def _present_codes(encoder: Any, codes: Tensor, names: list[str] | None = None) -> Tensor:
    """Embeddings of codes ``[n, columns]`` of which none is missing."""
    embedded: Tensor = encoder.emb(codes + encoder.offset + 1)
    return embedded


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", ""))


def _nothing() -> None:
    """In the place of notes that a forward takes."""
