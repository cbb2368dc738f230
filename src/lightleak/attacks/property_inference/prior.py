"""The share among the auxiliary rows, the intermediate results unread: one half by construction, and no baseline."""

import time
from typing import Any

import torch

from lightleak.attacks.property_inference.attack import PROPERTY_ATTACKS, PropertyAttack
from lightleak.core.facts import Facts
from lightleak.core.intermediate_results import IntermediateResults
from lightleak.core.property_estimate import PropertyEstimate
from lightleak.core.threat_model import Threat

FACTS = Facts(
    "answers the share among the auxiliary rows, nothing observed",
    sees="Knows the property of the auxiliary rows and reads nothing else.",
)


@PROPERTY_ATTACKS.register("prior", FACTS)
class PriorGuess(PropertyAttack):
    """Answer the auxiliary prior, with an interval that excludes nothing.

    Needs:
        * Auxiliary rows whose property is known.

    Deviates:
        * The paper has none. Of a balanced sample the answer is one half whatever the truth: leakage is what an attack
          is closer than ``aia_raw_adjusted``, not than this.
    """

    name = "prior"
    title = "Guessing the auxiliary share"
    is_baseline = True
    citation = "Bai et al., ProVFL: Property Inference Attacks against Vertical Federated Learning, IEEE TIFS 2025"

    def check(self, observation: IntermediateResults) -> None:
        """Any observation is accepted."""

    def run(
        self, observation: IntermediateResults, seed: int = 0, device: torch.device | str = "cpu"
    ) -> PropertyEstimate:
        """The share of auxiliary rows that have the property."""
        began = time.perf_counter()
        prior = observation.auxiliary.prior
        threat = Threat("nobody", knows=("property_sample",), sample=len(observation.auxiliary.ids))
        return PropertyEstimate(
            prior,
            0.0,
            1.0,
            prior,
            time.perf_counter() - began,
            threat.describe(),
            threat=threat,
            reads_records=False,
        )

    def options(self) -> dict[str, Any]:
        """It has no setting."""
        return {}
