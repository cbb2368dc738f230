"""Is a captured gradient that of its recorded batch?

Asked before any attack: against a record that is not true, a score means nothing.
"""

import logging
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lightleak.core.errors import ObservationError
from lightleak.core.observations import ClientUpdate, GroundTruth
from lightleak.protocols.local_pass import check_batch, local_pass
from lightleak.protocols.recorded_batch import RecordedBatch, device_is_here, generator_set_to
from lightleak.targets.spec import NetworkSpec, build_network

logger = logging.getLogger(__name__)

TOLERANCE = 1e-4
"""float32 sums taken in another order differ by about 1e-6; one wrong row among 1,000 by about 1e-3."""

ROUNDINGS = 4
"""Units of the last place that pass where a gradient was rounded in ways that cannot be repeated exactly."""


def replay(update: ClientUpdate, truth: GroundTruth) -> float:
    """How far the gradient of the recorded batch lies from the captured one.

    The network is built anew from the update, so the figure holds the whole record against the batch. A gradient
    captured over several micro-batches (``facts.batch_size`` below ``n_rows``) is the mean of theirs. A ``clipped``
    one is compared with the recomputed gradient after the mildest clipping that could have made it: scaled down to its
    norm, or clamped at its largest entry, whichever comes nearer.

    Returns:
        The largest difference of an entry, relative to the largest entry of either gradient. NaN for a ``noised``
        update, which nothing can be held against.

    Raises:
        ObservationError: a weight delta, an aggregate of clients, a batch whose rows are not those of the update, or a
            network with dropout whose generator was not recorded or is on a device that is not here.
        UsageError: a batch that the network cannot take.
    """
    if update.state == "noised":
        return float("nan")
    captured = _flat(update.update, update.update)
    recomputed = _flat(_mean_gradient(update, truth), update.update)
    if update.state == "raw":
        return deviation(captured, recomputed)
    # Clipping by norm scales down, never up.
    shrink = min(1.0, float(captured.norm() / recomputed.norm().clamp_min(torch.finfo(torch.float64).tiny)))
    bound = float(captured.abs().max())
    return min(deviation(captured, recomputed * shrink), deviation(captured, recomputed.clamp(-bound, bound)))


def require_replay(update: ClientUpdate, truth: GroundTruth, tolerance: float = TOLERANCE) -> float:
    """Refuse an update that its recorded batch does not reproduce; a ``noised`` one passes unchecked, with a warning.

    Args:
        update: the observation.
        truth: the batch said to be behind it.
        tolerance: largest `replay` that passes. Half precision passes up to `ROUNDINGS` of its last place where it was
            recorded on a kind of device that is not here, or where a half-precision gradient was clipped.

    Returns:
        The deviation.

    Raises:
        ObservationError: the deviation is above the tolerance, or `replay` has no meaning.
    """
    found = replay(update, truth)
    if update.state == "noised":
        logger.warning("step %d: a noised gradient cannot be replayed; it was not checked", update.facts.step)
        return found
    tolerance = max([tolerance, *(ROUNDINGS * torch.finfo(dtype).eps for dtype in _inexact_types(update, truth))])
    if not found <= tolerance:
        raise ObservationError(
            f"the recorded batch does not reproduce the {update.state} gradient of step {update.facts.step}: largest "
            f"deviation {found:.2e} of the largest entry, at most {tolerance:.0e} is allowed"
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


def _mean_gradient(update: ClientUpdate, truth: GroundTruth) -> dict[str, Tensor]:
    """Mean over micro-batches of the gradients recomputed from the recorded batch, summed in training's own order."""
    _check(update, truth)
    facts = update.facts
    record = truth if isinstance(truth, RecordedBatch) else RecordedBatch(truth.inputs, truth.labels, truth.loss)
    device = torch.device(record.device if device_is_here(record.device) else "cpu")
    network = _network(update, record).to(device)
    size = facts.batch_size or facts.n_rows
    batches = list(zip(record.inputs.split(size), record.labels.split(size), strict=True))
    random = update.training_mode and _drops_units(network)
    states = list(_generator_states(record, device, len(batches))) if random else [None] * len(batches)
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
    if len(truth.inputs) != facts.n_rows or len(truth.labels) != facts.n_rows:
        got = f"{len(truth.inputs)} rows and {len(truth.labels)} labels"
        raise ObservationError(f"the update speaks of {facts.n_rows} rows, the recorded batch has {got}")
    if update.labels is not None and not torch.equal(update.labels.sort().values, truth.labels.sort().values):
        raise ObservationError("the labels that the update shares are not those of the recorded batch")


def _network(update: ClientUpdate, record: RecordedBatch) -> nn.Module:
    """The network of the update, in its mode, once batch and parameters are found to fit it."""
    spec = NetworkSpec.from_dict(update.network)
    check_batch(spec, record.inputs, record.labels)
    network = build_network(spec, seed=0).train(update.training_mode)
    expected = {name: parameter.shape for name, parameter in network.named_parameters()}
    got = {name: parameter.shape for name, parameter in update.parameters.items()}
    if odd := sorted({name for name, _ in expected.items() ^ got.items()}):
        raise ObservationError(f"parameters {odd[:3]} do not fit the network {spec.name!r}")
    return network


def _inexact_types(update: ClientUpdate, truth: GroundTruth) -> set[torch.dtype]:
    """Types whose rounding replay cannot repeat: all of another kind of device, and those of a clipped gradient."""
    elsewhere = isinstance(truth, RecordedBatch) and not device_is_here(truth.device)
    types = {gradient.dtype for gradient in update.update.values()} if elsewhere or update.state == "clipped" else set()
    if isinstance(truth, RecordedBatch) and elsewhere and truth.autocast != "none":
        types.add(torch.bfloat16 if truth.autocast == "bfloat16" else torch.float16)
    return types


def _generator_states(record: RecordedBatch, device: torch.device, n: int) -> Tensor:
    states = record.generator_states
    if states is None or len(states) != n:
        got = "none" if states is None else len(states)
        raise ObservationError(f"replaying dropout needs {n} generator states, one per micro-batch; recorded: {got}")
    if device.type != record.device:
        raise ObservationError(f"replaying dropout needs the generator of {record.device!r}, which is not here")
    return states


def _drops_units(network: nn.Module) -> bool:
    return any(isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 for module in network.modules())


def _flat(named: Mapping[str, Tensor], order: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([named[name].detach().cpu().double().flatten() for name in order])
