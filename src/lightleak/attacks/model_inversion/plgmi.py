"""PLG-MI for tables (thesis Chapter 4): a conditional GAN on pseudo-labeled rows, led by the target."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightleak.attacks.model_inversion.attack import (
    INVERSION_ATTACKS,
    SEES,
    FittedInversion,
    InversionAttack,
    Workplace,
)
from lightleak.attacks.model_inversion.augmentation import TableAugmentation
from lightleak.attacks.model_inversion.bridge import Categories, Numbers, make_bridge
from lightleak.attacks.model_inversion.class_sampler import ClassSampler
from lightleak.attacks.model_inversion.critic import PackedCritic
from lightleak.attacks.model_inversion.gan import ConditionalGAN
from lightleak.attacks.model_inversion.gan_config import GANConfig
from lightleak.attacks.model_inversion.gan_training import train_gan
from lightleak.attacks.model_inversion.inversion_loss import cross_entropy
from lightleak.attacks.model_inversion.latent_search import (
    GradientSearchConfig,
    LatentProblem,
    LatentSearch,
    gradient_search,
    random_search,
)
from lightleak.attacks.model_inversion.pseudo_labels import PseudoLabelConfig, PseudoLabels
from lightleak.attacks.model_inversion.public_rows import check_request, label_public, warn_of
from lightleak.attacks.model_inversion.released import Target, rebuild
from lightleak.attacks.model_inversion.search_augmentation import AugmentationConfig, make_augmentation
from lightleak.attacks.model_inversion.shared_transform import SharedTransform
from lightleak.attacks.model_inversion.table_transform import ModeTransform, TableTransform
from lightleak.attacks.model_inversion.tabular_generator import TabularGenerator
from lightleak.attacks.model_inversion.tpe_search import TPESearchConfig, tpe_search
from lightleak.attacks.settings import require_one_of
from lightleak.core.class_samples import ClassSamples
from lightleak.core.errors import UnsupportedError, UsageError
from lightleak.core.facts import Facts
from lightleak.core.released_model import ReleasedModel
from lightleak.core.seeds import derive_seed, generator
from lightleak.core.threat_model import Threat

BridgeKind = Literal["exact", "shared"]


class TargetOfSample(nn.Module):
    """From samples in generator space to the target's logits: the label block dropped, f_inv, the target."""

    def __init__(self, bridge: nn.Module, network: nn.Module, width: int) -> None:
        super().__init__()
        self.bridge, self.network, self.width = bridge, network, width

    def forward(self, sample: Tensor) -> Tensor:
        """``[n, w + C]`` to ``[n, C]``."""
        logits: Tensor = self.network(self.bridge(sample[:, : self.width]))
        return logits


@dataclass(frozen=True)
class Searches:
    """Settings of the latent searches."""

    gradient: GradientSearchConfig
    tpe: TPESearchConfig
    augmentation: AugmentationConfig


class FittedPLGMI(FittedInversion):
    """A trained generator with all that turns its samples into rows.

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
        """Where the generator is."""
        return next(self._generator.parameters()).device

    def generate(self, labels: Tensor, seed: int = 0, search: str = "random") -> ClassSamples:
        """Rows for the classes ``labels``.

        ``random``: random latent vectors, and categories drawn as CTGAN draws them, by Gumbel noise. ``softmax``:
        random latent vectors and the likeliest categories; the start of the searches, and their control. ``gradient``
        (thesis Algorithm 5) and ``tpe`` (Sec. 4.3.4) search from there for vectors that the target is sure of;
        ``random_best`` keeps the best of as many random vectors as ``tpe`` tries.
        """
        began = time.perf_counter()
        check_request(self, labels, search)
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


TITLES = {
    "plgmi": "PLG-MI",
    "plgmi_black_box": "PLG-MI, black box",
    "gan_without_target": "Generator without the model's loss",
}


class PLGMI(InversionAttack):
    """The attack; see the module."""

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

    def fit(self, observation: ReleasedModel, seed: int = 0, at: Workplace | None = None) -> FittedPLGMI:
        """See `InversionAttack.fit`."""
        self.check(observation)
        at, began = at or Workplace(), time.perf_counter()
        target = rebuild(observation).to(at.device)
        if not self.opens_the_model:
            target = replace(target, white_box=False)
        chosen = label_public(observation, target, self.pseudo_labels)
        public = observation.public.iloc[chosen.rows.numpy()].reset_index(drop=True)
        transform: TableTransform = (
            SharedTransform(target.encoder)
            if self.bridge == "shared"
            else ModeTransform.fit(public, target.encoder.schema, derive_seed(seed, "transform"))
        )
        rows = transform.encode(public, derive_seed(seed, "modes"))
        rows = torch.cat([rows, F.one_hot(chosen.labels, target.n_classes).to(rows.dtype)], dim=1)
        sampler = ClassSampler(rows, chosen.labels, target.n_classes, self.gan.balance)
        bridge = make_bridge(transform, target.encoder, self.categories, self.numbers).to(at.device)
        gan = self._players(transform, target, sampler, bridge, derive_seed(seed, "gan"))
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
        """See `InversionAttack.options`."""
        return {
            "bridge": self.bridge,
            "categories": self.categories,
            "numbers": self.numbers,
            **self.gan.to_dict(),
            "pseudo_labels": self.pseudo_labels.to_dict(),
            "gradient": self.searches.gradient.to_dict(),
            "tpe": self.searches.tpe.to_dict(),
            "augmentation": self.searches.augmentation.to_dict(),
        }

    def _players(
        self,
        transform: TableTransform,
        target: Target,
        sampler: ClassSampler,
        bridge: nn.Module,
        seed: int,
    ) -> ConditionalGAN:
        config = self.gan
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive_seed(seed, "weights"))
            player = TabularGenerator(
                transform.segments, target.n_classes, config.latent_dim, config.generator_dim, config.temperature
            )
            critic = PackedCritic(
                player.segments.width, target.n_classes, config.discriminator_dim, config.pac, config.dropout
            )
        classify = TargetOfSample(bridge, target.network, transform.width) if config.inversion_weight else None
        return ConditionalGAN(player, critic, sampler, config, classify, seed=seed)

    def _threat(self, target: Target) -> Threat:
        return Threat(
            who="model_holder",
            sees=("weights",) if target.white_box else ("answers",),
            knows=("input_statistics", "public_rows"),
            does=() if self.gan.inversion_weight else ("ignores_gradient",),
        )


NEEDS = (
    "Public rows that the model takes for the private classes; a class of fewer than `pseudo_labels.minimum` is "
    "excluded.",
)
_PUBLISHED = (
    "Our own generator, critic and transform, tested against ctgan's; nothing of ctgan is needed to run them.",
    "The thesis sets no least number of public rows per class; two of its hundred classes had none "
    "(`pseudo_labels.minimum`).",
    "The gradient search returns the best vector on its way; the thesis returns the last (`gradient.keep_best: "
    "false`).",
    "The thesis names augmentations in its search and does not say which; both of ours are off (`augmentation`).",
)


def _settings(gan: GANConfig) -> tuple[object, ...]:
    return (
        PLGMI.__init__,
        gan,
        ("pseudo_labels", PseudoLabelConfig),
        ("gradient", GradientSearchConfig),
        ("tpe", TPESearchConfig),
        ("augmentation", AugmentationConfig),
    )


@INVERSION_ATTACKS.register(
    "plgmi",
    Facts(
        "trains a conditional generator led by the released model's gradient",
        SEES,
        (*NEEDS, "A model that gives gradients, as networks do and trees do not."),
        (
            "Defaults of the generator were chosen on public rows alone; those of Table 5.4 are kept in "
            "`configs/thesis-setting2.yaml`. The weight of the inversion loss is the thesis's, 1; on Diabetes-130 it "
            "drove rows away from anything but the target (`inversion_weight`).",
            *_PUBLISHED,
        ),
        settings=_settings(GANConfig()),
    ),
)
def plgmi(**settings: Any) -> PLGMI:
    """The attack of the thesis."""
    return PLGMI("plgmi", **settings)


@INVERSION_ATTACKS.register(
    "gan_without_target",
    Facts(
        "the same generator trained without the model's gradient, a control",
        SEES,
        NEEDS,
        ("Not an attack of the thesis but its control: what public rows alone give.", *_PUBLISHED),
        settings=_settings(GANConfig(inversion_weight=0.0)),
    ),
)
def gan_without_target(**settings: Any) -> PLGMI:
    """The same generator, trained on the pseudo-labeled rows without the target's gradient."""
    return PLGMI("gan_without_target", **_without_inversion("gan_without_target", settings))


@INVERSION_ATTACKS.register(
    "plgmi_black_box",
    Facts(
        "PLG-MI with the model's answers alone, trees included",
        SEES.replace("whose weights and gradients are open to them, ", "or may ask it for its answers alone, "),
        NEEDS,
        ("The generator is trained without the model's gradient; the search asks the model (`tpe`).", *_PUBLISHED),
        settings=_settings(GANConfig(inversion_weight=0.0)),
    ),
)
def plgmi_black_box(**settings: Any) -> PLGMI:
    """What can be done with a model's answers alone, for trees as well (Sec. 6.7.6); search with ``tpe``."""
    return PLGMI("plgmi_black_box", **_without_inversion("plgmi_black_box", settings))


def _without_inversion(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    if settings.get("inversion_weight"):
        raise UsageError(
            f"{name} has no inversion loss: inversion_weight must be 0, got {settings['inversion_weight']}"
        )
    return {**settings, "inversion_weight": 0.0}
