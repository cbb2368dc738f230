"""Correlation augmentation: what an adversary does while the target trains (ProVFL Sec. V-C, Algorithm 2)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import lightning
from torch import Tensor

from lightleak.attacks.property_inference.attack import TrainingPart
from lightleak.attacks.property_inference.label_replacement import LabelReplacement, LabelReplacementConfig
from lightleak.attacks.property_inference.model_refinement import ModelRefinement, ModelRefinementConfig
from lightleak.core.errors import UsageError
from lightleak.core.intermediate_results import AuxiliaryData
from lightleak.core.parties import Adversary
from lightleak.core.seeds import derive_seed
from lightleak.core.threat_model import Does

_REPLACED: Mapping[str, Does] = {"auxiliary": "replaces_own_labels", "first_batches": "replaces_first_labels"}


@dataclass(frozen=True)
class Augmentation(TrainingPart):
    """The two ways to make a training say more about a property; ``None`` leaves one out.

    Attributes:
        label_replacement: of an active adversary in a task of two classes.
        model_refinement: of any adversary.
    """

    label_replacement: LabelReplacementConfig | None = None
    model_refinement: ModelRefinementConfig | None = None

    @property
    def needs_every_property(self) -> bool:  # type: ignore[override]
        """The published label replacement does: see ``first_batches`` of `LabelReplacementConfig`."""
        return self.label_replacement is not None and self.label_replacement.rows == "first_batches"

    @property
    def does(self) -> tuple[Does, ...]:
        """What both parts do."""
        replaced: tuple[Does, ...] = () if self.label_replacement is None else (_REPLACED[self.label_replacement.rows],)
        return replaced if self.model_refinement is None else (*replaced, "refines_network")

    @classmethod
    def as_published(cls, strength: float = 1.0) -> "Augmentation":
        """Both, as the published code has them."""
        return cls(LabelReplacementConfig.as_published(), ModelRefinementConfig.as_published(strength))

    def callbacks(
        self,
        adversary: Adversary,
        party: int,
        auxiliary: AuxiliaryData,
        inputs: Tensor,
        seed: int,
        every_property: tuple[Tensor, Tensor] | None = None,
    ) -> list[lightning.Callback]:
        """See `TrainingPart.callbacks`; a passive adversary that would replace labels is refused."""
        made: list[lightning.Callback] = []
        if self.label_replacement is not None:
            check_can_replace_labels(adversary)
            made.append(_label_replacement(self.label_replacement, auxiliary, every_property))
        if self.model_refinement is not None:
            settings, own = self.model_refinement, derive_seed(seed, "model refinement")
            made.append(ModelRefinement(settings, party, inputs, auxiliary.has_property, own))
        return made

    def describe(self) -> str:
        """In the paper's words: ``LR+MR``, ``LR``, ``MR`` or ``passive``.

        >>> Augmentation(model_refinement=ModelRefinementConfig()).describe()
        'MR'
        """
        parts = {"LR": self.label_replacement, "MR": self.model_refinement}
        return "+".join(name for name, settings in parts.items() if settings is not None) or "passive"

    def to_dict(self) -> Mapping[str, Any]:
        """JSON-ready form."""
        parts = {"label_replacement": self.label_replacement, "model_refinement": self.model_refinement}
        return {name: None if settings is None else settings.to_dict() for name, settings in parts.items()}


def check_can_replace_labels(adversary: Adversary, n_classes: int = 2) -> None:
    """Raise `UsageError` for a passive adversary, which has no labels, or more than two classes (ProVFL Sec. V-C)."""
    if adversary != "C1":
        raise UsageError(
            f"label replacement needs an active adversary (C1), which has the labels; {adversary} is passive: leave it "
            "out (label_replacement=false)"
        )
    if n_classes != 2:
        raise UsageError(f"label replacement needs a task of two classes, got {n_classes}; leave it out")


def _label_replacement(
    settings: LabelReplacementConfig, auxiliary: AuxiliaryData, every_property: tuple[Tensor, Tensor] | None
) -> LabelReplacement:
    if settings.rows == "auxiliary":
        return LabelReplacement(settings, auxiliary.ids, auxiliary.has_property)
    if every_property is None:
        raise UsageError(
            "label replacement of first_batches (the published code's) needs every_property, the property of all "
            "training rows, which no adversary knows; the honest variant is rows='auxiliary'"
        )
    return LabelReplacement(settings, *every_property, n_auxiliary=len(auxiliary.ids))
