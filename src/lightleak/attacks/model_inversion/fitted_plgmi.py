"""A trained generator of PLG-MI, and the rows that it makes."""

import time
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from lightleak.attacks.model_inversion.attack import FittedInversion
from lightleak.attacks.model_inversion.augmentation import AugmentationConfig, TableAugmentation
from lightleak.attacks.model_inversion.class_sampler import ClassSampler
from lightleak.attacks.model_inversion.ctgan_model import as_ctgan
from lightleak.attacks.model_inversion.gan import ConditionalGAN
from lightleak.attacks.model_inversion.inversion_loss import cross_entropy
from lightleak.attacks.model_inversion.latent_search import (
    GradientSearchConfig,
    LatentProblem,
    LatentSearch,
    gradient_search,
    random_search,
)
from lightleak.attacks.model_inversion.pseudo_labels import PseudoLabels
from lightleak.attacks.model_inversion.public_rows import warn_of
from lightleak.attacks.model_inversion.released import Target
from lightleak.attacks.model_inversion.table_transform import ModeTransform, TableTransform
from lightleak.attacks.model_inversion.tabular_generator import TabularGenerator
from lightleak.attacks.model_inversion.tpe_search import TPESearchConfig, tpe_search
from lightleak.core.class_samples import ClassSamples
from lightleak.core.errors import UnsupportedError
from lightleak.core.seeds import generator
from lightleak.core.threat_model import Threat


@dataclass(frozen=True)
class Searches:
    """Settings of the latent searches."""

    gradient: GradientSearchConfig
    tpe: TPESearchConfig
    augmentation: AugmentationConfig


class FittedPLGMI(FittedInversion):
    """A trained generator and what turns its samples into rows.

    Attributes:
        gan: the finished training.
        transform: between table rows and generator space.
        target: network and encoder.
    """

    def __init__(
        self,
        gan: ConditionalGAN,
        transform: TableTransform,
        bridge: nn.Module,
        target: Target,
        chosen: PseudoLabels,
        sampler: ClassSampler,
        settings: Searches,
        augment: TableAugmentation | None,
        threat: Threat,
        seconds: float,
    ) -> None:
        self.gan, self.transform, self.target = gan, transform, target
        self.excluded, self.classes = dict(chosen.excluded), chosen.classes
        self.searches = ("random", "softmax", *(["gradient"] if target.white_box else []), "tpe", "random_best")
        self.losses, self.pseudo_labels, self.seconds = gan.losses(), chosen.summary(), seconds
        self._generator = cast(TabularGenerator, gan.generator)
        self._share, self._settings, self._threat = sampler.share.cpu(), settings, threat
        self._augment = augment
        width = transform.width
        self.problem = LatentProblem(self._generator, lambda h: bridge(h[..., :width]), target.network)

    @property
    def device(self) -> torch.device:
        """Device of the generator."""
        return next(self._generator.parameters()).device

    def generate(self, labels: Tensor, seed: int = 0, search: str = "random") -> ClassSamples:
        """Rows for the classes ``labels``.

        ``random``: random latent vectors, and categories drawn as CTGAN draws them, by Gumbel noise. ``softmax``:
        random latent vectors and the likeliest categories; the start of the searches, and their control. ``gradient``
        (thesis Algorithm 5) and ``tpe`` (Sec. 4.3.4) search from there for vectors that the target is sure of;
        ``random_best`` keeps the best of as many random vectors as ``tpe`` tries.
        """
        began = time.perf_counter()
        self.check_request(labels, search)
        random, wanted = generator(seed, "latent"), labels.to(self.device)  # every search starts from the same vectors
        details: dict[str, float] = {}
        noise = None
        if search in ("random", "softmax"):
            z = self.problem.draw(len(labels), random)
            details = {"loss_after": float(self.problem.losses(z, wanted).mean())} if search == "softmax" else {}
            noise = self._generator.draw_noise(len(labels), random).to(self.device) if search == "random" else None
        else:
            found = self._search(search, wanted, random)
            z = found.z
            details = {"loss_before": float(found.before.mean()), "loss_after": float(found.after.mean())}
        with torch.no_grad():
            sample = self._generator(z, wanted, noise)
        rows = self.transform.decode(sample[:, : self.transform.width].cpu())
        loss = cross_entropy(self.target.logits(self.target.encoder.encode(rows)), labels)
        seconds = time.perf_counter() - began
        return ClassSamples(
            rows,
            labels,
            loss,
            search,
            self._threat.describe(),
            self.excluded,
            seconds,
            details,
            warn_of(self.excluded),
            self._threat,
        )

    def _search(self, name: str, labels: Tensor, random: torch.Generator) -> LatentSearch:
        settings = self._settings
        if name == "gradient":
            return gradient_search(self.problem, labels, random, settings.gradient, self._augment)
        if name == "tpe":
            return tpe_search(self.problem, labels, random, settings.tpe)
        return random_search(self.problem, labels, random, settings.tpe.trials)

    def draw_labels(self, n: int, seed: int = 0) -> Tensor:
        """See `FittedInversion.draw_labels`; as often as the generator was trained on them."""
        return torch.multinomial(self._share, n, replacement=True, generator=generator(seed, "labels"))

    def to_ctgan(self) -> Any:
        """Return the generator as a ``ctgan.CTGAN``, which ctgan itself saves, loads and samples from.

        Raises:
            UnsupportedError: the bridge is ``shared``; CTGAN has no such transform.
        """
        if not isinstance(self.transform, ModeTransform):
            raise UnsupportedError("only a generator with bridge 'exact' can be saved as a CTGAN, got 'shared'")
        return as_ctgan(self._generator, self.transform, self._share)
