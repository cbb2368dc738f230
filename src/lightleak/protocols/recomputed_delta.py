"""Recompute the weight delta of recorded clients."""

from dataclasses import asdict

import torch
from torch import Tensor, nn

from lightleak.core.errors import ObservationError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.protocols.aggregate import weighted_mean
from lightleak.protocols.client_training import LOSS, train_client
from lightleak.protocols.recomputed_gradient import check_rows, network_of
from lightleak.protocols.recorded_aggregate import RecordedAggregate
from lightleak.protocols.recorded_batch import device_is_here
from lightleak.protocols.recorded_client import RecordedClient
from lightleak.targets.functional import drops_units


def recomputed_delta(update: ClientUpdate, truth: GroundTruth) -> dict[str, Tensor]:
    """How far local training from the update's weights moves them, averaged over the recorded clients by their rows.

    Raises:
        ObservationError: no record of local training, other clients, rows or settings than the update's, weights or
            buffers that do not fit its network, or dropout on a device that is not here.
        UsageError: rows that the network cannot take.
    """
    clients = _clients(truth)
    _check(update, truth, clients)
    network = network_of(update, truth)
    deltas = [_delta(network, update, client) for client in clients]
    return weighted_mean(deltas, [len(client.labels) for client in clients])


def _clients(truth: GroundTruth) -> tuple[RecordedClient, ...]:
    if isinstance(truth, RecordedAggregate):
        return truth.clients
    if isinstance(truth, RecordedClient):
        return (truth,)
    raise ObservationError(
        "replaying a weight delta needs the record of its clients' local training (RecordedClient or "
        f"RecordedAggregate), got {type(truth).__name__}"
    )


def _delta(network: nn.Module, update: ClientUpdate, client: RecordedClient) -> dict[str, Tensor]:
    device = torch.device(client.device if device_is_here(client.device) else "cpu")
    if update.training_mode and drops_units(network) and device.type != client.device:
        raise ObservationError(f"replaying dropout needs the generator of {client.device!r}, which is not here")
    network = network.to(device)
    parameters = {name: value.to(device) for name, value in update.parameters.items()}
    # What the server was sent wins, so that the check covers it.
    buffers = {name: value.to(device) for name, value in {**client.buffers, **update.buffers}.items()}
    if odd := sorted(buffers.keys() ^ {name for name, _ in network.named_buffers()}):
        raise ObservationError(f"buffers {odd[:3]} are not recorded, or not the network's")
    inputs = client.inputs.to(device, next(iter(parameters.values())).dtype)
    labels = client.labels.to(device)
    trained = train_client(network, parameters, buffers, inputs, labels, client.training, client.order, client.dropout)
    return {name: value.cpu() for name, value in trained.delta.items()}


def _check(update: ClientUpdate, truth: GroundTruth, clients: tuple[RecordedClient, ...]) -> None:
    """Refuse a record of other rows, clients or settings than the update speaks of; what it leaves open may be any."""
    check_rows(update, truth)
    together = {"n_clients": len(clients), "client_rows": tuple(len(client.labels) for client in clients)}
    for client in clients:
        recorded = {"optimizer": "sgd", "loss": LOSS, **together, **asdict(client.training)}
        recorded["local_steps"] = client.training.steps(len(client.labels))
        for name, value in recorded.items():
            said = getattr(update.facts, name, None)
            if said not in (None, ()) and said != value:
                raise ObservationError(f"the update states {name} {said!r}, the record of its clients {value!r}")
    if update.batch_labels is not None:
        taken = torch.stack([client.labels[client.order] for client in clients])
        if not torch.equal(update.batch_labels, taken):
            raise ObservationError("the batch_labels that the update shares are not those of the recorded batches")
