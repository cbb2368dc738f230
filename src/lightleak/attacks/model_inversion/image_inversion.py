"""PLG-MI for images (thesis Sec. 4.2, Algorithms 2 and 3): the loop and the search of tables, other players."""

import time
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from lightleak.attacks.model_inversion.attack import MakesClasses, Workplace
from lightleak.attacks.model_inversion.class_sampler import ClassSampler
from lightleak.attacks.model_inversion.gan import ConditionalGAN
from lightleak.attacks.model_inversion.gan_config import GANConfig
from lightleak.attacks.model_inversion.gan_training import train_gan
from lightleak.attacks.model_inversion.image_augmentation import ImageAugmentation
from lightleak.attacks.model_inversion.image_critic import ImageCritic
from lightleak.attacks.model_inversion.image_generator import ImageGenerator
from lightleak.attacks.model_inversion.latent_search import (
    GradientSearchConfig,
    LatentProblem,
    gradient_search,
    random_search,
)
from lightleak.attacks.model_inversion.pseudo_labels import PseudoLabelConfig, PseudoLabels, pseudo_label
from lightleak.attacks.settings import AttackSettings
from lightleak.core.bounds import bounded
from lightleak.core.errors import UsageError
from lightleak.core.seeds import derive_seed, fresh_generator, generator
from lightleak.data.images import from_pixels

IMAGES_PER_CALL = 1024
SEARCHES = ("random", "gradient")


def image_gan_config(**changed: object) -> GANConfig:
    """Settings of thesis Table 4.1. An image carries no label of its own, so that there is no conditioning loss.

    >>> image_gan_config(iterations=500).batch_size
    64
    """
    printed = GANConfig(
        iterations=30_000,
        batch_size=64,
        discriminator_steps=5,
        generator_learning_rate=2e-4,
        discriminator_learning_rate=2e-4,
        generator_decay=0.0,
        discriminator_decay=0.0,
        beta1=0.0,
        latent_dim=128,
        inversion_weight=0.2,
        conditioning_weight=0.0,
    )
    return printed.with_options(**changed)


@dataclass(frozen=True)
class ImageInversionConfig(AttackSettings):
    """How images of the private classes are made.

    Attributes:
        gan: training of the generator; ``inversion_weight`` 0 trains it without the target.
        pseudo_labels: which public images stand for a class.
        gradient: steps of the latent search.
        augment: what happens to a made image before the target sees it.
        augmentations: changed copies that the inversion loss of the training is averaged over.
        generator_widths: see `ImageGenerator`.
        critic_widths: see `ImageCritic`.

    Raises:
        UsageError: on construction, for packs of several images or a conditioning loss.
    """

    owner: ClassVar[str] = "image inversion"

    gan: GANConfig = field(default_factory=image_gan_config)
    pseudo_labels: PseudoLabelConfig = field(default_factory=lambda: PseudoLabelConfig(top_n=30))
    gradient: GradientSearchConfig = field(default_factory=GradientSearchConfig)
    augment: ImageAugmentation = field(default_factory=ImageAugmentation)
    augmentations: int = bounded(2, ge=1)
    generator_widths: tuple[int, ...] = (64, 32, 16)
    critic_widths: tuple[int, ...] = (32, 64)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gan.pac != 1:
            raise UsageError(f"images are judged one by one: pac must be 1, got {self.gan.pac}")


@dataclass(frozen=True)
class ImageSamples:
    """Made images.

    Attributes:
        images: float32 ``[n, c, h, w]`` in [-1, 1], on the CPU.
        labels: LongTensor ``[n]``, the class each was made for.
        loss: ``[n]`` cross-entropy of the target on image and class, in nats.
        before: the same of the image that the search started from.
        search: the latent search.
        seconds: it took.
    """

    images: Tensor
    labels: Tensor
    loss: Tensor
    before: Tensor
    search: str
    seconds: float


class FittedImages(MakesClasses):
    """A trained generator of images.

    Attributes:
        gan: the finished training.
        problem: generator and target, for any latent search.
        chosen: the pseudo-labeled public images.
        public: their pixels, ``[m, c, h, w]``, as `chosen` orders them.
        seconds: of the fit.
    """

    searches = SEARCHES

    def __init__(
        self,
        gan: ConditionalGAN,
        target: nn.Module,
        chosen: PseudoLabels,
        public: Tensor,
        config: ImageInversionConfig,
        seconds: float,
    ) -> None:
        self.gan, self.chosen, self.public, self.seconds = gan, chosen, public, seconds
        self.classes, self.excluded = chosen.classes, chosen.excluded
        self.problem = LatentProblem(gan.generator, nn.Identity(), target)
        self._config = config

    def generate(self, labels: Tensor, seed: int = 0, search: str = "random") -> ImageSamples:
        """Images for the classes ``labels`` (LongTensor ``[n]``); both searches start from the same latent vectors.

        Args:
            labels: classes.
            seed: root of the latent vectors.
            search: ``random``: take them as they come; ``gradient``: Algorithm 3.

        Raises:
            UsageError: an excluded class or an unknown search.
        """
        began = time.perf_counter()
        self.check_request(labels, search)
        config, random = self._config, generator(seed, "latent")
        found = (
            gradient_search(self.problem, labels, random, config.gradient, config.augment)
            if search == "gradient"
            else random_search(self.problem, labels, random)
        )
        with torch.no_grad():
            wanted = labels.to(found.z.device)
            parts = [slice(i, i + IMAGES_PER_CALL) for i in range(0, len(labels), IMAGES_PER_CALL)]
            images = torch.cat([self.problem.generator(found.z[part], wanted[part]).cpu() for part in parts])
        return ImageSamples(images, labels, found.after.cpu(), found.before.cpu(), search, time.perf_counter() - began)


def invert_images(
    target: nn.Module,
    public: Tensor,
    n_classes: int,
    config: ImageInversionConfig | None = None,
    seed: int = 0,
    at: Workplace | None = None,
) -> FittedImages:
    """Train a generator of images that the target takes for its private classes.

    Args:
        target: from images ``[n, c, h, w]`` in [-1, 1] to logits ``[n, n_classes]``; its weights never change.
        public: uint8 images, or float ones in [-1, 1], ``[m, c, h, w]``, of other classes.
        n_classes: classes of the target.
        config: settings.
        seed: root of every random number.
        at: device and folder of checkpoints.

    Raises:
        ObservationError: no class has enough pseudo-labeled images.
        UsageError: images of another kind.
    """
    began = time.perf_counter()
    config, at = config or ImageInversionConfig(), at or Workplace()
    if public.ndim != 4 or not (public.dtype == torch.uint8 or public.is_floating_point()):
        raise UsageError(f"public must be images [m, c, h, w], uint8 or float, got {public.dtype} {list(public.shape)}")
    device = torch.device(at.device)
    target = target.to(device).eval().requires_grad_(False)
    chosen = pseudo_label(image_logits(target, public, device), config.pseudo_labels)
    rows = as_floats(public[chosen.rows])
    sampler = ClassSampler(rows, chosen.labels, n_classes, config.gan.balance)
    shape = (rows.shape[1], rows.shape[2], rows.shape[3])
    with fresh_generator(derive_seed(seed, "weights")):
        player = ImageGenerator(shape, n_classes, config.gan.latent_dim, config.generator_widths)
        critic = ImageCritic(shape, n_classes, config.critic_widths)
    classify = target if config.gan.inversion_weight else None
    gan = ConditionalGAN(
        player,
        critic,
        sampler,
        config.gan,
        classify,
        config.augment,
        config.augmentations,
        seed=derive_seed(seed, "gan"),
    )
    train_gan(gan, at)
    return FittedImages(gan, target, chosen, rows, config, time.perf_counter() - began)


def as_floats(images: Tensor) -> Tensor:
    """Images in [-1, 1]; bytes are converted, floats are returned unchanged."""
    return from_pixels(images) if images.dtype == torch.uint8 else images.float()


@torch.no_grad()
def image_logits(network: nn.Module, images: Tensor, device: torch.device | str = "cpu") -> Tensor:
    """Logits ``[n, n_classes]`` of bytes or floats ``[n, c, h, w]``, in parts, on the CPU."""
    parts = images.split(IMAGES_PER_CALL)
    return torch.cat([network(as_floats(part).to(device)).float().cpu() for part in parts])
