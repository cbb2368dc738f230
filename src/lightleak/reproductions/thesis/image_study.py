"""A study of PLG-MI on images: what is private, which networks, how the generator is trained (thesis Sec. 4.4.1)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, get_args

from lightleak.attacks.model_inversion.image_augmentation import ImageAugmentation
from lightleak.attacks.model_inversion.image_inversion import ImageInversionConfig, image_gan_config
from lightleak.attacks.model_inversion.latent_search import GradientSearchConfig
from lightleak.attacks.model_inversion.pseudo_labels import PseudoLabelConfig
from lightleak.core.errors import UsageError
from lightleak.data.celeba import PrivateChoice, load_celeba
from lightleak.data.images import ImageTask, load_digits_images, split_by_class
from lightleak.data.sources import dataset_folder

ImageDataset = Literal["digits", "celeba"]
PRIVATE_DIGITS = range(5)


@dataclass(frozen=True)
class ImageStudy:
    """Settings of one dataset.

    Attributes:
        dataset: ``digits`` (scikit-learn's: 0 to 4 are private, 5 to 9 public) or ``celeba``.
        networks: ours by the name that the thesis's tables print.
        evaluation: network that judges.
        attack: training and search; the baseline without the target differs in ``inversion_weight`` alone.
        epochs: of each network.
        batch_size: of each network.
        learning_rate: Adam's, of each network.
        test_fraction: share of private images held out.
        per_class: images made of each class.
        shown: classes in the picture grid, at most.
        choice: private identities of CelebA.
        data_folder: holds the folder ``celeba``.
    """

    dataset: ImageDataset
    networks: Mapping[str, str]
    evaluation: str
    attack: ImageInversionConfig = field(default_factory=ImageInversionConfig)
    epochs: int = 20
    batch_size: int = 64
    learning_rate: float = 1e-3
    test_fraction: float = 0.1
    per_class: int = 60
    shown: int = 10
    choice: PrivateChoice = "first"
    data_folder: str | None = None

    def task(self, seed: int) -> ImageTask:
        """Private and public images of one seed; read once per process.

        Raises:
            DataError: files are missing or damaged.
            UnsupportedError: a package is missing.
        """
        return _task(self.dataset, self.choice, self.data_folder, self.test_fraction, seed)


DIGITS = ImageStudy(
    "digits",
    {"resnet-152": "resnet-14", "resnet-18": "resnet-6"},
    "resnet-10",
    ImageInversionConfig(
        image_gan_config(
            iterations=500,
            discriminator_steps=2,
            generator_learning_rate=1e-3,
            discriminator_learning_rate=1e-3,
            latent_dim=64,
        ),
        PseudoLabelConfig(top_n=30),
        GradientSearchConfig(steps=100),
    ),
    test_fraction=0.25,
)
"""Table 4.1 but for what 8 x 8 pixels and two minutes ask: 500 steps instead of 30,000, with 2 critic steps instead of
5, five times the learning rate, and half the latent vector."""

CELEBA = ImageStudy(
    "celeba",
    {"resnet-152": "resnet-152", "resnet-18": "resnet-18"},
    "resnet-50",
    ImageInversionConfig(
        augment=ImageAugmentation(mirror=True),
        generator_widths=(512, 256, 128, 64, 64),
        critic_widths=(64, 128, 256, 512),
    ),
    epochs=100,
    batch_size=128,
)
"""Table 4.1 as it stands. The networks begin with random weights, the thesis's with those of ImageNet."""


def image_study(
    dataset: str | None = None,
    choice: PrivateChoice = "first",
    data_folder: str | None = None,
    iterations: int | None = None,
) -> ImageStudy:
    """The study of a dataset; None is `DIGITS`, which needs no files.

    Raises:
        UsageError: an unknown dataset.
    """
    studies = {"digits": DIGITS, "celeba": CELEBA}
    if (dataset or "digits") not in studies:
        raise UsageError(f"dataset must be one of {', '.join(get_args(ImageDataset))}, got {dataset!r}")
    study = replace(studies[dataset or "digits"], choice=choice, data_folder=data_folder)
    if iterations is None:
        return study
    return replace(study, attack=replace(study.attack, gan=replace(study.attack.gan, iterations=iterations)))


@lru_cache(maxsize=2)
def _task(
    dataset: ImageDataset, choice: PrivateChoice, data_folder: str | None, test_fraction: float, seed: int
) -> ImageTask:
    if dataset == "digits":
        return split_by_class("digits", load_digits_images(), PRIVATE_DIGITS, test_fraction, seed)
    return load_celeba(dataset_folder("celeba", data_folder), choice=choice, test_fraction=test_fraction, seed=seed)
