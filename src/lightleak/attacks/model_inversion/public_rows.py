"""Baselines that show public rows themselves: what is known of a class without any generator."""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lightleak.attacks.model_inversion.attack import INVERSION_ATTACKS, FittedInversion, InversionAttack, Workplace
from lightleak.attacks.model_inversion.class_sampler import ClassSampler
from lightleak.attacks.model_inversion.inversion_loss import cross_entropy
from lightleak.attacks.model_inversion.pseudo_labels import PseudoLabelConfig, PseudoLabels, pseudo_label
from lightleak.attacks.model_inversion.released import Target, rebuild
from lightleak.core.class_samples import ClassSamples
from lightleak.core.facts import Facts
from lightleak.core.released_model import ReleasedModel
from lightleak.core.seeds import generator
from lightleak.core.threat_model import Threat
from lightleak.data.encoder import TableEncoder


class FittedPublicRows(FittedInversion):
    """Public rows, drawn with replacement: those pseudo-labeled as the class, or any."""

    searches = ("random",)

    def __init__(self, observation: ReleasedModel, target: Target, chosen: PseudoLabels, by_class: bool) -> None:
        began = time.perf_counter()
        self._public, self._by_class, self._target = observation.public, by_class, target
        self._chosen = chosen
        self.excluded, self.classes = dict(chosen.excluded), chosen.classes
        self.losses: dict[str, list[float]] = {}
        self.pseudo_labels = chosen.summary()
        self.seconds = time.perf_counter() - began

    def generate(self, labels: Tensor, seed: int = 0, search: str = "random") -> ClassSamples:
        """See `FittedInversion.generate`."""
        began = time.perf_counter()
        self.check_request(labels, search)
        random, chosen = generator(seed, "public rows"), self._chosen
        if self._by_class:
            rows = ClassSampler(chosen.rows, chosen.labels, len(chosen.used)).draw_rows(labels, random)
        else:
            u = torch.rand(len(labels), generator=random, dtype=torch.float64)
            rows = (u * len(self._public)).long().clamp(max=len(self._public) - 1)
        table = self._public.iloc[rows.numpy()].reset_index(drop=True)
        loss = cross_entropy(self._target.logits(self._target.encoder.encode(table)), labels)
        known = "public rows that the target takes for the class" if self._by_class else "public rows of any kind"
        return ClassSamples(
            table,
            labels,
            loss,
            search,
            f"No attack: {known}, drawn at random.",
            self.excluded,
            time.perf_counter() - began,
            warnings=warn_of(self.excluded),
            threat=Threat("nobody", ("answers",) if self._by_class else (), ("public_rows",)),
        )

    def draw_labels(self, n: int, seed: int = 0) -> Tensor:
        """See `FittedInversion.draw_labels`; as often as the target finds them among the kept rows."""
        used = self._chosen.used.double()
        return torch.multinomial(used, n, replacement=True, generator=generator(seed, "public labels"))


class PublicRows(InversionAttack):
    """A baseline that attacks nothing; see `FittedPublicRows`."""

    citation = "Wernqvist and Djeza, Chalmers 2025 (the pseudo-labeled public data of Algorithm 2)"
    is_baseline = True

    def __init__(self, by_class: bool = True, **pseudo_labels: Any) -> None:
        """Settings of `PseudoLabelConfig`.

        Raises:
            UsageError: an unknown setting or a value out of range.
        """
        self.by_class, self.name = by_class, "public_pseudo_labeled" if by_class else "public_random"
        self.title = "Public rows sorted by the model" if by_class else "Public rows at random"
        self.config = self.pseudo_labels = PseudoLabelConfig.read(pseudo_labels, self.name)

    def check(self, observation: ReleasedModel) -> None:
        """See `InversionAttack.check`."""
        rebuild(observation)

    def fit(self, observation: ReleasedModel, seed: int = 0, at: Workplace | None = None) -> FittedPublicRows:
        """See `InversionAttack.fit`."""
        target = rebuild(observation).to((at or Workplace()).device)
        chosen = label_public(observation, target, self.pseudo_labels)
        return FittedPublicRows(observation, target, chosen, self.by_class)

    def options(self) -> dict[str, Any]:
        """See `InversionAttack.options`."""
        return self.pseudo_labels.to_dict()


def label_public(observation: ReleasedModel, target: Target, config: PseudoLabelConfig) -> PseudoLabels:
    """Pseudo-label the public rows by the target.

    Raises:
        ObservationError: no class has enough rows.
    """
    return pseudo_label(target.logits(encode_public(observation, target.encoder)), config)


def encode_public(observation: ReleasedModel, encoder: TableEncoder) -> Tensor:
    """The public rows as the target's input, ``[n, d]``."""
    return encoder.encode(observation.public)


def warn_of(excluded: Mapping[int, str]) -> tuple[str, ...]:
    """One warning where classes could not be attacked."""
    reasons = "; ".join(dict.fromkeys(excluded.values()))
    return (f"{len(excluded)} private classes are left out of this training's figures: {reasons}",) if excluded else ()


_BASELINE = "A baseline, not an attack of the thesis: every attack is compared with it."


INVERSION_ATTACKS.register(
    "public_pseudo_labeled",
    Facts(
        "public rows that the model takes for the class, no generator",
        "Someone who holds public rows and may ask the released model for its answers.",
        ("Public rows that the model takes for the private classes.",),
        (_BASELINE,),
    ),
)(partial(PublicRows, True))

INVERSION_ATTACKS.register(
    "public_random",
    Facts(
        "public rows of any kind, the model unread",
        "Someone who holds public rows and nothing else.",
        ("Public rows of the same columns.",),
        (_BASELINE,),
    ),
)(partial(PublicRows, False))
