"""Can attacks work on a user's module? Tried on made rows before anything else is done."""

import copy

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.targets.functional import cross_entropy
from lightleak.targets.normalization import with_functional_normalization
from lightleak.targets.own import require_parameters

ROWS, CANDIDATES = 3, 2
"""The fewest that show a module that mixes up rows with candidates; BatchNorm needs more than one row."""

SUM_TOLERANCE = 1e-4
"""Of a row of probabilities: far above float32's rounding; logits that sum to 1 on every made row are no accident."""


def require_attackable(network: nn.Module, width: int) -> int:
    """Try what every attack repeats, a gradient for each of several candidate batches, and return the number of logits.

    The module is copied; it keeps its weights, buffers and mode, and torch's global generator its state.

    Args:
        network: takes encoded rows ``[n, width]``.
        width: encoded features.

    Raises:
        UnsupportedError: it has no parameters yet, does not take such rows, does not return logits ``[n, n_classes]``
            (probabilities are none), draws random numbers other than in ``nn.Dropout`` layers, or has no gradient under
            ``torch.func`` (it branches on the values of a tensor, say).
    """
    require_parameters(network)
    name = type(network).__name__
    tried = with_functional_normalization(copy.deepcopy(network).cpu()).train()
    for module in tried.modules():
        if isinstance(module, nn.Dropout):
            module.eval()
    parameters = {key: value.detach() for key, value in tried.named_parameters()}
    dtype = next(iter(parameters.values())).dtype
    rows = torch.linspace(-1, 1, CANDIDATES * ROWS * width, dtype=dtype).reshape(CANDIDATES, ROWS, width)
    with torch.random.fork_rng(devices=[]):
        n_classes = _logits(tried, name, rows[0])
        labels = torch.zeros(ROWS, dtype=torch.long)

        def loss(named: dict[str, Tensor], x: Tensor) -> Tensor:
            return cross_entropy(functional_call(tried, named, (x,)), labels)

        try:
            vmap(grad(loss), in_dims=(None, 0))(parameters, rows)
        except Exception as error:  # a user's forward may raise anything
            raise UnsupportedError(
                f"{name} has no gradient per candidate batch under torch.func, which attacks need; draw random numbers "
                f"in nn.Dropout layers alone and do not branch on values: {_first_line(error)}"
            ) from error
    return n_classes


def require_auditable(network: nn.Module, width: int, n_classes: int) -> None:
    """Refuse a module that a table's encoded rows cannot go through, or that is not of its classes.

    Args:
        network: takes encoded rows ``[n, width]``.
        width: encoded features.
        n_classes: classes of the table's label.

    Raises:
        UnsupportedError: parameters that are not float32, or as `require_attackable`.
        UsageError: another number of logits.
    """
    name = type(network).__name__
    if odd := {str(one.dtype) for one in network.parameters()} - {str(torch.float32)}:
        raise UnsupportedError(
            f"parameters of {name} must be torch.float32, as encoded rows are, got {', '.join(sorted(odd))}; hand over "
            "model.float()"
        )
    got = require_attackable(network, width)
    if got != n_classes:
        raise UsageError(f"{name} must return {n_classes} logits (classes of the label), got {got}")


def _logits(network: nn.Module, name: str, rows: Tensor) -> int:
    expected = f"{name} must take encoded rows [n, {rows.shape[1]}] and return logits [n, n_classes]"
    try:
        with torch.no_grad():
            logits = network(rows)
    except Exception as error:  # a user's forward may raise anything
        raise UnsupportedError(f"{expected}; got {type(error).__name__}: {_first_line(error)}") from error
    if not isinstance(logits, Tensor):
        raise UnsupportedError(f"{expected}; it returned a {type(logits).__name__}")
    if logits.dim() != 2 or len(logits) != len(rows) or logits.shape[1] < 2:
        got = f"{list(logits.shape)} for {len(rows)} rows"
        raise UnsupportedError(f"{expected} of at least 2 classes; it returned {got}")
    if _are_probabilities(logits):
        raise UnsupportedError(
            f"{name} returns probabilities, of which cross-entropy would take a second softmax; return logits, without "
            "softmax as the last layer"
        )
    return int(logits.shape[1])


def _are_probabilities(outputs: Tensor) -> bool:
    """Log-probabilities are none: cross-entropy of them is that of the logits."""
    return bool((outputs >= 0).all()) and bool(((outputs.float().sum(-1) - 1).abs() < SUM_TOLERANCE).all())


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
