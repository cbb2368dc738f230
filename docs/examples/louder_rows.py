"""A training-time attack in one file: after each epoch the adversary amplifies rows with the property."""

import time
from typing import Any

import lightning
import torch
from torch import Tensor

from lightleak.attacks.property_inference.attack import PROPERTY_ATTACKS, PropertyAttack, TrainingPart
from lightleak.core.facts import Facts
from lightleak.core.intermediate_results import AuxiliaryData, IntermediateResults
from lightleak.core.parties import Adversary
from lightleak.core.property_estimate import PropertyEstimate

FACTS = Facts(
    "trains its own network to answer louder to rows with the property",
    sees="A party that trains its own network further after each epoch and reads the outputs of all records.",
    needs=("A training to take part in.",),
    deviates=("It follows no paper: it is an example.",),
)


class Louder(lightning.Callback):
    """One step after each epoch: outputs of auxiliary rows with the property grow, those of the others shrink."""

    def __init__(self, party: int, inputs: Tensor, has_property: Tensor, strength: float) -> None:
        self.party, self.inputs, self.has_property, self.strength = party, inputs, has_property, strength

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        inputs = self.inputs.to(pl_module.device)
        sign = 1 - 2 * self.has_property.to(inputs).unsqueeze(1)
        outputs = pl_module.network.party_output(self.party, inputs)
        pl_module.step_party(self.party, self.strength * sign.expand_as(outputs) / len(inputs), inputs)


class LouderPart(TrainingPart):
    """What the adversary does while the target trains."""

    def __init__(self, strength: float) -> None:
        self.strength = strength

    def callbacks(
        self,
        adversary: Adversary,
        party: int,
        auxiliary: AuxiliaryData,
        inputs: Tensor,
        seed: int,
        every_property: tuple[Tensor, Tensor] | None = None,
    ) -> list[lightning.Callback]:
        return [Louder(party, inputs, auxiliary.has_property, self.strength)]

    def describe(self) -> str:
        return "louder"


@PROPERTY_ATTACKS.register("louder_rows", FACTS)
class LouderRows(PropertyAttack):
    """Compares the mean norm of all records with those of auxiliary rows with and without the property."""

    name = "louder_rows"
    citation = "LightLeak's documentation"
    takes_part_in_training = True

    def __init__(self, strength: float = 1.0) -> None:
        self.strength = strength

    def options(self) -> dict[str, Any]:
        return {"strength": self.strength}

    def check(self, observation: IntermediateResults) -> None:
        """Every adversary sees its own outputs."""

    def training_part(self, adversary: Adversary, n_classes: int = 2) -> TrainingPart:
        return LouderPart(self.strength)

    def run(
        self, observation: IntermediateResults, seed: int = 0, device: torch.device | str = "cpu"
    ) -> PropertyEstimate:
        began, auxiliary = time.perf_counter(), observation.auxiliary
        norms = observation.results["AO"].double().norm(dim=1)
        known = norms[observation.positions(auxiliary.ids)]
        without, having = known[~auxiliary.has_property].mean(), known[auxiliary.has_property].mean()
        share = float(((norms.mean() - without) / (having - without)).nan_to_num(auxiliary.prior).clamp(0, 1))
        return PropertyEstimate(
            fraction=share,
            low=0.0,
            high=1.0,
            prior=auxiliary.prior,
            seconds=time.perf_counter() - began,
            threat_model=f"Trains its own network further, and knows the property of {len(auxiliary.ids)} rows.",
        )
