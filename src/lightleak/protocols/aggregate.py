"""Several clients' updates as one, as a server behind secure aggregation receives them (Dimitrov et al. 2022, C.5)."""

import dataclasses
import json
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.observations import ClientUpdate

OF_EACH_CLIENT = ("n_rows", "n_clients", "client_rows", "local_steps")
"""Protocol facts that may differ between the clients of an aggregate, which states all others once for all of them."""


def aggregate_updates(updates: Sequence[ClientUpdate]) -> ClientUpdate:
    """The mean of single clients' updates of one round, weighted by their rows.

    Labels are kept, client after client, where every client shares them; labels in the order of the local batches only
    where the clients also have equally many rows. ``local_steps`` is kept where all made equally many. Of several
    releases each is averaged.

    Args:
        updates: at least one; of one network with the same weights, one encoding and one protocol.

    Raises:
        UsageError: no update.
        ObservationError: an update that is an aggregate itself, or updates that differ in what they must share.
    """
    if not updates:
        raise UsageError("an aggregate needs at least one update, got none")
    first = updates[0]
    for position, update in enumerate(updates):
        if update.facts.n_clients != 1:
            raise ObservationError(f"update {position} is an aggregate of {update.facts.n_clients} clients itself")
        if what := _difference(first, update):
            raise ObservationError(
                f"updates of one aggregate must share {what}; update {position} differs from the first"
            )
    rows = tuple(update.facts.n_rows for update in updates)
    steps = {update.facts.local_steps for update in updates}
    facts = dataclasses.replace(
        first.facts,
        n_rows=sum(rows),
        n_clients=len(updates),
        client_rows=rows,
        local_steps=steps.pop() if len(steps) == 1 else None,
    )
    return dataclasses.replace(
        first,
        update=weighted_mean([update.update for update in updates], rows),
        further_updates=weighted_mean([update.further_updates for update in updates], rows),
        facts=facts,
        labels=_joined([update.labels for update in updates]),
        batch_labels=_joined([update.batch_labels for update in updates]) if len(set(rows)) == 1 else None,
        batch_statistics=first.batch_statistics if len(updates) == 1 else {},
    )


def weighted_mean(named: Sequence[Mapping[str, Tensor]], weights: Sequence[int]) -> dict[str, Tensor]:
    """Mean of tensors of the same names and shapes, summed in their order, in float32 at least.

    Integers (a BatchNorm layer's count of batches) are rounded to the nearest.

    >>> weighted_mean([{"w": torch.tensor([0.0])}, {"w": torch.tensor([4.0])}], [1, 3])
    {'w': tensor([3.])}
    """
    total = sum(weights)
    return {name: _mean([tensors[name] for tensors in named], [w / total for w in weights]) for name in named[0]}


def _mean(tensors: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    dtype = tensors[0].dtype
    wide = torch.promote_types(dtype, torch.float32) if dtype.is_floating_point else torch.float64
    mean = tensors[0].to(wide) * shares[0]
    for tensor, share in zip(tensors[1:], shares[1:], strict=True):
        mean = mean + tensor.to(wide) * share
    return mean.to(dtype) if dtype.is_floating_point else mean.round().to(dtype)


def _joined(labels: Sequence[Tensor | None]) -> Tensor | None:
    shared = [part for part in labels if part is not None]
    return torch.cat(shared) if len(shared) == len(labels) else None


def _difference(one: ClientUpdate, other: ClientUpdate) -> str | None:
    """What two updates of one aggregate must share and do not."""
    for name in ("kind", "state", "training_mode"):
        if getattr(one, name) != getattr(other, name):
            return f"{name} ({getattr(one, name)!r}, {getattr(other, name)!r})"
    for name in ("network", "encoder", "marginals"):
        if json.dumps(getattr(one, name), sort_keys=True) != json.dumps(getattr(other, name), sort_keys=True):
            return f"the {name}"
    for name in ("parameters", "encoder_tensors", "buffers", "further_parameters"):
        if not _same(getattr(one, name), getattr(other, name)):
            return f"the {name.replace('_', ' ')}"
    for name in (fact.name for fact in dataclasses.fields(one.facts) if fact.name not in OF_EACH_CLIENT):
        if getattr(one.facts, name) != getattr(other.facts, name):
            return f"{name} ({getattr(one.facts, name)!r}, {getattr(other.facts, name)!r})"
    return None


def _same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())
