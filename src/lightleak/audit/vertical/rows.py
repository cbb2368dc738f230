"""Rows of results.json of a vertical audit, and the norm distributions its report draws."""

from collections.abc import Iterator
from typing import Any

from lightleak.attacks.property_inference import PropertyAttack
from lightleak.attacks.property_inference.norms import NORMS, record_norms
from lightleak.core.intermediate_results import IntermediateResults, Kind, PropertyTruth
from lightleak.core.property_estimate import PropertyEstimate
from lightleak.metrics.norm_distributions import compare_norms

NORM_KINDS: tuple[Kind, ...] = ("VO", "AO")
"""Kinds whose norm distributions a report draws (ProVFL Fig. 2 and 4)."""


def estimate_row(
    unit: str, attack: PropertyAttack, found: PropertyEstimate, seen: IntermediateResults, truth: PropertyTruth | None
) -> dict[str, Any]:
    """What an attack found, beside the truth where it is known."""
    fraction = None if truth is None else truth.fraction
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
        "estimated_fraction": found.fraction,
        "low": found.low,
        "high": found.high,
        "prior": found.prior,
        "absolute_error": None if fraction is None else abs(found.fraction - fraction),
        "covered": None if fraction is None else found.low <= fraction <= found.high,
        "seconds": found.seconds,
        "warnings": list(found.warnings),
        "threat_model": found.threat_model,
        "options": attack.options(),
        "by_kind": dict(found.by_kind),
        "details": dict(found.details),
    }


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
