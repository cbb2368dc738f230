"""Clients whose networks drop units: behind the first linear layer rows stay whole, in front of it they do not."""

import copy

import torch
from torch import Tensor, nn

from lightleak.attacks.gradient_inversion.network.checks import encoded_width
from lightleak.attacks.gradient_inversion.network.traced import PROBES, same
from lightleak.core.errors import UnsupportedError
from lightleak.core.observations import ClientUpdate
from lightleak.core.seeds import fresh_generator, generator
from lightleak.targets.functional import drops_units, without_dropout
from lightleak.targets.spec import NetworkSpec, build_network


def drops(update: ClientUpdate) -> bool:
    """Whether the client's network dropped units as it computed its update."""
    return update.training_mode and drops_units(build_network(NetworkSpec.from_dict(update.network), seed=0))


def client_with_dropout(update: ClientUpdate) -> nn.Module:
    """The client's network with its weights, dropout included."""
    network = build_network(NetworkSpec.from_dict(update.network), seed=0)
    network.load_state_dict({**update.parameters, **update.buffers}, strict=False)
    return network


def require_whole_rows(update: ClientUpdate, first: str) -> None:
    """Check that a client drops nothing in front of its first linear layer, of this name.

    Raises:
        UnsupportedError: it does, see `require_dropout_behind`.
    """
    if drops(update):
        require_dropout_behind(client_with_dropout(update), first, encoded_width(update))


def require_dropout_behind(network: nn.Module, first: str, width: int) -> None:
    """Check that the input of the first linear layer does not depend on what is dropped.

    Args:
        network: with its dropout; it is not changed.
        first: name of the layer.
        width: of encoded rows.

    Raises:
        UnsupportedError: it does: the layer's gradient is then that of rows with dropped cells.
    """
    rows = torch.randn(PROBES, width, generator=generator(0, "probes"), dtype=next(network.parameters()).dtype)
    with fresh_generator(0):
        dropped = _input_of(copy.deepcopy(network).train(), first, rows)
    if not same(_input_of(without_dropout(copy.deepcopy(network).train()), first, rows).double(), dropped.double()):
        raise UnsupportedError(
            f"clients drop units in front of the first linear layer ({first!r}): its gradient is that of rows with "
            "dropped cells"
        )


def _input_of(network: nn.Module, layer: str, rows: Tensor) -> Tensor:
    found: list[Tensor] = []
    handle = network.get_submodule(layer).register_forward_pre_hook(lambda _, args: found.append(args[0].detach()))
    try:
        with torch.no_grad():
            network(rows)
    finally:
        handle.remove()
    return found[0]
