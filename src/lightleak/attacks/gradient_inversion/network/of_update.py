"""The network and the layers' gradient that an update holds, whatever the network is."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from lightleak.attacks.gradient_inversion.network.batch_normalized import (
    BatchNormalizedNetwork,
    fix_normalized_data,
    trace_normalized,
)
from lightleak.attacks.gradient_inversion.network.chain import ReLUChain, layer_names
from lightleak.attacks.gradient_inversion.network.checks import encoded_width, require_batch_statistics
from lightleak.attacks.gradient_inversion.network.client import batch_norms, client_network, relu_chain
from lightleak.attacks.gradient_inversion.network.linear_forms import to_linear, with_linear_layers
from lightleak.attacks.gradient_inversion.network.row_network import RowNetwork
from lightleak.attacks.gradient_inversion.network.tokens import trace_any
from lightleak.attacks.gradient_inversion.network.traced import TracedNetwork, layer_gradient, over_batch
from lightleak.core.observations import ClientUpdate
from lightleak.data.encoder import TableEncoder
from lightleak.data.image_scale import is_image_state
from lightleak.targets.normalization import frozen_statistics, record_statistics

BY_BUFFERS = 1e-4
"""Error of statistics that were read off running buffers, relative to the layer's typical one: they are rounded."""

BY_ROUNDING = 5e-7
"""The same of statistics that the client computed in float32 and sent: the rows' own are no better."""


def row_network(update: ClientUpdate, device: torch.device | str = "cpu") -> RowNetwork:
    """The client's network before its update: plain ReLU networks by their algebra, others traced.

    Raises:
        UnsupportedError: a network whose layers test no rows, with the reason.
    """
    module = client_network(update)
    if len(relu_chain(module) or []) > 2:
        return ReLUChain.of(update, device)
    module.load_state_dict({**update.parameters, **update.buffers}, strict=False)
    module = module.to(device)
    forms = with_linear_layers(module)
    network = _traced(update, module, to_linear(update.update, forms), device)
    network.forms = forms
    return network


def _traced(
    update: ClientUpdate, module: nn.Module, observed: Mapping[str, Tensor], device: torch.device | str
) -> TracedNetwork:
    if update.batch_statistics and update.training_mode and batch_norms(module):
        _leave_out_unused(module, update)
        require_batch_statistics(update, module)
        fix_normalized_data(module, encoded_width(update), update.batch_statistics, update.facts.n_rows)
    if update.batch_statistics and any(over_batch(norm) for norm in batch_norms(module).values()):
        return trace_normalized(
            module.double(),
            TableEncoder.of(update, device),
            update.batch_statistics,
            observed,
            update.facts.n_rows,
        )
    table = None if is_image_state(update.encoder) else TableEncoder.of(update, device)
    return trace_any(module, encoded_width(update), update.facts.n_rows, table, observed)


def statistics_of(update: ClientUpdate, encoded: Tensor) -> dict[str, Tensor] | None:
    """The statistics that rows themselves have, where those known are the same but for what buffers round.

    A network with statistics to six digits explains a gradient to six digits, which is too few for a certificate.

    Args:
        update: with statistics of the batch.
        encoded: all of its rows ``[n, d]``.

    Returns:
        Mean and variance of every BatchNorm layer; None where the rows' are others, or there are none, or those known
            are as precise.
    """
    if not update.batch_statistics:
        return None
    module = client_network(update).to(encoded.device, torch.float64)
    module.load_state_dict({**update.parameters, **update.buffers}, strict=False)
    with torch.no_grad(), frozen_statistics(module), record_statistics(module) as recorded:
        module(encoded.double())
    found = {
        f"{n}.{kind}": value for n, pair in recorded.items() for kind, value in zip(("mean", "var"), pair, strict=True)
    }
    known = {name: value.to(encoded.device, torch.float64) for name, value in update.batch_statistics.items()}
    if found.keys() != known.keys():
        return None
    off = max(
        float((found[name] - value).abs().max() / value.square().mean().sqrt().clamp_min(1e-300))
        for name, value in known.items()
    )
    return {name: value.cpu() for name, value in found.items()} if BY_ROUNDING < off <= BY_BUFFERS else None


def _leave_out_unused(module: nn.Module, update: ClientUpdate) -> None:
    """Replace BatchNorm layers that the client never called, as TabNet has one: no statistics, and no gradient."""
    for name in batch_norms(module):
        gradients = [update.update[one] for one in (f"{name}.weight", f"{name}.bias") if one in update.update]
        if f"{name}.mean" not in update.batch_statistics and not any(bool(g.any()) for g in gradients):
            module.set_submodule(name, nn.Identity())


def names_of_layers(update: ClientUpdate, network: RowNetwork) -> Sequence[str]:
    """Names of the layers that test rows."""
    return network.names if isinstance(network, TracedNetwork) else layer_names(update)


def not_compared(update: ClientUpdate, network: RowNetwork) -> list[str]:
    """Names of the parameters with a gradient that no row is held against: they belong to no layer that tests rows."""
    compared = {f"{layer}.{kind}" for layer in names_of_layers(update, network) for kind in ("weight", "bias")}
    return [name for name, gradient in update.update.items() if name not in compared and bool(gradient.any())]


def layer_gradients(update: ClientUpdate, network: RowNetwork) -> tuple[Tensor, ...]:
    """``[G_l gb_l]`` of every layer of an update's network, float64 ``[out, in + 1]``, on its device."""
    device = network.state_map[0].device
    gradients = to_linear(update.update, network.forms) if isinstance(network, TracedNetwork) else update.update
    layers = (layer_gradient(gradients, name) for name in names_of_layers(update, network))
    observed = tuple(layer.to(device, torch.float64) for layer in layers)
    return network.augmented(observed) if isinstance(network, BatchNormalizedNetwork) else observed
