"""What a classifier of single records reads of an observation."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from lightleak.attacks.property_inference.stacked_networks import FeatureRows
from lightleak.core.errors import ObservationError, UsageError
from lightleak.core.intermediate_results import IntermediateResults
from lightleak.core.parties import Kind

PUBLISHED_ORDER: tuple[Kind, ...] = ("VG", "VO", "AG", "AO")


@dataclass(frozen=True)
class RecordFeatures:
    """Features of every record, and where the auxiliary rows are among them.

    Attributes:
        rows: the ``n_records`` records first; under the published layout the auxiliary rows follow, laid out again.
        n_records: records that are counted.
        at: LongTensor ``[m]`` positions of the auxiliary rows.
    """

    rows: FeatureRows
    n_records: int
    at: Tensor


def raw_features(observation: IntermediateResults, device: torch.device, with_labels: bool = True) -> RecordFeatures:
    """The adversary's own encoded columns and, of the active party, the labels as one-hot columns.

    Args:
        observation: what the adversary sees.
        device: where the features go.
        with_labels: read the labels as well, where the observation holds them.

    Raises:
        ObservationError: the observation carries none, or they are not finite.
    """
    values = observation.features
    if values is None:
        raise ObservationError("aia_raw needs the adversary's own encoded columns; the observation carries no features")
    if values.is_floating_point() and not values.isfinite().all():
        raise ObservationError("features must be finite, got NaN or infinity")
    if with_labels and observation.labels is not None:
        labels = one_hot(observation.labels, observation.facts.n_classes).to(values)
        values = torch.cat([values, labels], 1)
    at = observation.positions(observation.auxiliary.ids).to(device)
    return RecordFeatures(FeatureRows(values.to(device)), len(values), at)


def result_features(
    observation: IntermediateResults, kinds: Sequence[Kind] | None, device: torch.device
) -> RecordFeatures:
    """Intermediate results of the kinds side by side, ``[n, kinds * width]``; ``None`` takes all there are.

    Raises:
        ObservationError: the observation lacks a kind.
    """
    values = torch.cat([observation.results[kind] for kind in chosen_kinds(observation, kinds)], 1).float().to(device)
    return RecordFeatures(FeatureRows(values), len(values), observation.positions(observation.auxiliary.ids).to(device))


def published_features(
    observation: IntermediateResults, kinds: Sequence[Kind] | None, by_group: bool, device: torch.device
) -> RecordFeatures:
    """``[kinds, n, width]`` read as ``[n, kinds * width]`` without moving the axis, as ProVFL's code does.

    Args:
        observation: what the adversary sees.
        kinds: see `result_features`.
        by_group: lay out the auxiliary rows with the property apart from those without it; else both together.
        device: where the features go.

    Raises:
        ObservationError: the observation lacks a kind, or kinds differ in width.
    """
    chosen = [observation.results[kind] for kind in chosen_kinds(observation, kinds)]
    if len({values.shape[1] for values in chosen}) > 1:
        widths = ", ".join(str(values.shape[1]) for values in chosen)
        raise ObservationError(f"the published layout needs kinds of one width, got widths {widths}")
    stacked = torch.stack(chosen).float()
    n, width = stacked.shape[1], stacked.shape[0] * stacked.shape[2]
    known = observation.auxiliary
    groups = [known.has_property.nonzero().squeeze(1), (~known.has_property).nonzero().squeeze(1)]
    order = torch.cat(groups)
    positions = observation.positions(known.ids)
    laid_out = [stacked[:, positions[group]].reshape(-1, width) for group in (groups if by_group else [order])]
    at = torch.empty_like(order)
    at[order] = n + torch.arange(len(order))
    values = torch.cat([stacked.reshape(n, width), *laid_out])
    return RecordFeatures(FeatureRows(values.to(device)), n, at.to(device))


def require_some_kinds(kinds: Sequence[Kind] | None) -> None:
    """Raise `UsageError` for no kind of intermediate results, or one that is named twice; None passes."""
    if kinds is not None and (not kinds or len(set(kinds)) < len(kinds)):
        raise UsageError(f"kinds must be distinct and at least one, got {list(kinds)}")


def chosen_kinds(observation: IntermediateResults, kinds: Sequence[Kind] | None) -> tuple[Kind, ...]:
    """The kinds that are read, in the published code's order.

    Raises:
        ObservationError: the observation lacks one of ``kinds``.
    """
    if missing := sorted(set(kinds or ()) - set(observation.results)):
        raise ObservationError(
            f"kinds to read must be among those observed ({', '.join(observation.results)}); missing: "
            f"{', '.join(missing)}"
        )
    return tuple(kind for kind in PUBLISHED_ORDER if kind in (kinds or observation.results))
