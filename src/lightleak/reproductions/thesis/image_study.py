"""A study of PLG-MI on images: what is private, which networks, how the generator is trained (thesis Sec. 4.4.1)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, get_args

from lightleak.attacks.model_inversion.image_augmentation import ImageAugmentation
from lightleak.attacks.model_inversion.image_inversion import ImageInversionConfig, image_gan_config
from lightleak.core.errors import UsageError
from lightleak.data.celeba import PrivateChoice, load_celeba
from lightleak.data.images import ImageTask, load_digits_images, split_by_class
from lightleak.data.sources import dataset_folder
from lightleak.reproductions.paper.settings import paper_settings, with_tuples

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


def _read_study(dataset: ImageDataset) -> ImageStudy:
    settings = with_tuples(paper_settings("thesis")["images"][dataset])
    attack = settings.pop("attack")
    attack["gan"] = image_gan_config(**attack.get("gan", {}))
    attack["augment"] = ImageAugmentation(**attack.get("augment", {}))
    return ImageStudy(dataset, attack=ImageInversionConfig(**attack), **settings)


STUDIES: dict[str, ImageStudy] = {name: _read_study(name) for name in get_args(ImageDataset)}
"""Studies by dataset; the reasons for their values are in ``reproductions/paper/thesis.yaml``."""


def image_study(
    dataset: str | None = None,
    choice: PrivateChoice = "first",
    data_folder: str | None = None,
    iterations: int | None = None,
) -> ImageStudy:
    """The study of a dataset; None is ``digits``, which needs no files.

    Raises:
        UsageError: an unknown dataset.
    """
    name = dataset or "digits"
    if name not in STUDIES:
        raise UsageError(f"dataset must be one of {', '.join(get_args(ImageDataset))}, got {dataset!r}")
    study = replace(STUDIES[name], choice=choice, data_folder=data_folder)
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
