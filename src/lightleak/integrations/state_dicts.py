"""A pair of state dicts from anywhere as a `ClientUpdate`: weights before and what a client sent back."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lightleak.core.arguments import require_kind, whole_number
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.observations import ClientUpdate
from lightleak.integrations.running_statistics import batch_statistics
from lightleak.integrations.server_view import ServerView
from lightleak.targets.spec import build_network

State = Mapping[str, Any] | Sequence[Any]
"""Tensors or arrays by name, or without names in the order of the network's ``state_dict()``."""

NAMED = 3
"""Names that an error lists: enough to see the pattern."""


def client_update(
    before: State,
    sent: State,
    view: ServerView,
    n_rows: int,
    *,
    labels: Tensor | Sequence[int] | None = None,
    round_number: int = 0,
) -> ClientUpdate:
    """What a server received from one client.

    Buffers that the client sent back are not part of an update: those before training are what it started from. With
    ``view.share_statistics`` they give the statistics of the client's batch.

    Args:
        before: the weights that the client was sent.
        sent: what it sent back, as ``view.sends`` says: weights, their delta, or a gradient.
        view: what the server knows besides.
        n_rows: rows behind the update.
        labels: class indices of these rows, only where the server knows them; of a weight delta they are sorted, as
            their order reveals nothing there.
        round_number: communication round, counted from 0.

    Raises:
        ObservationError: tensors that are not the network's, with their name and shape; labels that are not of its
            classes; a value that is not finite; more than one step under ``view.as_gradient``.
        UsageError: a network that does not exist, or an argument of the wrong type.
    """
    require_kind("view", view, ServerView, "a ServerView")
    n_rows = whole_number("n_rows", n_rows)
    reference = build_network(view.network, seed=0)
    parameters, buffers = network_tensors(before, reference, view, "before")
    arrived, buffers_after = network_tensors(sent, reference, view, "sent")
    facts = view.facts(n_rows, round_number)
    update = {name: value.to(parameters[name].dtype) for name, value in arrived.items()}
    if view.sends == "weights":
        update = {name: value - parameters[name] for name, value in update.items()}
    if view.as_gradient:
        update = _gradient_of_one_step(update, parameters, view)
    encoder, statistics = view.encoder.to_state()
    return ClientUpdate(
        network=view.network.to_dict(),
        parameters=parameters,
        update=update,
        encoder=encoder,
        encoder_tensors={name: tensor.detach().cpu() for name, tensor in statistics.items()},
        facts=facts,
        kind=view.kind,
        state="raw" if view.defense == "none" else "noised",
        training_mode=view.training_mode,
        buffers=buffers if view.share_buffers else {},
        labels=_labels(labels, view),
        batch_statistics=batch_statistics(reference, buffers, buffers_after) if view.share_statistics else {},
        marginals=None if view.marginals is None else view.marginals.to_dict(),
    )


def network_tensors(
    state: State, reference: nn.Module, view: ServerView, what: str
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Parameters and buffers of a state, on the CPU, sharing nothing with it.

    Args:
        state: by name or in order.
        reference: a network of the view's specification.
        view: names the network, and the prefix of its names.
        what: the state, for errors.

    Returns:
        All parameters by name, and those buffers that the state holds.

    Raises:
        ObservationError: a tensor that is missing, unknown, of another shape or no floating-point numbers, or a name
            that is no text.
    """
    shapes = {name: value.shape for name, value in reference.state_dict().items()}
    named = _by_name(state, reference, view, what)
    expected = [name for name, _ in reference.named_parameters()]
    if missing := [name for name in expected if name not in named]:
        raise ObservationError(_missing(missing, state, view, what))
    if unknown := sorted(named.keys() - shapes.keys()):
        raise ObservationError(
            f"{what}: {_listed(unknown)} are not tensors of the network {view.network.name!r}, whose first are "
            f"{_listed(expected)}; what belongs to something else is left out by a prefix"
        )
    tensors = {name: _tensor(named[name], f"{what}: {name!r}") for name in shapes if name in named}
    for name, value in tensors.items():
        if value.shape != shapes[name]:
            raise ObservationError(
                f"{what}: {name!r} must have shape {tuple(shapes[name])}, as the network "
                f"{view.network.name!r} with {dict(view.network.options)} has it; got {tuple(value.shape)}"
            )
    parameters = {name: tensors.pop(name) for name in expected}
    for name, value in parameters.items():
        if not value.is_floating_point():
            raise ObservationError(f"{what}: {name!r} must hold floating-point numbers, got {value.dtype}")
    return parameters, tensors


def _by_name(state: State, reference: nn.Module, view: ServerView, what: str) -> dict[str, Any]:
    if isinstance(state, nn.Module):
        raise UsageError(
            f"{what} must be a state dict, got the module {type(state).__name__}; call .state_dict() of it"
        )
    require_kind(what, state, (Mapping, Sequence), "a state dict, or a list of arrays in the order of one")
    if isinstance(state, Mapping):
        if odd := [name for name in state if not isinstance(name, str)]:
            raise ObservationError(f"{what}: names of tensors must be text, got {odd[0]!r}")
        return {name.removeprefix(view.prefix): value for name, value in state.items() if name.startswith(view.prefix)}
    for names in (list(reference.state_dict()), [name for name, _ in reference.named_parameters()]):
        if len(names) == len(state):
            return dict(zip(names, state, strict=True))
    raise ObservationError(
        f"{what}: {len(state)} arrays without names; the network {view.network.name!r} has "
        f"{len(reference.state_dict())} tensors"
    )


def _tensor(value: Any, what: str) -> Tensor:
    if isinstance(value, np.ndarray):  # torch takes neither negative strides nor another byte order
        value = np.asarray(value, value.dtype.newbyteorder("="), order="C")
    try:
        return torch.as_tensor(value).detach().to("cpu", copy=True)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ObservationError(f"{what} must be a tensor or an array, got {type(value).__name__}") from error


def _missing(missing: Sequence[str], state: State, view: ServerView, what: str) -> str:
    """The message for names that are not there, with the prefix under which they would be."""
    given = list(state) if isinstance(state, Mapping) else []
    prefixes = {name.removesuffix(missing[0]) for name in given if name.endswith(missing[0])}
    hint = f"; prefix={prefixes.pop()!r} would find it" if len(prefixes) == 1 else ""
    return (
        f"{what} lacks {_listed(missing)} of the network {view.network.name!r} under the prefix {view.prefix!r}; it "
        f"holds {_listed(given)}{hint}"
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:NAMED])
    return f"{shown} and {len(names) - NAMED} more" if len(names) > NAMED else shown or "nothing"


def _gradient_of_one_step(
    delta: Mapping[str, Tensor], parameters: Mapping[str, Tensor], view: ServerView
) -> dict[str, Tensor]:
    """The gradient behind one step of SGD; a momentum that begins at zero changes nothing in the first step."""
    assert view.learning_rate is not None  # checked by the view
    rate, decay = view.learning_rate, view.weight_decay
    return {name: value / -rate - decay * parameters[name] for name, value in delta.items()}


def _labels(labels: Tensor | Sequence[int] | None, view: ServerView) -> Tensor | None:
    if labels is None:
        return None
    known = torch.as_tensor(labels, dtype=torch.long).cpu()
    n_classes = view.network.n_classes
    if bool(((known < 0) | (known >= n_classes)).any()):
        got = f"{int(known.min())} to {int(known.max())}"
        raise ObservationError(f"labels must be class indices from 0 to {n_classes - 1}, got {got}")
    return known.sort().values if view.kind == "delta" else known.clone()
