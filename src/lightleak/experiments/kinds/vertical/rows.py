"""Rows of results.json of a vertical audit, and the norm distributions its report draws."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lightleak.attacks.property_inference import PropertyAttack
from lightleak.attacks.property_inference.norms import NORMS, record_norms
from lightleak.callbacks.intermediate_store import TrainingRecord
from lightleak.core.ground_truth import PropertyTruth
from lightleak.core.intermediate_results import IntermediateResults
from lightleak.core.parties import KINDS, Kind
from lightleak.core.property_estimate import PropertyEstimate
from lightleak.defenses.vertical import VerticalDefense
from lightleak.experiments.kinds.vertical.config import OWN_COLUMNS
from lightleak.metrics.norm_distributions import compare_norms

NORM_KINDS: tuple[Kind, ...] = ("VO", "AO")
"""Kinds whose norm distributions a report draws (ProVFL Fig. 2 and 4)."""

SAME_TRAINING = ("dataset", "setting", "capture", "property", "adversary", "defense", "epoch", "seed")
"""Fields in which an attack and the null it is paired with agree."""


UNKNOWN_TRAINING = (
    "the capture does not say how the model was trained (earlier versions did not write it): whether there was a "
    "defense, and whether the adversary manipulated the training, is not known"
)
NOT_MANIPULATED = "nobody manipulated this training: the attack did no more than compare distributions"


def estimate_row(
    unit: str,
    attack: PropertyAttack,
    found: PropertyEstimate,
    seen: IntermediateResults,
    truth: PropertyTruth | None,
    defense: VerticalDefense | None = None,
) -> dict[str, Any]:
    """Return what an attack found, with the truth where it is known.

    ``absolute_error`` is that of an adversary unaware of the defense, as in the paper, and ``trained_error`` its
    distance from the share that was trained on. ``informed_...`` is what an adversary makes of the estimate who knows
    the defense and its strength (`VerticalDefense.share_before`); of a guess that reads no record nothing is to be
    corrected. Without a ``defense`` nothing is known of one.
    """
    fraction = None if truth is None else truth.fraction
    trained = None if truth is None else truth.trained_fraction
    return {
        "unit": unit,
        "kind": "vertical",
        "protocol": "vertical",
        "attack": attack.name,
        "adversary": seen.adversary,
        "property": seen.auxiliary.property_name,
        "epoch": seen.facts.epoch,
        "parties": seen.facts.n_parties,
        "true_fraction": fraction,
        "trained_fraction": trained,
        "estimated_fraction": found.fraction,
        "low": found.low,
        "high": found.high,
        "prior": found.prior,
        "absolute_error": _distance(found.fraction, fraction),
        "trained_error": _distance(found.fraction, trained),
        "covered": None if fraction is None else found.low <= fraction <= found.high,
        "seconds": found.seconds,
        "warnings": list(found.warnings),
        "threat_model": found.threat_model,
        "threat": None if found.threat is None else found.threat.to_dict(),
        "options": attack.options(),
        "by_kind": dict(found.by_kind),
        "details": dict(found.details),
    } | _informed(found, fraction, defense)


def as_trained(found: PropertyEstimate, attack: PropertyAttack, training: TrainingRecord | None) -> PropertyEstimate:
    """Have an estimate from a capture state the threat model of its training, which the attack cannot know.

    Args:
        found: the estimate.
        attack: the attack.
        training: how the training went; None where the capture does not say.
    """
    if training is None:
        return replace(found, warnings=(*found.warnings, UNKNOWN_TRAINING))
    if found.threat is None or set(KINDS).isdisjoint(found.threat.sees):  # it reads nothing of the training
        return found
    threat = replace(found.threat, does=training.does)
    lacks = attack.takes_part_in_training and not training.does
    details = {**found.details, "augmentation": training.variant} if attack.takes_part_in_training else found.details
    return replace(
        found,
        threat_model=threat.describe(),
        threat=threat,
        warnings=(*found.warnings, NOT_MANIPULATED) if lacks else found.warnings,
        details=details,
    )


def _informed(estimate: PropertyEstimate, fraction: float | None, defense: VerticalDefense | None) -> dict[str, Any]:
    if defense is None:
        return {}

    def before(share: float) -> float:
        if not estimate.reads_records:
            return share
        inside = min(max(share, 0.0), 1.0)
        found = defense.share_before(inside)
        return share if found == inside else found  # a defense that does not change the share leaves a raw estimate raw

    known = before(estimate.fraction)
    return {
        "informed_fraction": known,
        "informed_low": before(estimate.low),
        "informed_high": before(estimate.high),
        "informed_by_kind": {kind: before(share) for kind, share in estimate.by_kind.items()},
        "informed_error": _distance(known, fraction),
    }


def beside_own_columns(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Add to every row how far off the adversary's own columns alone are, and how much closer the row's attack is.

    Both errors are those of an adversary who knows the defense, with the same rows, auxiliary rows and seed. The null
    reads no exchange, so that of the training that is only watched also serves attacks that take part in theirs. A row
    whose null is not finished, or that has no truth, gets None.
    """
    nulls = {_place(row): _error(row) for row in rows if row.get("label") == OWN_COLUMNS}
    paired = []
    for row in rows:
        own, error = nulls.get(_place(row)), _error(row)
        learned = None if own is None or error is None else own - error
        paired.append({**row, "own_columns_error": own, "learned_from_exchange": learned})
    return paired


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in SAME_TRAINING)


def _error(row: Mapping[str, Any]) -> float | None:
    return row.get("informed_error", row.get("absolute_error"))


def _distance(value: float, truth: float | None) -> float | None:
    return None if truth is None else abs(value - truth)


def norm_entries(seen: IntermediateResults, truth: PropertyTruth) -> Iterator[dict[str, Any]]:
    """Norms with and without the property, for every kind that is drawn and every norm."""
    for kind in (kind for kind in NORM_KINDS if kind in seen.results):
        for norm in NORMS:
            yield {
                "property": truth.property_name,
                "adversary_party": seen.facts.adversary_party,
                "kind": kind,
                "norm": norm,
                "epoch": seen.facts.epoch,
                **compare_norms(record_norms(seen.results[kind], norm), truth.has_property),
            }
