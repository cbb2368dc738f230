"""What a party of vertical federated learning may see while it trains."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lightleak.core.errors import ObservationError
from lightleak.core.parties import VISIBLE, Adversary, Kind


@dataclass(frozen=True)
class AuxiliaryData:
    """Rows of which the adversary knows whether they have the property (ProVFL Sec. III-D).

    Attributes:
        property_name: the property, as ``column=value``.
        ids: LongTensor ``[m]`` sample ids; a row may be repeated where few have the property.
        has_property: BoolTensor ``[m]``.
        columns: columns the adversary knows of these rows: its own.
    """

    property_name: str
    ids: Tensor
    has_property: Tensor
    columns: tuple[str, ...]

    @property
    def prior(self) -> float:
        """Share of these rows that have the property: what guessing without any observation would answer."""
        return float(self.has_property.float().mean())


@dataclass(frozen=True)
class VerticalFacts:
    """What every party knows by the protocol.

    Attributes:
        n_parties: parties that hold features.
        adversary_party: index of the adversary.
        victim_party: index of the party that holds the property.
        adversary_columns: the adversary's own columns.
        victim_columns: names of the victim's columns, which the parties agreed on.
        epoch: epoch the results were taken in, 0-based.
        batch_size: rows per step; gradients are those of the mean over a batch.
        n_classes: classes of the task.
    """

    n_parties: int
    adversary_party: int
    victim_party: int
    adversary_columns: tuple[str, ...]
    victim_columns: tuple[str, ...]
    epoch: int
    batch_size: int
    n_classes: int


@dataclass(frozen=True)
class IntermediateResults:
    """Intermediate results of one epoch as one adversary sees them (vertical federated learning).

    Attributes:
        adversary: ``C1`` or ``C2``.
        ids: LongTensor ``[n]``, ascending: the training records.
        results: by kind, float ``[n, width]``, row i belongs to ``ids[i]``.
        auxiliary: the rows whose property is known.
        facts: protocol facts.
        features: the adversary's own encoded columns ``[n, d]``; ``None`` where no attack needs them.
        labels: LongTensor ``[n]`` labels of the task, which the active party alone holds.

    Raises:
        ObservationError: on construction, when tensors do not fit each other, a kind is one the adversary cannot see,
            a passive party is given labels, the auxiliary rows are not among the records or reach into the victim's
            columns, or the property is absent from them or constant in them.
    """

    adversary: Adversary
    ids: Tensor
    results: Mapping[Kind, Tensor]
    auxiliary: AuxiliaryData
    facts: VerticalFacts
    features: Tensor | None = None
    labels: Tensor | None = None

    def __post_init__(self) -> None:
        _check(self)

    def positions(self, ids: Tensor) -> Tensor:
        """Row of each of ``ids`` in `results`, LongTensor."""
        return torch.searchsorted(self.ids, ids)


def _check(seen: IntermediateResults) -> None:
    n = len(seen.ids)
    if seen.adversary not in VISIBLE:
        raise ObservationError(f"adversary must be one of {', '.join(VISIBLE)}, got {seen.adversary!r}")
    if not seen.results:
        raise ObservationError("intermediate results must hold at least one kind, got none")
    for kind, values in seen.results.items():
        if kind not in VISIBLE[seen.adversary]:
            allowed = ", ".join(VISIBLE[seen.adversary])
            raise ObservationError(f"an adversary {seen.adversary} can see {allowed}; got {kind!r} as well")
        if values.ndim != 2 or len(values) != n:
            raise ObservationError(f"{kind} must have shape [{n}, width], a row per id; got {tuple(values.shape)}")
        if not values.isfinite().all():
            raise ObservationError(f"{kind} must be finite, got NaN or infinity")
    if n > 1 and not (seen.ids[1:] > seen.ids[:-1]).all():
        raise ObservationError("ids must be ascending and distinct")
    if seen.features is not None and len(seen.features) != n:
        raise ObservationError(f"features must have {n} rows, one per id; got {len(seen.features)}")
    if seen.labels is not None:
        _check_labels(seen, seen.labels)
    _check_auxiliary(seen)


def _check_labels(seen: IntermediateResults, labels: Tensor) -> None:
    if seen.adversary != "C1":
        raise ObservationError(f"only the active party C1 holds labels; got labels for {seen.adversary}")
    if labels.shape != seen.ids.shape:
        raise ObservationError(f"labels must have shape [{len(seen.ids)}], one per id; got {tuple(labels.shape)}")
    if not ((labels >= 0) & (labels < seen.facts.n_classes)).all():
        raise ObservationError(
            f"labels must be from 0 to {seen.facts.n_classes - 1}, got {int(labels.min())} to {int(labels.max())}"
        )


def _check_auxiliary(seen: IntermediateResults) -> None:
    known = seen.auxiliary
    if known.ids.shape != known.has_property.shape or known.ids.ndim != 1:
        shapes = f"{tuple(known.ids.shape)} and {tuple(known.has_property.shape)}"
        raise ObservationError(f"auxiliary ids and has_property must both have shape [m], got {shapes}")
    if reached := sorted(set(known.columns) & set(seen.facts.victim_columns)):
        raise ObservationError(
            f"auxiliary data must come from the adversary's own columns; these are the victim's: {', '.join(reached)}"
        )
    n_with = int(known.has_property.sum())
    if n_with == 0:
        raise ObservationError(f"property {known.property_name} is absent from the {len(known.ids)} auxiliary rows")
    if n_with == len(known.ids):
        raise ObservationError(f"property {known.property_name} is constant: all {n_with} auxiliary rows have it")
    at = seen.positions(known.ids).clamp(max=len(seen.ids) - 1)
    if unknown := int((seen.ids[at] != known.ids).sum()):
        raise ObservationError(f"auxiliary rows must be among the records; {unknown} of {len(known.ids)} ids are not")
