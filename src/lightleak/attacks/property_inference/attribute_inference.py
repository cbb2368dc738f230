"""Attribute inference as property inference: classify every record, then count (ProVFL Sec. VI-A.3 and VI-B.3).

AIA reads intermediate results, AIA* the adversary's own columns (of the active party the labels as well). With its
count adjusted, AIA* is the null of every vertical audit: what the adversary knows without the exchange. Departures of
the published code from the text, each an option: ``as_published`` (see `AttributeInferenceConfig`).
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from lightleak.attacks.property_inference.adjusted_count import Count, HeldOutRates, adjusted_count, plain_count
from lightleak.attacks.property_inference.attack import (
    PROPERTY_ATTACKS,
    SEES,
    PropertyAttack,
    party_threat,
    require_distinct_rows,
)
from lightleak.attacks.property_inference.property_classifiers import Classifier, assign_folds, votes
from lightleak.attacks.property_inference.record_features import (
    RecordFeatures,
    chosen_kinds,
    published_features,
    raw_features,
    require_some_kinds,
    result_features,
)
from lightleak.attacks.settings import AttackSettings, factory
from lightleak.core.errors import UsageError
from lightleak.core.facts import Facts
from lightleak.core.intermediate_results import AuxiliaryData, IntermediateResults
from lightleak.core.parties import Kind
from lightleak.core.property_estimate import PropertyEstimate
from lightleak.core.threat_model import Sees, Threat

FOLDS: Mapping[Classifier, int] = {"network": 10, "svm": 5, "decision_tree": 5}
"""One fold is held out: a tenth of the rows for the network and a fifth for the others, as in the published code."""


@dataclass(frozen=True)
class AttributeInferenceConfig(AttackSettings):
    """Settings of AIA and AIA*.

    Attributes:
        classifier: ``network`` (d-64-32-1), ``svm`` (RBF kernel) or ``decision_tree``.
        adjusted: correct the count by the classifier's error rates (Forman 2008). The auxiliary rows are half with the
            property, half without, and the records are not, so a plain count is drawn towards one half. One model is
            trained per fold, each auxiliary row is judged by the model that has not seen it, and auxiliary rows are
            counted as what they are known to be.
        kinds: kinds of intermediate results that are read, concatenated; ``None`` reads all the adversary sees.
            AIA* reads none.
        as_published: as ProVFL's code has it. Features are not standardized: gradients of about 1e-3 (they are those
            of a batch mean) then share a scale with outputs of about 1. Several kinds are laid out by reinterpreting
            ``[kinds, n, width]`` as ``[n, kinds * width]`` without moving the axis: a row is then consecutive records
            of one kind, not all kinds of one record, and the estimate is of little worth. Otherwise every feature has
            the mean and the deviation of the auxiliary rows taken out, and a row is a record.

    Raises:
        UsageError: an unknown classifier or kind, or ``adjusted`` with ``as_published``.
    """

    owner: ClassVar[str] = "attribute inference"

    classifier: Classifier = "network"
    adjusted: bool = False
    kinds: tuple[Kind, ...] | None = None
    as_published: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_some_kinds(self.kinds)
        if self.adjusted and self.as_published:
            raise UsageError("the published code has no adjusted count: choose adjusted or as_published, got both")


TITLES = {
    "aia": "AIA",
    "aia_adjusted": "AIA, adjusted count",
    "aia_raw": "AIA on own columns",
    "aia_raw_adjusted": "Own columns alone",
}


class AttributeInference(PropertyAttack):
    """Classify every record by its intermediate results (AIA) or the adversary's own columns (AIA*), then count."""

    citation = (
        "Bai et al., ProVFL, IEEE TIFS 2025, Sec. VI-A.3; Song and Raghunathan, CCS 2020; adjusted count: Forman, DMKD "
        "17(2), 2008"
    )

    def __init__(self, config: AttributeInferenceConfig, raw: bool = False) -> None:
        """Make the attack.

        Args:
            config: its settings.
            raw: read the adversary's own encoded columns (AIA*) in place of intermediate results.

        Raises:
            UsageError: kinds chosen for AIA*.
        """
        if raw and config.kinds is not None:
            raise UsageError(f"aia_raw reads the adversary's own columns and no kinds, got kinds={config.kinds!r}")
        self.config, self.raw = config, raw
        self.name = ("aia_raw" if raw else "aia") + ("_adjusted" if config.adjusted else "")
        self.title, self.is_baseline = TITLES[self.name], raw

    def options(self) -> dict[str, Any]:
        """See `PropertyAttack.options`."""
        return self.config.to_dict()

    def check(self, observation: IntermediateResults) -> None:
        """See `PropertyAttack.check`.

        Raises:
            ObservationError: what is to be read is missing or not finite, kinds of different widths are to be laid out
                as published, or fewer distinct auxiliary rows with or without the property than folds.
        """
        self._features(observation, torch.device("cpu"))
        require_distinct_rows(observation.auxiliary, FOLDS[self.config.classifier], self.name)

    def run(
        self, observation: IntermediateResults, seed: int = 0, device: torch.device | str = "cpu"
    ) -> PropertyEstimate:
        """See `PropertyAttack.run`."""
        began = time.perf_counter()
        self.check(observation)
        known, n_folds = observation.auxiliary, FOLDS[self.config.classifier]
        features = self._features(observation, torch.device(device))
        rows = features.rows if self.config.as_published else features.rows.standardized(features.at)
        has_property = known.has_property.to(features.at.device)
        folds = assign_folds(known.ids.cpu(), known.has_property.cpu(), n_folds, seed).to(features.at.device)
        n_models = n_folds if self.config.adjusted else 1
        called = votes(self.config.classifier, rows, features.at, has_property, folds, n_models, seed)
        rates = held_out_rates(called, features.at.cpu(), known, folds.cpu())
        count = self._count(called[:, : features.n_records], observation, rates)
        threat = self._threat(observation)
        return PropertyEstimate(
            fraction=count.fraction,
            low=count.low,
            high=count.high,
            prior=known.prior,
            seconds=time.perf_counter() - began,
            threat_model=threat.describe(),
            threat=threat,
            warnings=_warnings(count, rates, known.prior),
            details={
                "held_out_accuracy": rates.accuracy,
                "true_positive_rate": rates.true_positive,
                "false_positive_rate": rates.false_positive,
                "held_out_rows": rates.n_with + rates.n_without,
                "share_called_positive": count.share,
            },
            reads_records=not count.is_fallback,
        )

    def _features(self, observation: IntermediateResults, device: torch.device) -> RecordFeatures:
        config = self.config
        if self.raw:
            return raw_features(observation, device, with_labels=not self.config.as_published)
        if config.as_published and len(chosen_kinds(observation, config.kinds)) > 1:
            return published_features(observation, config.kinds, config.classifier == "network", device)
        return result_features(observation, config.kinds, device)

    def _count(self, called: Tensor, observation: IntermediateResults, rates: HeldOutRates) -> Count:
        known, n = observation.auxiliary, called.shape[1]
        if not self.config.adjusted:
            return plain_count(float(called.float().mean()), n, rates)
        unknown = torch.ones(n, dtype=torch.bool)
        unknown[observation.positions(known.ids).cpu()] = False
        n_unknown = int(unknown.sum())
        share = float(called[:, unknown].float().mean()) if n_unknown else 0.0
        known_with = len(known.ids[known.has_property].unique())
        return adjusted_count(share, n_unknown, rates, known_with, n - n_unknown, known.prior)

    def _threat(self, observation: IntermediateResults) -> Threat:
        known, sees = observation.auxiliary, cast(tuple[Sees, ...], chosen_kinds(observation, self.config.kinds))
        if self.raw:
            labels = observation.labels is not None and not self.config.as_published
            sees = ("own_columns", "labels") if labels else ("own_columns",)
        return party_threat(observation, sees, len(known.ids.unique()))


def held_out_rates(called: Tensor, at: Tensor, known: AuxiliaryData, folds: Tensor) -> HeldOutRates:
    """Rates of the models on the rows of the fold each was trained without; copies of a row count once.

    Args:
        called: BoolTensor ``[models, n]``, model i was trained without fold i.
        at: LongTensor ``[m]`` positions of the auxiliary rows in ``called``.
        known: the auxiliary rows.
        folds: LongTensor ``[m]``.
    """
    _, first = np.unique(known.ids.cpu().numpy(), return_index=True)
    rows = torch.from_numpy(first)
    rows = rows[folds[rows] < len(called)]
    judged, truth = called[folds[rows], at[rows]], known.has_property.cpu()[rows]
    n_with = int(truth.sum())
    return HeldOutRates(
        hits=int(judged[truth].sum()),
        n_with=n_with,
        false_alarms=int(judged[~truth].sum()),
        n_without=len(rows) - n_with,
    )


def _warnings(count: Count, rates: HeldOutRates, prior: float) -> tuple[str, ...]:
    found = []
    if not rates.better_than_chance:
        found.append(
            f"the classifier is not better than chance on held-out auxiliary rows (accuracy {rates.accuracy:.3f}): the "
            "estimate says nothing about the records"
        )
    if count.low <= prior <= count.high:
        found.append(f"the estimate does not differ measurably from the auxiliary prior {prior:.3f}")
    return tuple(found)


_NEEDS = ("Auxiliary rows with and without the property, at least as many distinct ones of each as there are folds.",)
_AS_PUBLISHED = (
    "Features are standardized by the auxiliary rows, and a row of features is one record; the published code does "
    "neither and scrambles several kinds of intermediate results (`as_published: true`)."
)
_OWN_DATA = (
    "A party that holds columns of its own on every record (the active party the labels as well) and knows of some "
    "auxiliary records whether they have the property. It reads nothing of what is exchanged."
)
_OWN_COLUMNS = (
    "Own columns are standardized by the auxiliary rows, and the active party's labels are read as well; the "
    "published code does neither (`as_published: true`).",
)
_ADJUSTED = "The count is corrected by held-out error rates (Forman 2008), which the paper does not do."


_PLAIN, _CORRECTED = AttributeInferenceConfig(), AttributeInferenceConfig(adjusted=True)
_OF_OWN_COLUMNS = partial(AttributeInference, raw=True)

aia = PROPERTY_ATTACKS.register(
    "aia", Facts("classifies every record by what is exchanged, then counts", SEES, _NEEDS, (_AS_PUBLISHED,))
)(factory(AttributeInference, _PLAIN))
"""AIA on intermediate results."""

aia_adjusted = PROPERTY_ATTACKS.register(
    "aia_adjusted",
    Facts("the same with the count corrected by its error rates", SEES, _NEEDS, (_ADJUSTED, _AS_PUBLISHED)),
)(factory(AttributeInference, _CORRECTED))
"""AIA with the count corrected by held-out error rates: the stronger rival."""

aia_raw = PROPERTY_ATTACKS.register(
    "aia_raw",
    Facts("the same on the adversary's own columns, nothing exchanged", _OWN_DATA, _NEEDS, _OWN_COLUMNS),
)(factory(_OF_OWN_COLUMNS, _PLAIN))
"""AIA* on the adversary's own encoded columns and labels."""

aia_raw_adjusted = PROPERTY_ATTACKS.register(
    "aia_raw_adjusted",
    Facts("the null of every audit: own columns, the count corrected", _OWN_DATA, _NEEDS, (_ADJUSTED, *_OWN_COLUMNS)),
)(factory(_OF_OWN_COLUMNS, _CORRECTED))
"""AIA* with the count corrected as in `aia_adjusted`: what the adversary knows without the exchange.

Every vertical audit runs it. What an attack is closer to the truth than this, paired by training, it has learned from
the exchange.
"""
