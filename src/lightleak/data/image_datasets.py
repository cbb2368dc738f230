"""Image datasets by name, with the scale of their pixels and the images of each client."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from lightleak.core.errors import DataError, UsageError
from lightleak.core.seeds import numpy_generator
from lightleak.data.image_folders import Images, load_cifar100, load_femnist, load_mnist
from lightleak.data.image_scale import PUBLISHED_STATISTICS, ImageScale
from lightleak.data.images import LabeledImages, load_digits_images
from lightleak.data.sources import dataset_folder
from lightleak.data.splits import holdout

ImageName = Literal["digits", "framed_digits", "mnist", "femnist", "cifar100"]

DIGITS_TEST_FRACTION = 0.2

FRAMED_SIZE, FRAME = 10, 28
"""Side, in pixels, to which framed digits are enlarged, and that of the white square in which each is placed at random.
With these their pixels have a mean of 0.961 and a deviation of 0.154, FEMNIST's 0.964 and 0.158."""


@dataclass(frozen=True)
class ImageDataset:
    """Images for federated training.

    Attributes:
        name: of the dataset.
        train: images that clients hold.
        test: images that accuracy is measured on.
        scale: shape, mean and deviation, by which rows are standardized.
        writers: positions among the training images of each person who wrote some; empty where nobody owns them.
    """

    name: ImageName
    train: LabeledImages
    test: LabeledImages
    scale: ImageScale
    writers: tuple[np.ndarray, ...] = ()

    @property
    def n_classes(self) -> int:
        """Classes."""
        return len(self.train.names)


def load_image_dataset(
    name: ImageName = "digits", folder: Path | None = None, writers: int | None = None
) -> ImageDataset:
    """scikit-learn's digits, or a dataset from a folder of the user's.

    MNIST, FEMNIST and CIFAR-100 are standardized by the FedAvg paper's numbers, the digits by their own; a fixed fifth
    of the digits is held out. Framed digits are these, black on white as FEMNIST's characters: each is 10 x 10 pixels,
    placed at random in a white square of 28 x 28, whereas the digits of 8 x 8 pixels fill their image. The mean of all
    framed digits, taken as a guess, reaches 16.5 dB.

    Args:
        name: ``digits``, ``framed_digits``, ``mnist``, ``femnist`` or ``cifar100``.
        folder: where its files lie; None: the dataset's own under the data folder.
        writers: of FEMNIST, how many to read.

    Raises:
        DataError: a file is missing or damaged.
        UnsupportedError: the digits without scikit-learn.
        UsageError: no such dataset, or ``writers`` where nobody owns images.
    """
    if name not in get_args(ImageName):
        raise UsageError(f"image dataset must be one of {', '.join(get_args(ImageName))}, got {name!r}")
    if writers is not None and (name != "femnist" or writers < 1):
        raise UsageError(f"writers must be at least 1, and are FEMNIST's alone; got {writers} for {name!r}")
    place = folder if folder is not None else dataset_folder(name)
    owners: tuple[np.ndarray, ...] = ()
    if name == "femnist":
        (train, test), owners = load_femnist(place, writers)
    else:
        loaders = {"digits": _digits, "framed_digits": _framed_digits, "mnist": load_mnist, "cifar100": load_cifar100}
        train, test = loaders[name](place)
    if name in PUBLISHED_STATISTICS:
        return ImageDataset(name, train, test, ImageScale(train.shape, *PUBLISHED_STATISTICS[name]), owners)
    return ImageDataset(name, train, test, ImageScale.fit(train))


def _digits(_: Path) -> Images:
    images = load_digits_images()
    kept, held_out = holdout(len(images), DIGITS_TEST_FRACTION, seed=0)
    return images.take(torch.from_numpy(kept)), images.take(torch.from_numpy(held_out))


def _framed_digits(folder: Path) -> Images:
    train, test = _digits(folder)
    return _framed(train), _framed(test)


def _framed(images: LabeledImages) -> LabeledImages:
    ink = interpolate(images.pixels.float(), FRAMED_SIZE, mode="bilinear", align_corners=False).round().to(torch.uint8)
    places = numpy_generator(0, "places of digits").integers(FRAME - FRAMED_SIZE + 1, size=(len(images), 2))
    pixels = torch.full((len(images), 1, FRAME, FRAME), 255, dtype=torch.uint8)
    for image, digit, (top, left) in zip(pixels, ink, places.tolist(), strict=True):
        image[:, top : top + FRAMED_SIZE, left : left + FRAMED_SIZE] -= digit
    return replace(images, pixels=pixels)


def client_positions(dataset: ImageDataset, client: int, n_rows: int, seed: int) -> Tensor:
    """Positions of a client's images among the training images, LongTensor ``[n_rows]``.

    Where the images have writers, a client is one of those with at least ``n_rows``, each taken once, and holds their
    first ``n_rows`` (as the FedAvg paper's code does); otherwise a client holds images drawn at
    random, independently of other clients.

    Args:
        dataset: the dataset.
        client: number of the client, from 0.
        n_rows: images of a client (the paper: 50).
        seed: root seed.

    Raises:
        DataError: too few images, or too few writers with as many.
    """
    if not dataset.writers:
        if not 1 <= n_rows <= len(dataset.train):
            raise DataError(f"a client holds 1 to {len(dataset.train)} images of {dataset.name!r}, got {n_rows}")
        drawn = numpy_generator(seed, "client images", client).choice(len(dataset.train), n_rows, replace=False)
        return torch.from_numpy(drawn)
    fitting = [own for own in dataset.writers if len(own) >= n_rows]
    if client >= len(fitting) or n_rows < 1:
        raise DataError(
            f"{len(fitting)} writers of {dataset.name!r} have {n_rows} images; client {client} would be one more"
        )
    order = numpy_generator(seed, "client writers").permutation(len(fitting))
    return torch.from_numpy(fitting[order[client]][:n_rows])
