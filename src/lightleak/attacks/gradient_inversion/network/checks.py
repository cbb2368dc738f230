"""What an observation must be before any work is done on it: it may come from another machine or framework."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lightleak.attacks.gradient_inversion.network.client import batch_norms
from lightleak.core.errors import ObservationError
from lightleak.core.observations import ClientUpdate, ProtocolFacts
from lightleak.data.encoder import TableEncoder
from lightleak.data.image_scale import ImageScale, is_image_state
from lightleak.targets.spec import NetworkSpec

PROTOCOL = ("n_rows", "epochs", "batch_size", "n_clients", "local_steps", "learning_rate", "momentum", "weight_decay")
"""Facts that two updates of one call must share."""


def require_one_gradient(name: str, update: ClientUpdate) -> None:
    """Refuse weight deltas and aggregates for the attack of that name.

    Raises:
        ObservationError: the update is no FedSGD gradient, or not of one client.
    """
    facts = update.facts
    if update.kind != "gradient" or facts.epochs != 1:
        got = f"a {update.kind} of {facts.epochs or 'an unknown number of'} epochs (FedAvg)"
        raise ObservationError(f"{name} inverts one FedSGD gradient; this update is {got}")
    if facts.n_clients != 1:
        number = facts.n_clients or "an unknown number of clients"
        raise ObservationError(f"{name} inverts one client's gradient; this one aggregates {number}")


def require_even_batches(name: str, update: ClientUpdate) -> None:
    """Refuse a gradient accumulated over batches of unequal size, in which rows weigh differently.

    Raises:
        ObservationError: it is one.
    """
    facts = update.facts
    rows = facts.n_rows // (facts.n_clients or 1)
    if facts.batch_size and rows > facts.batch_size and rows % facts.batch_size:
        raise ObservationError(
            f"{name} needs rows that weigh the same in a gradient; this one accumulates {rows} rows in batches of "
            f"{facts.batch_size}, the last of which has {rows % facts.batch_size}"
        )


def is_accumulated(facts: ProtocolFacts) -> bool:
    """Whether a gradient was computed in several batches, on each of which BatchNorm's statistics are others."""
    return facts.batch_size is not None and facts.n_rows > facts.batch_size


def require_one_normalization(name: str, update: ClientUpdate, network: nn.Module) -> None:
    """Refuse a gradient accumulated over batches that BatchNorm normalized each by itself.

    Raises:
        ObservationError: it is one.
    """
    facts = update.facts
    if update.training_mode and is_accumulated(facts) and batch_norms(network):
        raise ObservationError(
            f"{name} needs rows that BatchNorm normalized together; this gradient accumulates {facts.n_rows} rows in "
            f"batches of {facts.batch_size}"
        )


def require_fit(update: ClientUpdate, network: nn.Module, combines_releases: bool = False) -> None:
    """Hold an update against the network it names, so that no attack fails in the middle of its work.

    Args:
        update: the observation.
        network: what `lightleak.attacks.gradient_inversion.network.client.client_network` made of it.
        combines_releases: whether the attack uses all releases of an update that holds several.

    Raises:
        ObservationError: several releases for an attack on one; parameters, buffers, labels or encoder that do not
            fit the network; or BatchNorm layers in eval mode whose running statistics were not shared.
    """
    if update.further_updates and not combines_releases:
        raise ObservationError(
            f"the update holds {len(update.releases)} releases of the same rows, and this attack uses one: choose "
            "exact_joint, which combines them, or attack one of `ClientUpdate.releases`"
        )
    name = update.network["name"]
    expected = {key: tuple(p.shape) for key, p in network.named_parameters()}
    held = {key: tuple(b.shape) for key, b in network.named_buffers()}
    _require_shapes(f"parameters of the network {name!r}", expected, update.parameters)
    _require_shapes(f"buffers of the network {name!r}", held if update.buffers else {}, update.buffers)
    if batch_norms(network) and not update.training_mode and not update.buffers:
        raise ObservationError(
            f"the network {name!r} computed in eval mode, by running statistics of BatchNorm that were not shared"
        )
    spec = NetworkSpec.from_dict(update.network)
    width = encoded_width(update)
    if width != spec.layout.width:
        raise ObservationError(f"the encoder must make rows of width {spec.layout.width} (the network's), got {width}")
    odd = [] if update.labels is None else [y for y in update.labels.tolist() if not 0 <= y < spec.n_classes]
    if odd:
        raise ObservationError(f"labels must be classes from 0 to {spec.n_classes - 1}, got {odd[0]}")


def encoded_width(update: ClientUpdate) -> int:
    """Features of an encoded row: of a table, or of a flat image.

    Raises:
        ObservationError: the encoder's state cannot be read.
    """
    if is_image_state(update.encoder):
        return ImageScale.from_state(update.encoder).width
    return TableEncoder.of(update).width


def require_batch_statistics(update: ClientUpdate, network: nn.Module) -> None:
    """Check that the update shares the batch's statistics of every BatchNorm layer; a network without any needs none.

    Raises:
        ObservationError: they are missing or do not fit.
    """
    layers = batch_norms(network).items()
    expected = {f"{name}.{what}": (layer.num_features,) for name, layer in layers for what in ("mean", "var")}
    _require_shapes("batch_norm_prior: BatchNorm statistics of the client's batch", expected, update.batch_statistics)


def _require_shapes(what: str, expected: Mapping[str, tuple[int, ...]], got: Mapping[str, Tensor]) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in got.items()}
    odd = sorted(name for name in expected.keys() | shapes.keys() if expected.get(name) != shapes.get(name))
    if odd:
        first = odd[0]
        found = shapes.get(first, "none")
        raise ObservationError(f"{what}: expected {first!r} of shape {expected.get(first, 'none')}, got {found}")


def alike(first: ClientUpdate, other: ClientUpdate) -> bool:
    """Whether two updates can be attacked in one call: same network, mode, table, protocol and shared knowledge."""
    same = ("network", "encoder", "training_mode", "kind")
    facts = all(getattr(first, name) == getattr(other, name) for name in same)
    protocol = all(getattr(first.facts, name) == getattr(other.facts, name) for name in PROTOCOL)
    shared = all(
        getattr(first, name).keys() == getattr(other, name).keys()
        for name in ("encoder_tensors", "buffers", "batch_statistics")
    )
    return (
        facts
        and protocol
        and shared
        and all(torch.equal(value, other.encoder_tensors[name]) for name, value in first.encoder_tensors.items())
    )
