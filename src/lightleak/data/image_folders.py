"""Image datasets from the folders of those who have them: MNIST, CIFAR-100, and FEMNIST by writer."""

import gzip
import json
import string
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lightleak.core.errors import DataError
from lightleak.data.images import LabeledImages
from lightleak.data.sources import reading

MNIST_SOURCE = "http://yann.lecun.com/exdb/mnist/"
CIFAR100_SOURCE = "https://www.cs.toronto.edu/~kriz/cifar.html, the binary version"
FEMNIST_SOURCE = "https://leaf.cmu.edu, data/femnist"

MNIST_CLASSES = tuple(string.digits)
FEMNIST_CLASSES = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
"""LEAF's order of the 62 classes."""
CIFAR100_SHAPE, CIFAR100_CLASSES = (3, 32, 32), 100
FEMNIST_SHAPE = (1, 28, 28)

_UNSIGNED_BYTE = 0x08  # the IDX format's code for the type of its values

Images = tuple[LabeledImages, LabeledImages]
"""Training and test images."""


def load_mnist(folder: Path) -> Images:
    """The four IDX files, plain or gzipped, in ``folder`` or in its ``raw`` or ``MNIST/raw``: ``[n, 1, 28, 28]``.

    Raises:
        DataError: a file is missing or damaged, or images and labels are not equally many.
    """
    places = [folder, folder / "raw", folder / "MNIST" / "raw"]
    train, test = (_mnist_part(places, part) for part in ("train", "t10k"))
    return train, test


def _mnist_part(places: Sequence[Path], part: str) -> LabeledImages:
    found = []
    for kind, ndim in (("images", 3), ("labels", 1)):
        stems = [f"{part}-{kind}{separator}idx{ndim}-ubyte" for separator in "-."]
        path = _find(places, [stem + end for stem in stems for end in ("", ".gz")], MNIST_SOURCE)
        found.append((path, read_idx(path, ndim)))
    (_, pixels), (path, labels) = found
    if len(pixels) != len(labels):
        raise DataError(f"{path}: expected {len(pixels)} labels, one per image, got {len(labels)}")
    return _labeled(path, pixels[:, None], labels, MNIST_CLASSES)


def read_idx(path: Path, ndim: int) -> np.ndarray:
    """Bytes of an IDX file, plain or gzipped, as uint8 of ``ndim`` dimensions.

    Raises:
        DataError: another type or number of dimensions, or not as many bytes as the header says.
    """
    with reading(path):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        start = 4 + 4 * ndim
        if content[:4] != bytes([0, 0, _UNSIGNED_BYTE, ndim]) or len(content) < start:
            got = content[:start]
            raise DataError(f"{path}: expected an IDX file of bytes in {ndim} dimensions, got the header {got!r}")
        shape = struct.unpack(f">{ndim}I", content[4:start])
        values = np.frombuffer(content, np.uint8, offset=start)
        if len(values) != np.prod(shape, dtype=object):
            raise DataError(f"{path}: expected {' x '.join(map(str, shape))} bytes of values, got {len(values)}")
        return values.reshape(shape)


def load_cifar100(folder: Path) -> Images:
    """``train.bin`` and ``test.bin`` of the binary version, in ``folder`` or in its ``cifar-100-binary``.

    The pickled "python" version is not read: unpickling could run arbitrary code. Fine labels;
    ``[n, 3, 32, 32]``.

    Raises:
        DataError: a file is missing or damaged.
    """
    places = [folder, folder / "cifar-100-binary"]
    train, test = (_find(places, [f"{part}.bin"], CIFAR100_SOURCE) for part in ("train", "test"))
    names = tuple(str(index) for index in range(CIFAR100_CLASSES))
    written = train.parent / "fine_label_names.txt"
    if written.is_file():
        with reading(written):
            names = tuple(written.read_text(encoding="utf-8").split())
        if len(names) != CIFAR100_CLASSES:
            raise DataError(f"{written}: expected {CIFAR100_CLASSES} names, got {len(names)}")
    return _cifar100_part(train, names), _cifar100_part(test, names)


def _cifar100_part(path: Path, names: tuple[str, ...]) -> LabeledImages:
    record = 2 + int(np.prod(CIFAR100_SHAPE))
    with reading(path):
        content = np.fromfile(path, np.uint8)
        if not len(content) or len(content) % record:
            raise DataError(
                f"{path}: expected records of {record} bytes (two labels and 3,072 pixels), got {len(content)}"
            )
        records = content.reshape(-1, record)
    return _labeled(path, records[:, 2:].reshape(-1, *CIFAR100_SHAPE), records[:, 1], names)


def load_femnist(folder: Path, writers: int | None = None) -> tuple[Images, tuple[np.ndarray, ...]]:
    """LEAF's JSON files, in ``train`` and ``test`` of ``folder`` or of its ``data``: ``[n, 1, 28, 28]``, ink is black.

    Args:
        folder: LEAF's ``data/femnist``, or its ``data``.
        writers: how many to read of each part, in the order of the files; None reads all.

    Returns:
        Training and test images, and each training writer's positions among the training images.

    Raises:
        DataError: there are no files, or one is damaged.
    """
    places = [folder, folder / "data"]
    (train, owners), (test, _) = (_femnist_part(_leaf_files(places, part), writers) for part in ("train", "test"))
    return (train, test), owners


def _leaf_files(places: Sequence[Path], part: str) -> list[Path]:
    for place in places:
        if files := sorted((place / part).glob("*.json")):
            return files
    raise DataError(
        f"FEMNIST needs JSON files in the folder {part!r} of {places[0]}, which has none; they are made by the "
        f"scripts of LEAF ({FEMNIST_SOURCE})"
    )


def _femnist_part(files: Sequence[Path], writers: int | None) -> tuple[LabeledImages, tuple[np.ndarray, ...]]:
    pixels: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    for path in files:
        left = None if writers is None else writers - len(labels)
        if left == 0:
            break
        for x, y in read_leaf(path)[:left]:
            pixels.append(x)
            labels.append(y)
    ends = np.cumsum([len(own) for own in labels])
    owners = tuple(np.arange(end - len(own), end) for own, end in zip(labels, ends, strict=True))
    every = np.concatenate(pixels).reshape(-1, *FEMNIST_SHAPE)
    return _labeled(files[0], every, np.concatenate(labels), FEMNIST_CLASSES), owners


def read_leaf(path: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pixels uint8 ``[n, 784]`` and classes int64 ``[n]`` of each writer in one of LEAF's JSON files.

    Raises:
        DataError: the file is not LEAF's: ``{"users": [...], "user_data": {user: {"x": [[...]], "y": [...]}}}`` with
            784 numbers from 0 to 1 per image and a class from 0 to 61 each.
    """
    with reading(path):
        content = json.loads(path.read_bytes())
    if not isinstance(content, Mapping) or not {"users", "user_data"} <= content.keys() or not content["users"]:
        raise DataError(f"{path}: expected LEAF's JSON with at least one of 'users' and their 'user_data'")
    return [_leaf_writer(path, user, content["user_data"]) for user in content["users"]]


def _leaf_writer(path: Path, user: str, data: Mapping[str, Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    try:
        x = np.asarray(data[user]["x"], dtype=np.float64)
        y = np.asarray(data[user]["y"], dtype=np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: writer {user!r} needs numbers 'x' and 'y': {error!r}") from error
    n_pixels, n_classes = int(np.prod(FEMNIST_SHAPE)), len(FEMNIST_CLASSES)
    if y.ndim != 1 or not len(y) or x.shape != (len(y), n_pixels):
        raise DataError(
            f"{path}: writer {user!r} needs {n_pixels} numbers 'x' for every class in 'y', at least one; got the "
            f"shapes {x.shape} and {y.shape}"
        )
    if not (x.min() >= 0 and x.max() <= 1) or not np.isin(y, np.arange(n_classes)).all():
        raise DataError(
            f"{path}: writer {user!r} needs pixels from 0 to 1 and classes from 0 to {n_classes - 1}, got pixels from "
            f"{x.min()} to {x.max()} and classes from {y.min()} to {y.max()}"
        )
    return np.rint(x * 255).astype(np.uint8), y.astype(np.int64)


def _find(places: Sequence[Path], names: Sequence[str], source: str) -> Path:
    for place in places:
        for name in names:
            if (place / name).is_file():
                return place / name
    raise DataError(f"{places[0]} needs the file {' or '.join(map(repr, names))}, which is not there; see {source}")


def _labeled(path: Path, pixels: np.ndarray, labels: np.ndarray, names: tuple[str, ...]) -> LabeledImages:
    if len(labels) and labels.max() >= len(names):
        raise DataError(f"{path}: expected classes from 0 to {len(names) - 1}, got {labels.max()}")
    return LabeledImages(torch.from_numpy(pixels.copy()), torch.from_numpy(labels.astype(np.int64)), names)
