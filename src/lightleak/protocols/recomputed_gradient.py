"""Recompute the gradient of a recorded batch."""

import torch
from torch import Tensor, nn

from lightleak.core.errors import ObservationError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.protocols.global_generator import generator_set_to
from lightleak.protocols.local_pass import check_batch, local_pass
from lightleak.protocols.recorded_batch import RecordedBatch, device_is_here
from lightleak.targets.functional import drops_units
from lightleak.targets.spec import NetworkSpec, build_network


def recomputed_gradient(update: ClientUpdate, truth: GroundTruth) -> dict[str, Tensor]:
    """Mean over micro-batches of the gradients of the recorded batch, summed in training's own order.

    Raises:
        ObservationError: another kind of update, rows that are not its own, parameters that do not fit its network, or
            dropout whose generator was not recorded or is not here.
        UsageError: a batch that the network cannot take.
    """
    _check(update, truth)
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


def _check(update: ClientUpdate, truth: GroundTruth) -> None:
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
