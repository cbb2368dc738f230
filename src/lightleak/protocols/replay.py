"""Is a captured update that of its recorded rows?

Asked before any attack: against a record that is not true, a score means nothing.
"""

import logging
from collections.abc import Mapping
from dataclasses import asdict

import torch
from torch import Tensor, nn

from lightleak.core.errors import ObservationError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.protocols.aggregate import weighted_mean
from lightleak.protocols.client_training import LOSS, train_client
from lightleak.protocols.local_pass import check_batch, generator_set_to, local_pass
from lightleak.protocols.records import RecordedAggregate, RecordedBatch, RecordedClient, device_is_here
from lightleak.targets.functional import drops_units
from lightleak.targets.spec import NetworkSpec, build_network

logger = logging.getLogger(__name__)

TOLERANCE = 1e-4
"""float32 sums taken in another order differ by about 1e-6; one wrong row among 1,000 by about 1e-3.

What a training adds to its gradient below that, such as a weak penalty of the weights in the loss, is not seen.
"""

ROUNDINGS = 4
"""Units of the last place that pass where a gradient was rounded in ways that cannot be repeated exactly."""


def replay(update: ClientUpdate, truth: GroundTruth) -> float:
    """How far what the recorded rows send lies from the captured update.

    The network is rebuilt from the update, so the figure checks the whole record against the rows. A gradient
    captured over several micro-batches (``facts.batch_size`` below ``n_rows``) is the mean of theirs. A ``clipped``
    one is compared with the recomputed gradient after the mildest clipping that could have made it: scaled down to its
    norm, or clamped at its largest entry, whichever comes nearer. A weight delta is computed by training its recorded
    clients again, an aggregate as the mean of theirs. Of several releases every one is compared.

    Returns:
        The largest difference of an entry, relative to the largest entry of either. NaN for a ``noised``
        update, which cannot be checked.

    Raises:
        ObservationError: an aggregate of gradients, a weight delta without a record of its clients' training, rows or
            settings that are not those of the update, or a network with dropout whose generator was not recorded (of
            several releases it never is), or is on a device that is not here.
        UsageError: a batch that the network cannot take.
    """
    if update.state == "noised":
        return float("nan")
    if update.further_updates and update.training_mode and drops_units(network_of(update, truth)):
        raise ObservationError(
            f"replaying dropout needs the generator of each of the {len(update.releases)} releases; recorded: the first"
        )
    found = torch.tensor([_of_release(release, truth) for release in update.releases], dtype=torch.float64)
    return float(found.max())  # NaN stays NaN


def _of_release(update: ClientUpdate, truth: GroundTruth) -> float:
    captured = _flat(update.update, update.update)
    recompute = recomputed_delta if update.kind == "delta" else recomputed_gradient
    recomputed = _flat(recompute(update, truth), update.update)
    if update.state == "raw":
        return deviation(captured, recomputed)
    # Clipping by norm scales down, never up.
    shrink = min(1.0, float(captured.norm() / recomputed.norm().clamp_min(torch.finfo(torch.float64).tiny)))
    bound = float(captured.abs().max())
    return min(deviation(captured, recomputed * shrink), deviation(captured, recomputed.clamp(-bound, bound)))


def require_replay(update: ClientUpdate, truth: GroundTruth, tolerance: float = TOLERANCE) -> float:
    """Refuse an update that its recorded rows do not reproduce; a ``noised`` one passes unchecked, with a warning.

    Args:
        update: the observation.
        truth: the rows said to be behind it.
        tolerance: largest `replay` that passes. Half precision passes up to `ROUNDINGS` of its last place where it was
            recorded on a kind of device that is not here, or where a half-precision gradient was clipped; a weight
            delta recorded on such a device up to `ROUNDINGS` of the weights' last place.

    Returns:
        The deviation.

    Raises:
        ObservationError: the deviation is above the tolerance, or `replay` has no meaning.
    """
    found = replay(update, truth)
    if update.state == "noised":
        logger.warning("%s: a noised %s cannot be replayed; it was not checked", _moment(update), update.kind)
        return found
    tolerance = max([tolerance, *(ROUNDINGS * unit for unit in _roundings(update, truth))])
    if not found <= tolerance:
        raise ObservationError(
            f"the recorded {'batch does' if update.kind == 'gradient' else 'clients do'} not reproduce the "
            f"{update.state} {update.kind} of {_moment(update)}: largest deviation {found:.2e} of the largest entry, "
            f"at most {tolerance:.0e} is allowed"
        )
    return found


def deviation(a: Tensor, b: Tensor) -> float:
    """Largest difference of an entry relative to the largest entry; 0 for two zero vectors.

    Relative to the whole gradient, since an entry of its own may be nothing but rounding (the bias before a BatchNorm).

    >>> deviation(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.25]))
    0.25
    """
    largest = max(float(a.abs().max()), float(b.abs().max()))
    return float((a - b).abs().max()) / largest if largest > 0 else 0.0


def _roundings(update: ClientUpdate, truth: GroundTruth) -> list[float]:
    """Units of the last place, relative to the update's largest entry, of rounding that replay cannot repeat.

    That is all rounding of another kind of device, and that of a clipped gradient.
    """
    elsewhere = any(not device_is_here(device) for device in _devices(truth))
    dtypes = {value.dtype for value in update.update.values()} if elsewhere or update.state == "clipped" else set()
    if isinstance(truth, RecordedBatch) and elsewhere and truth.autocast != "none":
        dtypes.add(torch.bfloat16 if truth.autocast == "bfloat16" else torch.float16)
    units = [torch.finfo(dtype).eps for dtype in dtypes]
    if update.kind == "delta":
        # The weights are rounded at every step, and a delta is the small difference of two of them.
        weight, moved = (
            max(float(v.abs().max()) for v in named.values()) for named in (update.parameters, update.update)
        )
        units += [unit * weight / moved for unit in units if moved > 0]
    return units


def _devices(truth: GroundTruth) -> set[str]:
    if isinstance(truth, RecordedAggregate):
        return {client.device for client in truth.clients}
    return {truth.device} if isinstance(truth, RecordedBatch | RecordedClient) else set()


def _moment(update: ClientUpdate) -> str:
    return f"step {update.facts.step}" if update.kind == "gradient" else f"round {update.facts.epoch}"


def _flat(named: Mapping[str, Tensor], order: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([named[name].detach().cpu().double().flatten() for name in order])


def recomputed_gradient(update: ClientUpdate, truth: GroundTruth) -> dict[str, Tensor]:
    """Mean over micro-batches of the gradients of the recorded batch, summed in training's own order.

    Raises:
        ObservationError: another kind of update, rows that are not its own, parameters that do not fit its network, or
            dropout whose generator was not recorded or is not here.
        UsageError: a batch that the network cannot take.
    """
    _check_gradient(update, truth)
    facts = update.facts
    record = truth if isinstance(truth, RecordedBatch) else RecordedBatch(truth.inputs, truth.labels, truth.loss)
    device = torch.device(record.device if device_is_here(record.device) else "cpu")
    network = network_of(update, record).to(device)
    size = facts.batch_size or facts.n_rows
    batches = list(zip(record.inputs.split(size), record.labels.split(size), strict=True))
    states = _generator_states(record, device, len(batches), update.training_mode and drops_units(network))
    # What the server was sent wins, so that the check covers it.
    buffers = {name: value.to(device) for name, value in {**record.buffers, **update.buffers}.items()}
    parameters = {name: value.to(device) for name, value in update.parameters.items()}
    dtype = next(iter(parameters.values())).dtype
    total: dict[str, Tensor] = {}
    for (inputs, labels), state in zip(batches, states, strict=True):
        batch = inputs.to(device, dtype), labels.to(device)
        with generator_set_to(state, device):
            done = local_pass(
                network, parameters, buffers, *batch, facts.loss, record.autocast, len(batches), record.loss_scale
            )
        total = {name: total[name] + g if total else g for name, g in done.gradient.items()}
    inverse = 1.0 / record.loss_scale
    return {name: value * inverse for name, value in total.items()}


def _check_gradient(update: ClientUpdate, truth: GroundTruth) -> None:
    facts = update.facts
    if update.kind != "gradient" or facts.epochs != 1 or facts.n_clients != 1:
        raise ObservationError(
            f"replay recomputes one client's FedSGD gradient; this is a {update.kind} of {facts.epochs} epochs and "
            f"{facts.n_clients} clients"
        )
    check_rows(update, truth)


def check_rows(update: ClientUpdate, truth: GroundTruth) -> None:
    """Refuse a truth with another number of rows than the update, or other labels than it shares.

    Raises:
        ObservationError: see above.
    """
    facts = update.facts
    if len(truth.inputs) != facts.n_rows or len(truth.labels) != facts.n_rows:
        got = f"{len(truth.inputs)} rows and {len(truth.labels)} labels"
        raise ObservationError(f"the update speaks of {facts.n_rows} rows, the recorded batch has {got}")
    if update.labels is not None and not torch.equal(update.labels.sort().values, truth.labels.sort().values):
        raise ObservationError("the labels that the update shares are not those of the recorded batch")


def network_of(update: ClientUpdate, truth: GroundTruth) -> nn.Module:
    """The network of the update, in its mode, once rows and parameters are found to fit it.

    Raises:
        ObservationError: parameters that are not the network's.
        UsageError: rows that it cannot take.
    """
    spec = NetworkSpec.from_dict(update.network)
    check_batch(spec, truth.inputs, truth.labels)
    network = build_network(spec, seed=0).train(update.training_mode)
    expected = {name: parameter.shape for name, parameter in network.named_parameters()}
    got = {name: parameter.shape for name, parameter in update.parameters.items()}
    if odd := sorted({name for name, _ in expected.items() ^ got.items()}):
        raise ObservationError(
            f"parameters {odd[:3]} do not fit the network {spec.name!r} that the update names; capture it with its own"
        )
    return network


def _generator_states(record: RecordedBatch, device: torch.device, n: int, needed: bool) -> list[Tensor | None]:
    """States for every micro-batch: needed by dropout layers, used where a forward may draw without one."""
    states = record.generator_states
    if states is None or len(states) != n:
        got = "none" if states is None else len(states)
        if needed:
            raise ObservationError(
                f"replaying dropout needs {n} generator states, one per micro-batch; recorded: {got}"
            )
        return [None] * n
    if device.type != record.device:
        if needed:
            raise ObservationError(f"replaying dropout needs the generator of {record.device!r}, which is not here")
        return [None] * n
    return list(states)


def recomputed_delta(update: ClientUpdate, truth: GroundTruth) -> dict[str, Tensor]:
    """How far local training from the update's weights moves them, averaged over the recorded clients by their rows.

    Raises:
        ObservationError: no record of local training, other clients, rows or settings than the update's, weights or
            buffers that do not fit its network, or dropout on a device that is not here.
        UsageError: rows that the network cannot take.
    """
    clients = _clients(truth)
    _check_delta(update, truth, clients)
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


def _check_delta(update: ClientUpdate, truth: GroundTruth, clients: tuple[RecordedClient, ...]) -> None:
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
