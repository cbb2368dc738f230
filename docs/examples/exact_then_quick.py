"""A composed attack in one file: exact inversion first, a short optimization on the rows that it leaves unproven."""

from typing import Any

from lightleak.attacks import ATTACKS
from lightleak.attacks.gradient_inversion.compose.audit_max import ComposedAttack
from lightleak.core.facts import Facts

FACTS = Facts(
    "exact inversion, then a short TabLeak on the unproven rows",
    needs=("A FedSGD gradient that one of the two attacks supports.",),
    deviates=("It follows no paper: it is an example.",),
)


@ATTACKS.register("exact_then_quick", FACTS)
def exact_then_quick(labels: str = "restored", **tableak: Any) -> ComposedAttack:
    """Make the attack; TabLeak takes further settings, such as ``steps``."""
    method = "true" if labels == "true" else "geng"
    quick = ATTACKS.get("tableak")(**{"steps": 100, "restarts": 4, "labels": method, **tableak})
    stages = {"gradient": [ATTACKS.get("exact")(), quick]}
    return ComposedAttack(
        "exact_then_quick", "LightLeak's documentation", stages, {"labels": labels, "tableak": quick.options()}
    )
