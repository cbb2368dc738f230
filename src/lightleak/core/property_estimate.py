"""What a property inference attack returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lightleak.core.threat_model import Threat


@dataclass(frozen=True)
class PropertyEstimate:
    """An estimated fraction with what the attack knows of its error.

    Attributes:
        fraction: estimated share of the records that have the property, in [0, 1] unless the attack does not clip.
        low: lower end of the attack's own 95% interval.
        high: upper end.
        prior: share among the auxiliary rows, the answer of an attacker that observes nothing.
        by_kind: estimate by kind of intermediate result, where the attack makes one for each.
        seconds: wall time of the attack.
        threat_model: one plain sentence on what the attack was assumed to know and do.
        warnings: what the reader must know, e.g. that the estimate does not differ from the prior.
        details: further JSON-ready facts, e.g. the regression's error on held-out populations.
        threat: the threat model as data; None where the attack states a sentence alone.
        reads_records: whether it is made from the records that are trained on; a guess is not, so that a defense that
            changes their share does not change it.
    """

    fraction: float
    low: float
    high: float
    prior: float
    seconds: float
    threat_model: str
    by_kind: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    threat: Threat | None = None
    reads_records: bool = True
