"""Is a captured update that of its recorded rows?

Asked before any attack: against a record that is not true, a score means nothing.
"""

import logging
from collections.abc import Mapping

import torch
from torch import Tensor

from lightleak.core.errors import ObservationError
from lightleak.core.ground_truth import GroundTruth
from lightleak.core.observations import ClientUpdate
from lightleak.protocols.recomputed_delta import recomputed_delta
from lightleak.protocols.recomputed_gradient import recomputed_gradient
from lightleak.protocols.recorded_aggregate import RecordedAggregate
from lightleak.protocols.recorded_batch import RecordedBatch, device_is_here
from lightleak.protocols.recorded_client import RecordedClient

logger = logging.getLogger(__name__)

TOLERANCE = 1e-4
"""float32 sums taken in another order differ by about 1e-6; one wrong row among 1,000 by about 1e-3."""

ROUNDINGS = 4
"""Units of the last place that pass where a gradient was rounded in ways that cannot be repeated exactly."""


def replay(update: ClientUpdate, truth: GroundTruth) -> float:
    """How far what the recorded rows send lies from the captured update.

    The network is rebuilt from the update, so the figure checks the whole record against the rows. A gradient
    captured over several micro-batches (``facts.batch_size`` below ``n_rows``) is the mean of theirs. A ``clipped``
    one is compared with the recomputed gradient after the mildest clipping that could have made it: scaled down to its
    norm, or clamped at its largest entry, whichever comes nearer. A weight delta is computed by training its recorded
    clients again, an aggregate as the mean of theirs.

    Returns:
        The largest difference of an entry, relative to the largest entry of either. NaN for a ``noised``
        update, which cannot be checked.

    Raises:
        ObservationError: an aggregate of gradients, a weight delta without a record of its clients' training, rows or
            settings that are not those of the update, or a network with dropout whose generator was not recorded or is
            on a device that is not here.
        UsageError: a batch that the network cannot take.
    """
    if update.state == "noised":
        return float("nan")
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
