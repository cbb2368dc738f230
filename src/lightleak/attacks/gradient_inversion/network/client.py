"""The client's network, rebuilt from the specification in its update."""

from collections.abc import Callable

from torch import Tensor, nn

from lightleak.core.errors import UnsupportedError
from lightleak.core.observations import ClientUpdate
from lightleak.targets.functional import without_dropout
from lightleak.targets.mlp import FullyConnected
from lightleak.targets.normalization import with_functional_normalization
from lightleak.targets.relu_layers import SMOOTH, chain_obstacle, relu_layers, smooth_layers
from lightleak.targets.spec import NetworkSpec, build_network


def client_network(update: ClientUpdate) -> nn.Module:
    """The target in the mode the client ran it in; dropout is off, as its masks are unknown to the server.

    Its own weights are never read; the seed keeps the global generator, which a training may be using, untouched.
    PyTorch's own normalization layers, whose second derivative is wrong under ``torch.func``, are replaced by ours.

    Raises:
        ObservationError: the specification is incomplete.
        UsageError: no such network, or options it does not take.
    """
    network = build_network(NetworkSpec.from_dict(update.network), seed=0)
    return without_dropout(with_functional_normalization(network).train(update.training_mode))


def batch_norms(network: nn.Module) -> dict[str, nn.BatchNorm1d]:
    """The BatchNorm layers by name."""
    return {name: module for name, module in network.named_modules() if isinstance(module, nn.BatchNorm1d)}


def relu_chain(network: nn.Module) -> list[str] | None:
    """Names of the Linear layers of a plain ReLU network, or ``None`` where the network is anything else."""
    if isinstance(network, FullyConnected) and network.activation_name == "relu" and network.norm_name == "none":
        return [f"linears.{i}" for i in range(len(network.linears))]
    # What the classes of the registry compute is known; a user's own module is read.
    return None if type(network).__module__.startswith("lightleak.") else relu_layers(network)


def smooth_chain(network: nn.Module) -> tuple[list[str], Callable[[Tensor], Tensor]] | None:
    """Names of the Linear layers of a chain with one smooth activation between them, and it; None for any other."""
    if isinstance(network, FullyConnected):
        is_chain = type(network.activation) in SMOOTH and network.norm_name == "none"
        return ([f"linears.{i}" for i in range(len(network.linears))], network.activation) if is_chain else None
    return None if type(network).__module__.startswith("lightleak.") else smooth_layers(network)


def require_chain(network: nn.Module, needed_by: str) -> None:
    """Refuse a network that is no plain ReLU chain.

    Args:
        network: see `client_network`.
        needed_by: begins the message: what needs the chain.

    Raises:
        UnsupportedError: naming the first layer that stands in the way.
    """
    if relu_chain(network) is not None:
        return
    name = type(network).__name__
    if isinstance(network, FullyConnected):
        norm = "" if network.norm_name == "none" else f" and norm {network.norm_name!r}"
        found = f"the network has activation {network.activation_name!r}{norm}"
    elif type(network).__module__.startswith("lightleak."):
        found = f"{name} is built otherwise"
    else:
        found = f"in {name} {chain_obstacle(network)}"
    raise UnsupportedError(f"{needed_by} plain ReLU networks (Linear layers with ReLU between them); {found}")
