"""PLG-MI for tables (thesis Chapter 4): a conditional GAN on pseudo-labeled rows, led by the target."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import nn

from lightleak.attacks.model_inversion.attack import InversionAttack, Workplace
from lightleak.attacks.model_inversion.augmentation import AugmentationConfig, make_augmentation
from lightleak.attacks.model_inversion.bridge import Categories, Numbers, make_bridge
from lightleak.attacks.model_inversion.class_sampler import ClassSampler
from lightleak.attacks.model_inversion.critic import PackedCritic
from lightleak.attacks.model_inversion.ctgan_model import load_ctgan, require_fitted, start_from, transform_of
from lightleak.attacks.model_inversion.fitted_plgmi import FittedPLGMI, Searches
from lightleak.attacks.model_inversion.gan import ConditionalGAN
from lightleak.attacks.model_inversion.gan_config import GANConfig
from lightleak.attacks.model_inversion.gan_training import train_gan
from lightleak.attacks.model_inversion.latent_search import GradientSearchConfig
from lightleak.attacks.model_inversion.pseudo_labels import PseudoLabelConfig
from lightleak.attacks.model_inversion.public_rows import label_public
from lightleak.attacks.model_inversion.released import Target, TargetOfSample, rebuild
from lightleak.attacks.model_inversion.shared_transform import SharedTransform
from lightleak.attacks.model_inversion.table_transform import ModeTransform, TableTransform
from lightleak.attacks.model_inversion.tabular_generator import TabularGenerator
from lightleak.attacks.model_inversion.tpe_search import TPESearchConfig
from lightleak.core.bounds import require_one_of
from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.core.released_model import ReleasedModel
from lightleak.core.seeds import derive_seed, fresh_generator
from lightleak.core.threat_model import Threat

BridgeKind = Literal["exact", "shared"]


WIDTHS = ("latent_dim", "generator_dim")
"""Settings that a CTGAN to start from brings with it."""

TITLES = {
    "plgmi": "PLG-MI",
    "plgmi_black_box": "PLG-MI, black box",
    "gan_without_target": "Generator without the model's loss",
}


class PLGMI(InversionAttack):
    """PLG-MI: train a generator on pseudo-labeled public rows, led by the target; then search its latent space."""

    citation = (
        "Wernqvist and Djeza: Reconstructing Private Data from Trained Deep Neural Networks, Chalmers 2025; "
        "Yuan et al., AAAI 2023"
    )
    has_latent_space = True

    def __init__(
        self,
        name: str = "plgmi",
        bridge: BridgeKind = "exact",
        categories: Categories = "soft",
        numbers: Numbers = "straight_through",
        pseudo_labels: Mapping[str, Any] | PseudoLabelConfig | None = None,
        gradient: Mapping[str, Any] | GradientSearchConfig | None = None,
        tpe: Mapping[str, Any] | TPESearchConfig | None = None,
        augmentation: Mapping[str, Any] | AugmentationConfig | None = None,
        trainer: Mapping[str, Any] | None = None,
        start_from: Any = None,
        **gan: Any,
    ) -> None:
        """Check the settings.

        Args:
            name: registry name.
            bridge: ``exact``: CTGAN's own transform of public rows, and f_inv between it and the target's input
                (Algorithm 5); ``shared``: the generator works in the target's input space, and f_inv is the identity
                (Sec. 6.7.5).
            categories: what the target sees of a category in training: the ``soft`` activation, or the hard choice with
                the gradient of the soft one (``straight_through``).
            numbers: what it sees of a number through the exact bridge: the decoded one with the gradient of the mixture
                of its modes (``straight_through``), or that mixture (``soft``).
            pseudo_labels: settings of `PseudoLabelConfig`.
            gradient: settings of `GradientSearchConfig`.
            tpe: settings of `TPESearchConfig`.
            augmentation: settings of `AugmentationConfig`, for the gradient search.
            trainer: further arguments of ``lightning.Trainer``.
            start_from: a fitted ``ctgan.CTGAN``, or a file that it was saved to, whose transform, widths and weights
                the generator starts with (bridge ``exact`` only, without ``latent_dim`` and ``generator_dim``). The
                file is a pickle: reading it runs the code in it.
            **gan: settings of `GANConfig`.

        Raises:
            UsageError: an unknown setting or a value out of range.
        """
        require_one_of(f"{name}: bridge", bridge, get_args(BridgeKind))
        require_one_of(f"{name}: categories", categories, get_args(Categories))
        require_one_of(f"{name}: numbers", numbers, get_args(Numbers))
        self.name, self.title = name, TITLES.get(name, "")
        self.bridge, self.trainer = bridge, dict(trainer or {})
        self.categories, self.numbers = categories, numbers
        if start_from is not None and bridge == "shared":
            raise UsageError(f"{name}: start_from needs bridge 'exact', as a CTGAN has a transform of its own")
        if start_from is not None and (given := [one for one in WIDTHS if one in gan]):
            raise UsageError(f"{name}: {' and '.join(given)} cannot be set with start_from, whose CTGAN has its own")
        self.start_from = start_from
        self.gan = GANConfig.read(gan, name)
        self.pseudo_labels = PseudoLabelConfig.read(pseudo_labels, f"{name}: pseudo_labels")
        self.searches = Searches(
            GradientSearchConfig.read(gradient, f"{name}: gradient"),
            TPESearchConfig.read(tpe, f"{name}: tpe"),
            AugmentationConfig.read(augmentation, f"{name}: augmentation"),
        )

    @property
    def needs_gradients_of_target(self) -> bool:
        """The inversion loss trains the generator on them."""
        return bool(self.gan.inversion_weight)

    @property
    def opens_the_model(self) -> bool:
        """Whether it takes gradients where it can get them."""
        return self.name != "plgmi_black_box"

    def check(self, observation: ReleasedModel) -> None:
        """See `InversionAttack.check`.

        Raises:
            UnsupportedError: the inversion loss needs gradients that this model does not give.
        """
        target = rebuild(observation)
        if self.needs_gradients_of_target and not target.white_box:
            raise UnsupportedError(
                f"{self.name} needs gradients of the target to train its generator; this model provides none. Use "
                "'plgmi_black_box', or inversion_weight 0"
            )
        if (ctgan := self._ctgan()) is not None:
            transform_of(ctgan, observation.public, target.encoder.schema)

    def fit(self, observation: ReleasedModel, seed: int = 0, at: Workplace | None = None) -> FittedPLGMI:
        """See `InversionAttack.fit`."""
        self.check(observation)
        at, began = at or Workplace(), time.perf_counter()
        target = rebuild(observation).to(at.device)
        if not self.opens_the_model:
            target = replace(target, white_box=False)
        chosen = label_public(observation, target, self.pseudo_labels)
        public = observation.public.iloc[chosen.rows.numpy()].reset_index(drop=True)
        ctgan, schema = self._ctgan(), target.encoder.schema
        transform: TableTransform
        if self.bridge == "shared":
            transform = SharedTransform(target.encoder)
        elif ctgan is not None:
            transform = transform_of(ctgan, public, schema)
        else:
            transform = ModeTransform.fit(public, schema, derive_seed(seed, "transform"))
        rows = transform.encode(public, derive_seed(seed, "modes"))
        rows = torch.cat([rows, F.one_hot(chosen.labels, target.n_classes).to(rows.dtype)], dim=1)
        sampler = ClassSampler(rows, chosen.labels, target.n_classes, self.gan.balance)
        bridge = make_bridge(transform, target.encoder, self.categories, self.numbers).to(at.device)
        gan = self._players(transform, target, sampler, bridge, derive_seed(seed, "gan"), ctgan)
        before = time.perf_counter() - began
        training = train_gan(gan, at, self.trainer)
        return FittedPLGMI(
            gan,
            transform,
            bridge,
            target,
            chosen,
            sampler,
            self.searches,
            make_augmentation(
                self.searches.augmentation, target.encoder, public, derive_seed(seed, "augmentation"), at.device
            ),
            self._threat(target),
            before + training,
        )

    def options(self) -> dict[str, Any]:
        """See `InversionAttack.options`; the widths of a CTGAN that it starts from are those of that file."""
        own = WIDTHS if self.start_from is not None else ()
        return {
            "bridge": self.bridge,
            "categories": self.categories,
            "numbers": self.numbers,
            **{name: value for name, value in self.gan.to_dict().items() if name not in own},
            "pseudo_labels": self.pseudo_labels.to_dict(),
            "gradient": self.searches.gradient.to_dict(),
            "tpe": self.searches.tpe.to_dict(),
            "augmentation": self.searches.augmentation.to_dict(),
            **({} if self.start_from is None else {"start_from": str(self.start_from)}),
        }

    def _ctgan(self) -> Any:
        """The model to start from, or None."""
        if isinstance(self.start_from, str | Path):
            return load_ctgan(str(self.start_from))
        return None if self.start_from is None else require_fitted(self.start_from)

    def _players(
        self,
        transform: TableTransform,
        target: Target,
        sampler: ClassSampler,
        bridge: nn.Module,
        seed: int,
        ctgan: Any,
    ) -> ConditionalGAN:
        config = self.gan
        if ctgan is not None:
            widths = tuple(ctgan._generator_dim)
            config = config.with_options(latent_dim=ctgan._embedding_dim, generator_dim=widths)
        with fresh_generator(derive_seed(seed, "weights")):
            player = TabularGenerator(
                transform.segments, target.n_classes, config.latent_dim, config.generator_dim, config.temperature
            )
            critic = PackedCritic(
                player.segments.width, target.n_classes, config.discriminator_dim, config.pac, config.dropout
            )
        if ctgan is not None:
            start_from(player, ctgan, target.encoder.schema)
        classify = TargetOfSample(bridge, target.network, transform.width) if config.inversion_weight else None
        return ConditionalGAN(player, critic, sampler, config, classify, seed=seed)

    def _threat(self, target: Target) -> Threat:
        return Threat(
            who="model_holder",
            sees=("weights",) if target.white_box else ("answers",),
            knows=("input_statistics", "public_rows"),
            does=() if self.gan.inversion_weight else ("ignores_gradient",),
        )
