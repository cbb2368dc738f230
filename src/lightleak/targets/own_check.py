"""Check on a few rows, before anything else, that updates of a user's module can be audited."""

from typing import Any

import torch
from torch import Tensor, nn

from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.data.encoder import TableEncoder
from lightleak.targets.functional import without_dropout
from lightleak.targets.own import copied_network, require_parameters

ROWS = 3
"""On which a module is tried; BatchNorm needs more than one."""

SUM_TOLERANCE = 1e-4
"""Of a row of probabilities: far above float32's rounding; logits that sum to 1 on every made row are no accident."""


def require_classifier(network: nn.Module, rows: Tensor) -> int:
    """Try a module and return the number of its logits.

    What attacks need beyond that, they check themselves. The module is copied; it keeps its weights, buffers and mode,
    and torch's global generator its state.

    Args:
        network: takes encoded rows ``[n, width]``.
        rows: such rows, at least 2 (`lightleak.data.encoder.TableEncoder.spread_rows`).

    Raises:
        UnsupportedError: it has no parameters yet, cannot be copied, or a copy computes with parameters of the
            original; it does not take such rows, or does not return logits ``[n, n_classes]`` (probabilities are none).
    """
    require_parameters(network)
    tried, again = (without_dropout(copied_network(network).train()) for _ in range(2))
    rows, name = rows.to(next(tried.parameters()).dtype), type(network).__name__
    with torch.random.fork_rng(devices=[]):
        logits, other = (_logits(copied, name, rows.clone()) for copied in (tried, again))
        if _leaves(logits) & _leaves(other):
            raise UnsupportedError(
                f"a copy of {name} computes with parameters of the module that it was copied from: a lambda or an "
                "inner function that holds self (or the module) is not copied; make it a method of the class"
            )
    return int(logits.shape[1])


def require_trained(network: nn.Module) -> None:
    """Raise `UsageError` if a parameter is frozen: an update covers all of them."""
    if frozen := [name for name, parameter in network.named_parameters() if not parameter.requires_grad]:
        raise UsageError(f"every parameter of the network must be trained to be captured; frozen: {frozen[:3]}")


def require_auditable(network: nn.Module, encoder: TableEncoder, n_classes: int) -> None:
    """Refuse a module that a table's encoded rows cannot go through, or that is not of its classes.

    Args:
        network: takes encoded rows ``[n, width]``.
        encoder: fitted on the table.
        n_classes: classes of the table's label.

    Raises:
        UnsupportedError: parameters that are not float32, or as `require_classifier`.
        UsageError: another number of logits, or a frozen parameter.
    """
    require_trained(network)
    name = type(network).__name__
    if odd := {str(one.dtype) for one in network.parameters()} - {str(torch.float32)}:
        raise UnsupportedError(
            f"parameters of {name} must be torch.float32, as encoded rows are, got {', '.join(sorted(odd))}; hand over "
            "model.float()"
        )
    got = require_classifier(network, encoder.spread_rows(ROWS))
    if got != n_classes:
        raise UsageError(f"{name} must return {n_classes} logits (classes of the label), got {got}")


def _logits(network: nn.Module, name: str, rows: Tensor) -> Tensor:
    expected = f"{name} must take encoded rows [n, {rows.shape[1]}] and return logits [n, n_classes]"
    try:
        with torch.enable_grad():
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
    return logits


def _leaves(output: Tensor) -> set[Tensor]:
    """The tensors in memory, parameters above all, from which the graph of an output starts."""
    found, seen, open_nodes = set[Tensor](), set[Any](), [output.grad_fn]
    while open_nodes:
        node = open_nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (variable := getattr(node, "variable", None)) is not None:
            found.add(variable)
        open_nodes += [before for before, _ in node.next_functions]
    return found


def _are_probabilities(outputs: Tensor) -> bool:
    """Log-probabilities are none: cross-entropy of them is that of the logits."""
    return bool((outputs >= 0).all()) and bool(((outputs.float().sum(-1) - 1).abs() < SUM_TOLERANCE).all())


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
