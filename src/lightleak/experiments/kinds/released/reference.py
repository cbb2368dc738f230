"""Public pseudo-labeled rows that every figure of an attack is compared with: as many draws, of the same classes."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lightleak.attacks.model_inversion.attack import FittedInversion
from lightleak.attacks.model_inversion.condition import ConditionClassifier
from lightleak.attacks.model_inversion.pseudo_labels import PseudoLabelConfig, pseudo_label
from lightleak.attacks.model_inversion.public_rows import FittedPublicRows, encode_public
from lightleak.attacks.model_inversion.released import rebuild
from lightleak.core.class_samples import ClassSamples
from lightleak.core.released_model import ReleasedModel
from lightleak.core.seeds import CPU, derive_seed
from lightleak.data.encoder import TableEncoder
from lightleak.experiments.kinds.released.judge import Judge
from lightleak.metrics.inversion.score import MEASURES

LEARNED = 0.5
"""Share of what public rows reach from which a generator counts as having learned its condition."""


@dataclass(frozen=True)
class PublicReference:
    """What public rows give that the target merely sorted into its classes.

    Attributes:
        rows: they can be drawn for any class.
        encoder: the target's.
        inputs: encoded pseudo-labeled public rows that no attack learns from ``[h, d]``, where classifiers learn.
        labels: their classes ``[h]``.
        condition: how many of them a classifier names rightly that learned from the public rows which attacks learn
            from; None without unused rows.
    """

    rows: FittedPublicRows
    encoder: TableEncoder
    inputs: Tensor
    labels: Tensor
    condition: float | None

    @classmethod
    def of(cls, seen: ReleasedModel, config: PseudoLabelConfig, device: torch.device = CPU) -> "PublicReference":
        """Sort the public rows as an attack with these settings does; the next surest of each class are held out.

        Args:
            seen: what the attacker holds.
            config: how public rows are sorted.
            device: where the target answers and classifiers learn.

        Raises:
            ObservationError: no class has enough rows.
        """
        target = rebuild(seen).to(device)
        inputs = encode_public(seen, target.encoder)
        logits = target.logits(inputs)
        chosen = pseudo_label(logits, config)
        more = pseudo_label(logits, replace(config, top_n=2 * config.top_n))
        unused = ~torch.isin(more.rows, chosen.rows)
        held = inputs[more.rows[unused]].to(device), more.labels[unused].to(device)
        found = _taught(inputs[chosen.rows], chosen.labels, *held, target.n_classes)
        return cls(FittedPublicRows(seen, target, chosen, True), target.encoder, *held, found)

    def measures(self, judge: Judge, labels: Tensor, seed: int) -> dict[str, float | None]:
        """The measures of as many public rows of the same classes, each under ``public_`` and its name.

        Rows are drawn with replacement from those that are kept, so that measures which grow with the number of
        different rows are lower than of as many different rows. Empty where an attack made rows for a class that these
        public rows lack.
        """
        if not set(labels.unique().tolist()) <= set(self.rows.classes):
            return {}
        drawn = self.rows.generate(labels, derive_seed(seed, "public reference"))
        found = judge.score(drawn, derive_seed(seed, "memorisation")).to_row()
        return {f"public_{name}": found[name] for name in MEASURES}

    def taught_by(self, samples: ClassSamples) -> float | None:
        """Share of the held-out public rows that a classifier names rightly which learned from these samples."""
        made = self.encoder.encode(samples.rows)
        return _taught(made, samples.labels, self.inputs, self.labels, self.encoder.schema.n_classes)


def _taught(inputs: Tensor, labels: Tensor, held: Tensor, held_labels: Tensor, n_classes: int) -> float | None:
    if not len(held_labels):
        return None
    learned = ConditionClassifier.fit(inputs.to(held.device), labels.to(held.device), n_classes)
    return learned.accuracy(held, held_labels)


def compared_with_public(
    reference: PublicReference, fitted: FittedInversion, samples: ClassSamples, judge: Judge | None, seed: int
) -> dict[str, Any]:
    """Return what a row holds of public rows: measures where there is a judge, and the condition.

    The condition is of the generator, not of a latent search, which makes few rows.
    """
    found: dict[str, Any] = {} if judge is None else reference.measures(judge, samples.labels, seed)
    warnings = list(samples.warnings)
    if samples.search == "random":
        made, public = reference.taught_by(samples), reference.condition
        found |= {"condition_accuracy": made, "public_condition_accuracy": public}
        if fitted.losses and made is not None and public is not None and made < LEARNED * public:
            warnings.append(
                "the generator did not learn its condition: a classifier that learned from its rows names the class "
                f"of {100 * made:.0f}% of public rows, one that learned from public rows {100 * public:.0f}%; choose "
                "other settings of the generator before its figures are compared (configs/tune-plgmi-generator.yaml)"
            )
    return {**found, "warnings": warnings}
