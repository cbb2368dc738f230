"""What every property inference attack looks like from outside."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import lightning
import torch
from torch import Tensor

from lightleak.core.errors import ObservationError
from lightleak.core.intermediate_results import AuxiliaryData, IntermediateResults
from lightleak.core.parties import VISIBLE, Adversary
from lightleak.core.property_estimate import PropertyEstimate
from lightleak.core.registry import Registry
from lightleak.core.threat_model import Aim, Does, Sees, Threat, Who


class TrainingPart:
    """What an adversary does while the target trains; this one only watches."""

    needs_every_property: bool = False
    """Whether it needs the property of all training rows, which no adversary knows."""

    @property
    def does(self) -> tuple[Does, ...]:
        """How the adversary departs from the protocol."""
        return ()

    def callbacks(
        self,
        adversary: Adversary,
        party: int,
        auxiliary: AuxiliaryData,
        inputs: Tensor,
        seed: int,
        every_property: tuple[Tensor, Tensor] | None = None,
    ) -> list[lightning.Callback]:
        """Callbacks for the Trainer of the target.

        Args:
            adversary: ``C1`` or ``C2``.
            party: index of the adversary.
            auxiliary: rows whose property is known.
            inputs: ``[m, d_k]`` the adversary's own encoded columns of these rows, in the order of ``auxiliary.ids``.
            seed: of all randomness in it.
            every_property: ids and property of all training rows, ``[n]`` each, where `needs_every_property`.

        Raises:
            UsageError: what it does is impossible for this adversary, or rows do not fit each other.
        """
        return []

    def describe(self) -> str:
        """What it does in a few words, for results."""
        return "passive"


class PropertyAttack(ABC):
    """An attack on intermediate results: ``run(observation) -> PropertyEstimate``. It never sees the private columns.

    Attributes:
        name: registry name.
        citation: the paper.
        title: the field's name for it, for reports; empty where `name` says it.
        is_baseline: whether it guesses without reading the intermediate results.
        aims: what it tests a training for; a baseline tests nothing.
        takes_part_in_training: whether the adversary acts while the target trains; such an attack has a training of
            its own, with the callbacks of `training_part`.
    """

    name: str
    citation: str
    title: str = ""
    is_baseline: bool = False
    aims: ClassVar[tuple[Aim, ...]] = ("property_inference",)
    takes_part_in_training: ClassVar[bool] = False

    def training_part(self, adversary: Adversary, n_classes: int = 2) -> TrainingPart:
        """What this adversary does while a target of so many classes trains.

        Raises:
            UsageError: the settings ask for what this adversary cannot do.
        """
        return TrainingPart()

    @abstractmethod
    def check(self, observation: IntermediateResults) -> None:
        """Raise `ObservationError` or `UnsupportedError` before any work where the observation cannot be served."""

    @abstractmethod
    def run(
        self, observation: IntermediateResults, seed: int = 0, device: torch.device | str = "cpu"
    ) -> PropertyEstimate:
        """Estimate the fraction of records with the property; the same observation and seed give the same estimate.

        Raises:
            ObservationError: see `check`.
        """

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """The settings that produced the estimate, JSON-ready."""


def require_distinct_rows(known: AuxiliaryData, least: int, owner: str) -> None:
    """Raise `ObservationError` for fewer distinct auxiliary rows with or without the property than ``owner`` needs."""
    for having, rows in (("with", known.ids[known.has_property]), ("without", known.ids[~known.has_property])):
        if (distinct := len(rows.unique())) < least:
            raise ObservationError(
                f"{owner} needs at least {least} distinct auxiliary rows {having} {known.property_name}, got {distinct}"
            )


def party_threat(observation: IntermediateResults, sees: tuple[Sees, ...], sample: int, **facts: Any) -> Threat:
    """The threat model of a party that follows the protocol and knows the property of ``sample`` auxiliary rows."""
    who: Who = "active_party" if observation.adversary == "C1" else "passive_party"
    about = observation.auxiliary.property_name
    return Threat(who=who, sees=sees, knows=("property_sample",), sample=sample, about=about, **facts)


SEES = (
    "One party of a vertical training that follows the protocol. About every record it reads the intermediate results "
    f"that its role sees: C1, the active party, which has the labels, {', '.join(VISIBLE['C1'])}; C2, a passive one, "
    f"{', '.join(VISIBLE['C2'])}. It knows of some auxiliary records whether they have the property, and never sees "
    "the other party's columns."
)
"""The threat model of all of them but ProVFL-M, which does not follow the protocol."""

PROPERTY_ATTACKS: Registry[Callable[..., PropertyAttack]] = Registry("property inference attack")
"""Attack factories by name; called with the settings to change."""
