"""A study of PLG-MI on images (thesis Sec. 4.4.1): its settings, and its networks, trained and kept."""

import math
import time
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from torch.utils.data import TensorDataset

from lightleak.attacks.model_inversion.image_inversion import ImageInversionConfig, as_floats, image_logits
from lightleak.core.bounds import require_one_of
from lightleak.core.seeds import derive_seed
from lightleak.core.stored import read_json, write_json
from lightleak.data.celeba import PrivateChoice, load_celeba
from lightleak.data.datamodule import BatchSampler, batch_loader
from lightleak.data.images import ImageTask, LabeledImages, load_digits_images, split_by_class
from lightleak.data.sources import dataset_folder
from lightleak.experiments.kinds.released.judge import ModelScores, accuracy
from lightleak.experiments.settings import build_settings
from lightleak.experiments.unit import unit_file
from lightleak.reproductions.paper.values import paper_settings
from lightleak.reproductions.reproduction import Place, Work, fit
from lightleak.targets.checkpoints import LastCheckpoint, load_weights, save_weights
from lightleak.targets.classifier import TabularClassifier
from lightleak.targets.image_resnet import ImageResNet, build_resnet
from lightleak.targets.optimizers import OptimizerConfig

ImageDataset = Literal["digits", "celeba"]
PRIVATE_DIGITS = range(5)


@dataclass(frozen=True)
class ImageStudy:
    """Settings of one dataset, and the networks trained with them.

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
    networks: dict[str, str]
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

    def model_work(self, name: str, seed: int) -> Work:
        """The training of one network on the private images; one that judges is never one that is released."""
        return Work([f"model-{name}-s{seed}"], partial(self._train_and_keep, name, seed), self.epochs)

    def _train_and_keep(self, name: str, seed: int, at: Place) -> list[dict[str, Any]]:
        """Train from the last finished epoch, keep the network and return its scores."""
        task, place = self.task(seed), model_folder(at.folder, name, seed)
        place.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        network = train_image_network(self, name, task.private_train, seed, at)
        seconds = time.perf_counter() - began
        network.to(at.device)
        save_weights(network, place / "weights.safetensors")
        (place / "last.ckpt").unlink(missing_ok=True)

        def share(images: LabeledImages) -> float:
            return accuracy(image_logits(network, images.pixels, at.device).argmax(1), images.labels) or 0.0

        scores = {"train_accuracy": share(task.private_train), "test_accuracy": share(task.private_test)}
        return [{**scores, "epochs": self.epochs, "seconds": seconds}]

    def keep_untrained(self, name: str, seed: int, folder: Path) -> None:
        """Keep an untrained network with scores of chance, for a rehearsal."""
        save_weights(self._untrained(name, seed), model_folder(folder, name, seed) / "weights.safetensors")
        scores = {"train_accuracy": 0.0, "test_accuracy": 0.0, "epochs": 0, "seconds": 0.0}
        write_json(unit_file(folder, f"model-{name}-s{seed}"), scores)

    def load_model(self, name: str, seed: int, folder: Path) -> ImageResNet:
        """A finished network, in eval mode."""
        network = self._untrained(name, seed)
        load_weights(network, model_folder(folder, name, seed) / "weights.safetensors")
        return network

    def _untrained(self, name: str, seed: int) -> ImageResNet:
        task = self.task(seed)
        return build_resnet(name, task.public.shape[0], task.n_classes, seed=0)


STUDIES: dict[str, ImageStudy] = {
    name: build_settings(ImageStudy, {"dataset": name, **settings}, "thesis.yaml")
    for name, settings in paper_settings("thesis")["images"].items()
}
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
    require_one_of("dataset", name, STUDIES)
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


def model_folder(folder: Path, name: str, seed: int) -> Path:
    """Where a network of a run is kept."""
    return folder / "models" / f"{name}-s{seed}"


def image_model_scores(name: str, seed: int, folder: Path) -> ModelScores:
    """Return the scores of a finished network; it trains for a fixed time, without validation images."""
    kept = read_json(unit_file(folder, f"model-{name}-s{seed}"))
    return ModelScores(**kept, validation_accuracy=math.nan)


def train_image_network(study: ImageStudy, name: str, images: LabeledImages, seed: int, at: Place) -> ImageResNet:
    """Train a network for all of its epochs, as the thesis does: to 100% of the training images."""
    own = derive_seed(seed, "image network", name)
    n_classes = len(images.names)
    network = build_resnet(name, images.shape[0], n_classes, derive_seed(own, "weights"))
    module = TabularClassifier(network, OptimizerConfig("adam", study.learning_rate), n_classes=n_classes, seed=own)
    rows = TensorDataset(as_floats(images.pixels), images.labels)
    batches = BatchSampler(len(rows), study.batch_size, True, derive_seed(own, "batches"))
    loader = batch_loader(rows, batches)
    checkpoint = LastCheckpoint(model_folder(at.folder, name, seed))
    fit(module, at, study.epochs, checkpoint=checkpoint, train_dataloaders=loader)
    return network.requires_grad_(False).eval()
