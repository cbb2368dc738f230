"""From observations to a matching problem: the client's network, its stacked tensors, the matcher that serves it."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lightleak.attacks.gradient_inversion.config import InversionConfig, Precision
from lightleak.attacks.gradient_inversion.matcher import Matcher, NetworkMatcher
from lightleak.attacks.gradient_inversion.matrix_products import MatrixProducts
from lightleak.attacks.gradient_inversion.mlp_matcher import MLPMatcher
from lightleak.attacks.gradient_inversion.objective import OBJECTIVES
from lightleak.attacks.gradient_inversion.priors import inversion_penalty
from lightleak.attacks.gradient_inversion.straight_through import StraightThrough
from lightleak.attacks.gradient_inversion.whitening import Whitening
from lightleak.core.errors import UnsupportedError
from lightleak.core.observations import ClientUpdate
from lightleak.targets.functional import without_dropout
from lightleak.targets.mlp import FullyConnected
from lightleak.targets.normalization import with_functional_normalization
from lightleak.targets.relu_layers import chain_obstacle, relu_layers
from lightleak.targets.spec import NetworkSpec, build_network

LIVE_COPIES = 12
"""Tensors of the size of a candidate's gradient or rows alive at once in a step; see `benchmarks/inversion.py`."""


def client_network(update: ClientUpdate) -> nn.Module:
    """The target in the mode the client ran it in; dropout is off, as its masks are unknown to the server.

    Its own weights are never read; the seed keeps the global generator, which a training may be using, untouched.
    PyTorch's own normalisation layers, whose second derivative is wrong under ``torch.func``, are replaced by ours.

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


def build_matcher(
    updates: Sequence[ClientUpdate],
    labels: Tensor,
    config: InversionConfig,
    device: torch.device,
    dtype: torch.dtype,
    straight_through: StraightThrough | None = None,
    whitening: Whitening | None = None,
) -> Matcher:
    """The closed form for plain ReLU networks, ``torch.func`` for everything else.

    Args:
        updates: observations of one network, batch size and table.
        labels: LongTensor ``[updates, n]``.
        config: objective, priors, and in which precision the closed form multiplies matrices.
        device: where to work.
        dtype: in which precision everything else is.
        straight_through: derivative of a plain ReLU network's masks.
        whitening: comparison of a plain ReLU network's gradients, in place of the objective.
    """

    def stacked(which: str, name: str) -> Tensor:
        values = torch.stack([getattr(update, which)[name] for update in updates]).to(device)
        return values.to(dtype) if values.is_floating_point() else values

    network = client_network(updates[0])
    objective, labels = OBJECTIVES[config.objective], labels.to(device)
    penalty = inversion_penalty(updates, config, device, dtype)
    chain = relu_chain(network)
    if chain is not None and penalty is None:
        weights, biases = [f"{name}.weight" for name in chain], [f"{name}.bias" for name in chain]
        return MLPMatcher(
            [stacked("parameters", name) for name in weights],
            [stacked("parameters", name) for name in biases],
            [stacked("update", name) for name in weights],
            [stacked("update", name) for name in biases],
            labels,
            objective,
            MatrixProducts(torch.bfloat16 if config.precision == "bfloat16" else None),
            straight_through,
            whitening,
        )
    assert straight_through is None and whitening is None  # the attack's check refuses them for other networks
    names = list(updates[0].parameters)
    return NetworkMatcher(
        network.to(device, dtype),
        {name: stacked("parameters", name) for name in names},
        {name: stacked("buffers", name) for name in updates[0].buffers},
        {name: stacked("update", name) for name in names},
        labels,
        objective,
        penalty,
    )


def bytes_per_restart(update: ClientUpdate, precision: Precision) -> int:
    """Memory one restart takes in a step, in bytes, from the sizes of its gradient and of its rows in every layer."""
    gradient = sum(p.numel() for p in update.parameters.values())
    units = sum(p.shape[0] for p in update.parameters.values() if p.dim())
    width = NetworkSpec.from_dict(update.network).layout.width + units
    return LIVE_COPIES * (gradient + update.facts.n_rows * width) * (8 if precision == "float64" else 4)
