"""What is left of a FedSGD gradient once some of its rows are known: the gradient of the others."""

from dataclasses import replace

import torch
from torch import Tensor

from lightleak.attacks.gradient_inversion.exact.unknown_statistics import normalizes_by_batch
from lightleak.attacks.gradient_inversion.network.client import client_network
from lightleak.attacks.gradient_inversion.network.linear_forms import from_linear
from lightleak.attacks.gradient_inversion.network.of_update import layer_gradients, names_of_layers, row_network
from lightleak.attacks.gradient_inversion.network.traced import TracedNetwork
from lightleak.core.errors import ObservationError, UnsupportedError, UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.targets.functional import gradients


def peeled_update(update: ClientUpdate, rows_encoded: Tensor, label_counts: Tensor) -> ClientUpdate:
    """The update that a client without these rows would have sent, so that any attack runs on what is left.

    With n rows of which k are known, ``g_rest = (n g - sum of the known rows' gradients) / (n - k)``, float64. Labels
    and statistics of the whole batch are left out.

    Args:
        update: a FedSGD gradient on a network that works row by row, of one client or the mean over clients with
            equally many rows.
        rows_encoded: distinct or repeated known rows as the client's network saw them, ``[r, d]``.
        label_counts: how many rows of each class are equal to each of them, ``[r, classes]``; they sum to k < n.

    Raises:
        UnsupportedError: another network.
        ObservationError: no FedSGD gradient.
        UsageError: as many rows as the batch has, or more, or tensors that do not fit each other.
    """
    facts = update.facts
    if update.kind != "gradient":
        raise ObservationError(f"rows are taken out of a FedSGD gradient; this update is a {update.kind}")
    n, network = facts.n_rows, row_network(update)
    if not network.peels:
        raise UnsupportedError(
            "what known rows leave of a gradient with BatchNorm over the batch is no gradient of others"
        )
    expected = (len(rows_encoded), network.n_classes)
    if tuple(label_counts.shape) != expected:
        raise UsageError(f"label_counts must have shape {expected}, got {tuple(label_counts.shape)}")
    rest = n - int(label_counts.sum())
    if not 0 < rest <= n:
        raise UsageError(f"known rows must be fewer than the {n} of the batch, got {n - rest}")
    rows, counts = rows_encoded.cpu().double(), label_counts.cpu().double()
    remaining: dict[str, Tensor] = {}
    known = network.gradient(rows, counts, n)
    names = names_of_layers(update, network)
    for name, layer, part in zip(names, layer_gradients(update, network), known, strict=True):
        left = (layer - part) * (n / rest)
        remaining |= {f"{name}.weight": left[:, :-1].contiguous(), f"{name}.bias": left[:, -1].contiguous()}
    remaining = dict(from_linear(remaining, network.forms)) if isinstance(network, TracedNetwork) else remaining
    if others := [name for name in update.update if name not in remaining]:
        # The loss is a mean over the distinct known rows, weighted by their counts.
        parts = _gradient(update, rows, counts * (len(rows) / n))
        remaining |= {name: (update.update[name].cpu().double() - parts[name]) * (n / rest) for name in others}
    return replace(
        update,
        update={name: remaining[name] for name in update.update},
        facts=replace(facts, n_rows=rest, batch_size=rest, n_clients=1, client_rows=()),
        labels=None,
        batch_labels=None,
        batch_statistics={},
    )


def _gradient(update: ClientUpdate, rows: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Of the mean cross-entropy of rows with weighted labels ``[r, classes]``, float64, by every parameter."""
    parameters = {name: tensor.cpu().double() for name, tensor in update.parameters.items()}
    buffers = {name: tensor.cpu() for name, tensor in update.buffers.items()}
    return gradients(client_network(update).double(), parameters, buffers, rows, weights)


def scaled_update(update: ClientUpdate, factor: float) -> ClientUpdate:
    """The update times a factor."""
    return replace(update, update={name: factor * value for name, value in update.update.items()})


def as_one_batch(update: ClientUpdate) -> ClientUpdate:
    """The mean of gradients of clients with equally many rows as what it is: the gradient of one batch of all rows.

    Where BatchNorm normalized the rows of each client by themselves, it is one accumulated over their batches.
    """
    facts = update.facts
    if update.kind != "gradient" or facts.n_clients == 1 or len(set(facts.client_rows)) > 1:
        return update
    size = facts.batch_size if normalizes_by_batch(update) else facts.n_rows
    return replace(update, facts=replace(facts, n_clients=1, client_rows=(), batch_size=size))


def label_counts(labels: Tensor, n_classes: int) -> Tensor:
    """One row per label with a 1 at its class, ``[n, classes]``.

    >>> label_counts(torch.tensor([1, 0]), 2)
    tensor([[0., 1.],
            [1., 0.]], dtype=torch.float64)
    """
    return torch.nn.functional.one_hot(labels.cpu(), n_classes).double()
