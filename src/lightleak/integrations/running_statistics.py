"""The batch's statistics that BatchNorm's running ones reveal, where these travel with the weights.

A layer moves its running mean by ``momentum`` times its distance from the batch's mean, and the variance likewise. Who
holds both values of one step, as a server that averages buffers does, can solve for the batch's.
"""

from collections.abc import Mapping

from torch import Tensor, nn

from lightleak.core.errors import ObservationError

STATISTICS = {"mean": "running_mean", "var": "running_var"}
"""Names in `ClientUpdate.batch_statistics`, and the buffers that tell them."""


def batch_statistics(
    network: nn.Module, before: Mapping[str, Tensor], after: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return mean and unbiased variance of every BatchNorm layer's input on the batch of one step, float64.

    Rounding of float32 buffers is multiplied by ``1 / momentum``: means are right to about 1e-6 of their size at the
    default momentum of 0.1.

    Args:
        network: whose layers give momentum and names.
        before: buffers before the step.
        after: buffers after it.

    Raises:
        ObservationError: buffers are missing, or moved by another number of steps than one.
    """
    found = {}
    for name, layer in network.named_modules():
        if not isinstance(layer, nn.BatchNorm1d) or not layer.track_running_stats:
            continue
        step = f"{name}.num_batches_tracked"
        needed = [step, *(f"{name}.{buffer}" for buffer in STATISTICS.values())]
        if missing := [key for key in needed if key not in before or key not in after]:
            raise ObservationError(
                f"share_statistics needs the buffers before and after the step; {missing[0]!r} is missing"
            )
        steps = int(after[step]) - int(before[step])
        if steps != 1:
            raise ObservationError(f"share_statistics needs buffers that moved by one step; {step!r} counted {steps}")
        factor = layer.momentum if layer.momentum is not None else 1 / int(after[step])
        for what, buffer in STATISTICS.items():
            old, new = before[f"{name}.{buffer}"].double(), after[f"{name}.{buffer}"].double()
            found[f"{name}.{what}"] = old + (new - old) / factor
    return found
