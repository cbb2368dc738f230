"""Read CelebA, aligned faces with their identities, from the official files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch

from lightleak.core.errors import DataError, UsageError
from lightleak.core.optional import import_optional
from lightleak.core.seeds import numpy_generator
from lightleak.data.images import TEST_FRACTION, ImageTask, LabeledImages, split_by_class
from lightleak.data.sources import reading

IDENTITIES = "identity_CelebA.txt"
IMAGES = "img_align_celeba"
CROP, SIZE = 108, 64
"""Side of the central square that PLG-MI's published code cuts out of the 178 x 218 pixels, and of the image made of
it. The thesis only says that images are downsampled to 64 x 64."""

PrivateChoice = Literal["first", "most_populous"]
"""Which identities are private: those of the lowest numbers (the thesis's Tables 5.1 and 5.2), or those with the most
images (its Table A.1). Fig. A.2 compares them."""


def load_celeba(
    folder: Path,
    private: int = 1000,
    choice: PrivateChoice = "first",
    public_images: int | None = None,
    size: int = SIZE,
    crop: int | None = CROP,
    test_fraction: float = TEST_FRACTION,
    seed: int = 0,
) -> ImageTask:
    """Identities that are private, and images of all others as public ones.

    Args:
        folder: holds ``identity_CelebA.txt`` (lines ``000001.jpg 2880``) and the folder ``img_align_celeba``.
        private: number of private identities.
        choice: which they are.
        public_images: public images to read, drawn at random; None reads all (181,447 in addition to the first 1,000).
        size: side of the images.
        crop: side of the central square they are made of; None takes the largest.
        test_fraction: share of each identity's images held out.
        seed: root of the division and of the drawing.

    Raises:
        DataError: a file is missing or damaged, or there are too few identities.
        UnsupportedError: pillow is not installed.
        UsageError: a setting out of range.
    """
    if choice not in get_args(PrivateChoice):
        raise UsageError(f"choice must be one of {', '.join(get_args(PrivateChoice))}, got {choice!r}")
    if private < 1 or size < 1 or (public_images is not None and public_images < 1) or (crop is not None and crop < 1):
        raise UsageError(f"private, size, crop and public_images must be at least 1, got {private, size, crop}")
    if not (folder / IDENTITIES).is_file() or not (folder / IMAGES).is_dir():
        raise DataError(
            f"CelebA needs the file {IDENTITIES} and the folder {IMAGES} in {folder}, which lacks one; a person must "
            "fetch both from its authors (https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html)"
        )
    names, identities = read_identities(folder / IDENTITIES)
    chosen = private_identities(identities, private, choice)
    is_private = np.isin(identities, chosen)
    public = np.flatnonzero(~is_private)
    if public_images is not None and public_images < len(public):
        public = numpy_generator(seed, "public faces").choice(public, public_images, replace=False)
    kept = np.sort(np.concatenate([np.flatnonzero(is_private), public]))
    people, labels = np.unique(identities[kept], return_inverse=True)
    pixels = torch.from_numpy(read_faces([folder / IMAGES / names[i] for i in kept], size, crop))
    faces = LabeledImages(pixels, torch.from_numpy(labels.astype(np.int64)), tuple(str(one) for one in people))
    return split_by_class("celeba", faces, np.searchsorted(people, chosen).tolist(), test_fraction, seed)


def read_identities(path: Path) -> tuple[list[str], np.ndarray]:
    """File names, and the number of the person on each.

    Raises:
        DataError: a line is not a file name and a number.
    """
    with reading(path):
        pairs = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        if not pairs or any(len(pair) != 2 for pair in pairs):
            raise DataError(f"{path}: expected lines such as '000001.jpg 2880', got {pairs[:1]}")
        return [name for name, _ in pairs], np.array([int(number) for _, number in pairs])


def private_identities(identities: np.ndarray, n: int, choice: PrivateChoice) -> np.ndarray:
    """Numbers of the private identities, ascending; of equally many images, the lower number goes first.

    >>> private_identities(np.array([1, 2, 2, 3, 3, 3, 4, 4]), 2, "most_populous").tolist()
    [2, 3]

    Raises:
        DataError: fewer identities than asked for, or none left for the public.
    """
    people, count = np.unique(identities, return_counts=True)
    if len(people) <= n:
        raise DataError(f"{n} private identities need at least {n + 1}, got {len(people)}")
    order = np.argsort(-count, kind="stable") if choice == "most_populous" else np.arange(len(people))
    return np.sort(people[order[:n]])


def read_faces(files: Sequence[Path], size: int = SIZE, crop: int | None = CROP) -> np.ndarray:
    """uint8 ``[n, 3, size, size]``: the central square of each image, resized.

    Raises:
        DataError: a file is missing or damaged, or smaller than ``crop``.
        UnsupportedError: pillow is not installed.
    """
    pillow = import_optional("PIL.Image", "reading JPEG files needs pillow", "images")
    pixels = np.empty((len(files), 3, size, size), dtype=np.uint8)
    for index, file in enumerate(files):
        with reading(file), pillow.open(file) as image:
            side = crop or min(image.size)
            if side > min(image.size):
                raise DataError(f"{file}: expected at least {side} x {side} pixels, got {image.size}")
            left, top = ((length - side) // 2 for length in image.size)
            square = image.convert("RGB").crop((left, top, left + side, top + side))
            face = square.resize((size, size), pillow.Resampling.BILINEAR)
            pixels[index] = np.asarray(face).transpose(2, 0, 1)
    return pixels
