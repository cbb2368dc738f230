"""What every model inversion attack looks like from outside."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor

from lightleak.attacks.model_inversion.pseudo_labels import PseudoLabelConfig
from lightleak.core.class_samples import ClassSamples
from lightleak.core.errors import UsageError
from lightleak.core.registry import Registry
from lightleak.core.released_model import ReleasedModel
from lightleak.core.threat_model import Aim

Progress = Callable[[float], None]
"""Called with the fraction of the work done since the last call."""


class MakesClasses:
    """What has learned to make samples of classes.

    Attributes:
        excluded: classes without enough pseudo-labeled public data, by index, with the reason.
        classes: indices of the classes that can be asked for, ascending.
        searches: latent searches it knows; the first is its own.
    """

    excluded: Mapping[int, str]
    classes: Sequence[int]
    searches: Sequence[str]

    def check_request(self, labels: Tensor, search: str) -> None:
        """Refuse what was not fitted.

        Raises:
            UsageError: an excluded class or an unknown search.
        """
        if search not in self.searches:
            raise UsageError(f"search must be one of {', '.join(self.searches)}, got {search!r}")
        if odd := sorted(set(labels.tolist()) - set(self.classes)):
            reasons = [self.excluded.get(label) for label in odd]
            raise UsageError(f"classes must be among {list(self.classes)}, got {odd}: {reasons}")


class FittedInversion(MakesClasses, ABC):
    """An attack that has learned all it will from a released model, and makes rows for any class.

    Attributes:
        losses: training curves by name, one value per logged iteration, ``iteration`` among them; empty where nothing
            is trained.
        pseudo_labels: one entry per class: ``class`` (index), ``public_rows`` (rows whose largest logit it is),
            ``used`` (rows kept) and ``excluded`` (the reason, or None).
        seconds: wall time of the fit.
        warnings: what the reader must know.
    """

    losses: Mapping[str, Sequence[float]]
    pseudo_labels: Sequence[Mapping[str, Any]]
    seconds: float
    warnings: Sequence[str] = ()

    @abstractmethod
    def generate(self, labels: Tensor, seed: int = 0, search: str = "random") -> ClassSamples:
        """Rows for the classes ``labels`` (LongTensor ``[n]``); the same seed gives the same rows.

        Raises:
            UsageError: an excluded class or an unknown search.
        """

    @abstractmethod
    def draw_labels(self, n: int, seed: int = 0) -> Tensor:
        """LongTensor ``[n]`` of classes as often as the attack met them, for statistics over all classes at once."""


@dataclass(frozen=True)
class Workplace:
    """Device, checkpoints and progress of a long fit.

    Attributes:
        device: where tensors live.
        folder: directory of checkpoints; a fit resumes from its own. None writes none.
        progress: called with the fraction of the work done since its last call.
    """

    device: torch.device | str = "cpu"
    folder: Path | None = None
    progress: Progress | None = field(default=None, compare=False)


class InversionAttack(ABC):
    """An attack on a released model: ``fit(observation).generate(labels) -> ClassSamples``. It never sees private rows.

    Attributes:
        name: registry name.
        citation: the paper.
        title: the field's name for it, for reports; empty where `name` says it.
        is_baseline: whether it reads nothing of the released model but its answers to public rows.
        aims: what it tests a model for; a baseline tests nothing.
        pseudo_labels: which public rows it learns from; those that its figures are compared with are chosen likewise.
        needs_gradients_of_target: whether it cannot work without gradients of the released model.
        has_latent_space: whether its rows are generated from latent vectors, which can be searched.
        opens_the_model: whether it uses gradients of the released model where there are any.
        trainer: arguments of ``lightning.Trainer`` for what it trains.
    """

    name: str
    citation: str
    title: str = ""
    is_baseline: bool = False
    aims: ClassVar[tuple[Aim, ...]] = ("model_inversion",)
    has_latent_space: ClassVar[bool] = False
    pseudo_labels: PseudoLabelConfig = PseudoLabelConfig()

    trainer: Mapping[str, Any] = MappingProxyType({})

    @property
    def needs_gradients_of_target(self) -> bool:
        """See above."""
        return False

    @property
    def opens_the_model(self) -> bool:
        """See above."""
        return False

    @abstractmethod
    def check(self, observation: ReleasedModel) -> None:
        """Raise `ObservationError` or `UnsupportedError` before any work where the observation cannot be served."""

    @abstractmethod
    def fit(self, observation: ReleasedModel, seed: int = 0, at: Workplace | None = None) -> FittedInversion:
        """Learn from the model and the public rows; the same observation and seed give the same result.

        Raises:
            ObservationError: see `check`.
        """

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """The settings that produced the rows, JSON-ready."""

    def run(
        self, observation: ReleasedModel, seed: int = 0, per_class: int = 100, search: str = "random"
    ) -> ClassSamples:
        """Fit and make ``per_class`` rows of every class that can be attacked."""
        fitted = self.fit(observation, seed)
        return fitted.generate(torch.tensor(fitted.classes).repeat_interleave(per_class), seed, search)


SEES = (
    "Someone who holds the released model, whose weights and gradients are open to them, with the statistics that its "
    "input is scaled with, and public rows of the same columns that belong to none of the private persons."
)
"""The threat model of the attacks that open the model."""

INVERSION_ATTACKS: Registry[Callable[..., InversionAttack]] = Registry("model inversion attack")
"""Attack factories by name; called with the settings to change."""
