"""How many rows of each class stand behind an update, read off the gradient of the last layer."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lightleak.core.errors import UnsupportedError
from lightleak.data.encoder import TableEncoder
from lightleak.targets.functional import functional_call
from lightleak.targets.normalization import frozen_statistics

LastLayerStatistics = tuple[Tensor, Tensor]
"""Mean probability per class ``[classes]``, and mean sum of the last layer's input, a scalar; both float64."""

ROWS_AT_ONCE = 500
"""Dummy rows in one pass: 1,000 would take 400 MB after the first convolution and its ReLU on FEMNIST's images."""

DUMMY_ROWS = 1000  # rows Geng et al.'s estimate averages over, as in TabLeak's implementation


def last_linear(network: nn.Module) -> tuple[str, nn.Linear]:
    """Name and module of the layer that computes the logits, which every network registers last.

    Raises:
        UnsupportedError: the network has no Linear layer.
    """
    linears = [(name, module) for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    if not linears:
        raise UnsupportedError(f"labels are restored from a last Linear layer; {type(network).__name__} has none")
    return linears[-1]


def require_restorable(network: nn.Module, method: str) -> None:
    """Check that ``method`` has a meaning for this network.

    Raises:
        UnsupportedError: no Linear layer, ``bias`` without a bias in the last one, or ``geng`` where that one is the
            only layer: its formula divides by the mean sum of the layer's input, about 0 for standardized rows.
    """
    _, layer = last_linear(network)
    has_bias, is_only = layer.bias is not None, len([p for p in network.parameters() if p.dim() > 1]) == 1
    if method == "bias" and not has_bias:
        other = "" if is_only else "; use labels='geng'"
        raise UnsupportedError(f"labels='bias' needs a bias in the last layer{other}")
    if method == "geng" and is_only:
        other = "; use labels='bias' (of gradients alone) or labels='true'" if has_bias else ""
        raise UnsupportedError(f"labels='geng' needs a hidden layer, this network has none{other}")


def restore_counts(
    network: nn.Module,
    parameters: Mapping[str, Tensor],
    buffers: Mapping[str, Tensor],
    gradient: Mapping[str, Tensor],
    n_rows: int,
    dummy: Tensor,
    method: str = "geng",
) -> Tensor:
    """Estimated rows per class, real-valued ``[classes]``.

    The gradient by the last bias is ``mean(p) - n_c / n``, and by the last weight ``mean((p - y) h)``. ``geng`` (Geng
    et al. 2021) takes the mean probability and the mean activation sum from dummy rows:
    ``n_c = n p - n sum(dW_c) / sum(h)``. ``bias`` reads ``n_c = n (p - db_c)`` off the bias, where only the mean
    probability is estimated: the closer the dummy rows come to the client's, the surer the rounded count is exact.

    Args:
        network: the target, in the mode the client ran it in.
        parameters: its parameters before the update, by name.
        buffers: its buffers by name; those left out are the network's own. None is changed.
        gradient: gradient of the mean loss by name.
        n_rows: rows behind the update.
        dummy: rows ``[k, d]`` to average over: `geng_rows` for ``geng``, `plausible_rows` for ``bias``.
        method: ``geng`` or ``bias``.

    Raises:
        UnsupportedError: see `require_restorable`.
    """
    require_restorable(network, method)
    name, _ = last_linear(network)
    probability, activation = last_layer_statistics(network, parameters, buffers, dummy)
    if method == "bias":
        return n_rows * (probability - gradient[f"{name}.bias"])
    return n_rows * probability - n_rows * gradient[f"{name}.weight"].sum(1) / activation


def last_layer_statistics(
    network: nn.Module, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], dummy: Tensor
) -> LastLayerStatistics:
    """What Geng's formula needs to know of the client's rows, from dummy rows in their place.

    Args:
        network: the target.
        parameters: its parameters by name.
        buffers: its buffers by name.
        dummy: rows ``[k, d]`` to average over.
    """
    values = _double({**parameters, **buffers})
    sums: list[Tensor] = []
    probabilities: list[Tensor] = []
    handle = last_linear(network)[1].register_forward_pre_hook(lambda _, inputs: sums.append(inputs[0].sum(1)))
    try:
        with torch.no_grad(), frozen_statistics(network):
            for rows in dummy.double().split(ROWS_AT_ONCE):
                probabilities.append(functional_call(network, values, (rows,)).softmax(-1))
    finally:
        handle.remove()
    return torch.cat(probabilities).mean(0), torch.cat(sums).mean()


def _double(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: t.double() if t.is_floating_point() else t.clone() for name, t in tensors.items()}


def geng_rows(encoder: TableEncoder, draws: torch.Generator) -> Tensor:
    """Dummy rows ``[DUMMY_ROWS, d]`` for Geng's formula.

    Standard normal, as in TabLeak's implementation, where every feature is standardized. In any other encoding such
    noise is unlike the client's rows, and so is the mean sum of the last layer's input: `plausible_rows` instead.
    """
    if encoder.encoding == "standardized":
        return torch.randn(DUMMY_ROWS, encoder.width, generator=draws)
    return plausible_rows(encoder, DUMMY_ROWS, draws)


def plausible_rows(encoder: TableEncoder, n: int, draws: torch.Generator) -> Tensor:
    """Encoded rows ``[n, d]`` from what the server's encoder statistics say of each column, independently.

    Categories by their shares and numbers by mean and deviation where the encoding holds them; else evenly over the
    categories, and over the encoded bounds.

    Args:
        encoder: schema and statistics.
        n: rows to draw.
        draws: where the randomness comes from.
    """
    codes = []
    for block in encoder.layout.categorical:
        shares = encoder.shift[block.slice].clamp_min(0)
        weights = shares if float(shares.sum()) > 0 else torch.ones_like(shares)
        codes.append(torch.multinomial(weights, n, replacement=True, generator=draws))
    at = encoder.numerical_positions
    lower, upper = (bound[at] for bound in encoder.encoded_bounds())
    if encoder.encoding in ("standardized", "onehot"):
        numbers = torch.randn(n, len(at), generator=draws, dtype=torch.float64).clamp(lower, upper)
    else:
        numbers = lower + (upper - lower) * torch.rand(n, len(at), generator=draws, dtype=torch.float64)
    unset = torch.zeros(n, len(at), dtype=torch.float64)
    rows = encoder.assemble(torch.stack(codes, -1) if codes else torch.empty(n, 0, dtype=torch.long), unset)
    rows[:, at] = numbers.float()
    return rows


def round_counts(counts: Tensor, n_rows: int) -> Tensor:
    """Whole counts that sum to ``n_rows``: give one row at a time to the class that has most left.

    Args:
        counts: real-valued counts ``[classes]``; their sum need not be ``n_rows``, and some may be below 0.
        n_rows: rows to give.

    Returns:
        LongTensor ``[classes]``.

    >>> round_counts(torch.tensor([1.6, 2.4]), 4)
    tensor([2, 2])
    """
    left = counts.double().clone()
    rounded = torch.zeros(len(counts), dtype=torch.long)
    for _ in range(n_rows):
        most = int(left.argmax())
        rounded[most] += 1
        left[most] -= 1
    return rounded


def expand_counts(counts: Tensor) -> Tensor:
    """Labels in class order, LongTensor ``[n]``; which row holds which label is without meaning in a batch gradient.

    >>> expand_counts(torch.tensor([1, 2]))
    tensor([0, 1, 1])
    """
    return torch.repeat_interleave(torch.arange(len(counts)), counts)


def each_row(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Every row of a batch by itself: which of the distinct rows it is, and its label, LongTensor ``[n]`` each.

    Args:
        counts: rows of each class that are equal to each distinct one ``[r, classes]``.

    >>> each_row(torch.tensor([[1, 1], [0, 2]]))
    (tensor([0, 0, 1, 1]), tensor([0, 1, 1, 1]))
    """
    every = counts.flatten().long()
    index = torch.repeat_interleave(torch.arange(len(every), device=every.device), every)
    return index // counts.shape[1], index % counts.shape[1]
