"""ProVFL-M: distribution comparison on a training that the adversary manipulated (ProVFL Sec. V, Algorithm 2)."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from lightleak.attacks.property_inference.attack import PROPERTY_ATTACKS, SEES, PropertyAttack
from lightleak.attacks.property_inference.augmentation import Augmentation, check_can_replace_labels
from lightleak.attacks.property_inference.comparison_config import DistributionComparisonConfig
from lightleak.attacks.property_inference.distribution_comparison import NEEDS, DistributionComparison
from lightleak.attacks.property_inference.label_replacement import LabelReplacementConfig
from lightleak.attacks.property_inference.model_refinement import ModelRefinementConfig
from lightleak.core.facts import Facts
from lightleak.core.intermediate_results import IntermediateResults
from lightleak.core.parties import Adversary
from lightleak.core.property_estimate import PropertyEstimate


@dataclass(frozen=True)
class ProVFLMConfig:
    """What the adversary does while the target trains, and afterwards.

    Attributes:
        comparison: distribution comparison.
        augmentation: settings of both parts, of which `ProVFLM.training_part` takes those that apply.
        label_replacement: ``None``: where the adversary is active and the task has two classes (Sec. V-C). ``False``:
            never. ``True``: always, which a passive adversary is refused.
        model_refinement: whether the bottom network is refined.
    """

    comparison: DistributionComparisonConfig
    augmentation: Augmentation
    label_replacement: bool | None = None
    model_refinement: bool = True


class ProVFLM(PropertyAttack):
    """Distribution comparison on an augmented run.

    Whoever trains the target asks for `training_part` first and gives its callbacks to the Trainer.

    Deviates:
        * Labels are replaced on the auxiliary rows, as in the text; the published code replaces those of all rows of
          the first batches, whose property no adversary knows (``as_published: true``).
        * Eq. 12 as printed contradicts its text and has no minimum; here norms are rewarded up to ``cap``
          (``objective: as_coded`` has the code's).
        * The label that stands for the property is the one that goes with it by itself; the paper's is always 1
          (``orientation: printed``).
    """

    name = "provfl_m"
    title = "ProVFL-M"
    citation = DistributionComparison.citation
    takes_part_in_training = True

    def __init__(self, config: ProVFLMConfig) -> None:
        self.config = config
        self._comparison = DistributionComparison(config.comparison, self.name)

    def training_part(self, adversary: Adversary, n_classes: int = 2) -> Augmentation:
        """What this adversary does during the training: C1 replaces labels and refines, C2 refines.

        Raises:
            UsageError: label replacement was asked for, and the adversary is passive or the task has more classes.
        """
        config, whole = self.config, self.config.augmentation
        replaces = (
            adversary == "C1" and n_classes == 2 if config.label_replacement is None else config.label_replacement
        )
        if replaces:
            check_can_replace_labels(adversary, n_classes)
        return Augmentation(
            whole.label_replacement if replaces else None, whole.model_refinement if config.model_refinement else None
        )

    def check(self, observation: IntermediateResults) -> None:
        """See `DistributionComparison.check`; and a passive adversary cannot have replaced labels."""
        self.training_part(observation.adversary, observation.facts.n_classes)
        self._comparison.check(observation)

    def run(
        self, observation: IntermediateResults, seed: int = 0, device: torch.device | str = "cpu"
    ) -> PropertyEstimate:
        """Estimate the fraction from a run that was augmented as `training_part` says."""
        done = self.training_part(observation.adversary, observation.facts.n_classes)
        estimate = self._comparison.run(observation, seed, device)
        assert estimate.threat is not None  # `DistributionComparison` states it
        threat = replace(estimate.threat, does=done.does)
        details = {**estimate.details, "augmentation": done.describe()}
        return replace(estimate, threat_model=threat.describe(), threat=threat, details=details)

    def options(self) -> dict[str, Any]:
        """Settings of distribution comparison, and of the augmentation; JSON-ready."""
        return {
            **self._comparison.options(),
            "label_replacement": self.config.label_replacement,
            "model_refinement": self.config.model_refinement,
            "augmentation": self.config.augmentation.to_dict(),
        }


@PROPERTY_ATTACKS.register("provfl_m")
def provfl_m(
    *,
    label_replacement: bool | None = None,
    model_refinement: bool = True,
    strength: float = 1.0,
    as_published: bool = False,
    **options: Any,
) -> ProVFLM:
    """ProVFL-M by its settings.

    Args:
        label_replacement: see `ProVFLMConfig`.
        model_refinement: see `ProVFLMConfig`.
        strength: lambda of Eq. 13.
        as_published: both parts and the comparison as the published code has them.
        options: other settings of the refinement (`ModelRefinementConfig`), of label replacement
            (`LabelReplacementConfig`) and of distribution comparison.

    Raises:
        UsageError: an unknown setting, or a value out of range.
    """
    refinement, relabeling = ModelRefinementConfig.take_from(options), LabelReplacementConfig.take_from(options)
    whole = (
        Augmentation.as_published() if as_published else Augmentation(LabelReplacementConfig(), ModelRefinementConfig())
    )
    assert whole.label_replacement is not None and whole.model_refinement is not None  # both variants have both
    augmentation = Augmentation(
        whole.label_replacement.with_options(**relabeling),
        whole.model_refinement.with_options(strength=strength, **refinement),
    )
    make = DistributionComparisonConfig.as_published if as_published else DistributionComparisonConfig
    comparison = make().with_options(**options)
    return ProVFLM(ProVFLMConfig(comparison, augmentation, label_replacement, model_refinement))


PROPERTY_ATTACKS.describe(
    "provfl_m",
    Facts(
        "ProVFL's active attack: the adversary manipulates the training",
        sees=SEES.replace(" that follows the protocol", "", 1)
        + " It does not follow the protocol: it refines its own network towards the property and, as the active party "
        "of a task of two classes, replaces labels of auxiliary rows.",
        needs=(*NEEDS, "A training to take part in: a finished capture must have been made with its callbacks."),
        settings=(provfl_m, LabelReplacementConfig, ModelRefinementConfig, DistributionComparisonConfig),
    ),
)
