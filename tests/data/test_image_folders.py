"""MNIST, CIFAR-100 and FEMNIST from made files in their official formats."""

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from lightleak.core.errors import DataError
from lightleak.data.image_folders import (
    FEMNIST_CLASSES,
    load_cifar100,
    load_femnist,
    load_mnist,
    read_idx,
    read_leaf,
)

DRAW = np.random.default_rng(0)


def idx(values: np.ndarray) -> bytes:
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()


def made(n: int, *shape: int, classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Random bytes and classes."""
    return DRAW.integers(0, 256, (n, *shape), dtype=np.uint8), DRAW.integers(0, classes, n, dtype=np.uint8)


def write_mnist(folder: Path, zipped: bool = False, separator: str = "-") -> dict[str, tuple[np.ndarray, np.ndarray]]:
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"train": made(6, 28, 28), "t10k": made(3, 28, 28)}
    for part, (pixels, labels) in parts.items():
        for kind, values in (("images", pixels), ("labels", labels)):
            name = f"{part}-{kind}{separator}idx{values.ndim}-ubyte"
            content = gzip.compress(idx(values)) if zipped else idx(values)
            (folder / (name + ".gz" * zipped)).write_bytes(content)
    return parts


@pytest.mark.parametrize(("place", "zipped", "separator"), [(".", False, "-"), ("raw", True, "-"), (".", True, ".")])
def test_mnist(tmp_path: Path, place: str, zipped: bool, separator: str) -> None:
    parts = write_mnist(tmp_path / place, zipped, separator)
    for images, (pixels, labels) in zip(load_mnist(tmp_path), parts.values(), strict=True):
        assert images.shape == (1, 28, 28) and images.names == tuple("0123456789")
        assert np.array_equal(images.pixels.squeeze(1).numpy(), pixels)
        assert images.labels.tolist() == labels.tolist()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda c: c[:-1], r"expected 6 x 28 x 28 bytes of values, got 4703"),
        (lambda c: b"\x00\x00\x0d" + c[3:], r"expected an IDX file of bytes in 3 dimensions, got the header"),
        (lambda c: b"", "got the header b''"),
        (lambda c: c[:9], "got the header"),
        (lambda c: struct.pack(">HBB3I", 0, 8, 3, 2**31, 2**31, 4) + c[16:], "bytes of values"),
    ],
)
def test_damaged_idx_files_are_named(tmp_path: Path, damage: object, message: str) -> None:
    write_mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=message) as failure:
        load_mnist(tmp_path)
    assert str(path) in str(failure.value)


def test_mnist_files_that_do_not_fit_or_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"needs the file 'train-images-idx3-ubyte' or .*yann\.lecun\.com"):
        load_mnist(tmp_path)
    write_mnist(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(5, np.uint8)))
    with pytest.raises(DataError, match="expected 6 labels, one per image, got 5"):
        load_mnist(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.full(6, 10, np.uint8)))
    with pytest.raises(DataError, match="train-labels-idx1-ubyte: expected classes from 0 to 9, got 10"):
        load_mnist(tmp_path)
    (tmp_path / "cut.gz").write_bytes(gzip.compress(idx(np.zeros(5, np.uint8)))[:-6])
    with pytest.raises(DataError, match=r"cut.gz cannot be read: EOFError"):
        read_idx(tmp_path / "cut.gz", 1)


@pytest.mark.parametrize("place", [".", "cifar-100-binary"])
def test_cifar100_takes_fine_labels_and_names(tmp_path: Path, place: str) -> None:
    folder = tmp_path / place
    folder.mkdir(exist_ok=True)
    parts = {name: made(n, 3, 32, 32, classes=100) for name, n in (("train", 4), ("test", 2))}
    for name, (pixels, labels) in parts.items():
        coarse = np.full(len(labels), 19, np.uint8)
        records = np.concatenate([coarse[:, None], labels[:, None], pixels.reshape(len(pixels), -1)], 1)
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    for images, (pixels, labels) in zip(load_cifar100(tmp_path), parts.values(), strict=True):
        assert np.array_equal(images.pixels.numpy(), pixels) and images.labels.tolist() == labels.tolist()
        assert images.names[7] == "7"
    names = folder / "fine_label_names.txt"
    names.write_text("\n".join(f"thing{i}" for i in range(100)) + "\n\n")
    assert load_cifar100(tmp_path)[0].names[7] == "thing7"
    names.write_text("one\ntwo\n")
    with pytest.raises(DataError, match="expected 100 names, got 2"):
        load_cifar100(tmp_path)


def test_damaged_cifar100_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"needs the file 'train.bin', which is not there; see .*binary version"):
        load_cifar100(tmp_path)
    (tmp_path / "train.bin").write_bytes(bytes(3074))
    for content in (bytes(3073), b""):
        (tmp_path / "test.bin").write_bytes(content)
        with pytest.raises(DataError, match=rf"test.bin: expected records of 3074 bytes .* got {len(content)}"):
            load_cifar100(tmp_path)
    (tmp_path / "test.bin").write_bytes(bytes([0, 100]) + bytes(3072))
    with pytest.raises(DataError, match=r"test.bin: expected classes from 0 to 99, got 100"):
        load_cifar100(tmp_path)


def write_leaf(path: Path, writers: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {name: {"x": (x.reshape(len(x), -1) / 255).tolist(), "y": y.tolist()} for name, (x, y) in writers.items()}
    content = {"users": list(writers), "num_samples": [len(y) for _, y in writers.values()], "user_data": data}
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("place", [".", "data"])
def test_femnist_keeps_writers_apart(tmp_path: Path, place: str) -> None:
    writers = {f"w{i}": made(2 + i, 28, 28, classes=62) for i in range(4)}
    names = list(writers)
    for number, part in enumerate((names[:3], names[3:])):
        write_leaf(tmp_path / place / "train" / f"all_data_{number}.json", {name: writers[name] for name in part})
    write_leaf(tmp_path / place / "test" / "all_data_0.json", {name: writers[name] for name in names})
    (train, test), owners = load_femnist(tmp_path)
    assert train.shape == (1, 28, 28) and len(train) == len(test) == sum(range(2, 6))
    assert train.names == FEMNIST_CLASSES and len(FEMNIST_CLASSES) == 62
    assert [train.names[i] for i in (9, 10, 36)] == ["9", "A", "a"]
    assert sorted(np.concatenate(owners).tolist()) == list(range(len(train)))
    for own, (pixels, labels) in zip(owners, writers.values(), strict=True):
        images = train.take(own)
        assert np.array_equal(images.pixels.squeeze(1).numpy(), pixels)
        assert images.labels.tolist() == labels.tolist()
    for limit in (1, 3, 4, 9):
        (train, _), owners = load_femnist(tmp_path, writers=limit)
        assert len(owners) == min(limit, 4) and len(train) == sum(len(own) for own in owners)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1, 2]", "expected LEAF's JSON"),
        ('{"users": [], "user_data": {}}', "at least one of 'users'"),
        ('{"users": ["a"], "user_data": {}}', "writer 'a' needs numbers 'x' and 'y': KeyError"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[0.5]], "y": [1]}}}', r"needs 784 numbers 'x' .* \(1, 1\)"),
        ('{"users": ["a"], "user_data": {"a": {"x": [], "y": []}}}', "at least one; got the shapes"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1], [1, 2]], "y": [1, 2]}}}', "ValueError"),
        ('{"users": ["a"], "user_data": {"a": []}}', "TypeError"),
        ("{", "cannot be read: JSONDecodeError"),
    ],
)
def test_damaged_leaf_files_are_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(DataError, match=message) as failure:
        read_leaf(path)
    assert str(path) in str(failure.value)


@pytest.mark.parametrize(("pixel", "label"), [(1.5, 3), (-0.1, 3), (float("nan"), 3), (0.5, 62), (0.5, -1), (0.5, 1.5)])
def test_values_no_image_has_are_refused(tmp_path: Path, pixel: float, label: float) -> None:
    x = [[0.0] * 783 + [pixel]]
    (tmp_path / "a.json").write_text(json.dumps({"users": ["a"], "user_data": {"a": {"x": x, "y": [label]}}}))
    with pytest.raises(DataError, match="needs pixels from 0 to 1 and classes from 0 to 61, got pixels"):
        read_leaf(tmp_path / "a.json")


def test_pixels_become_the_nearest_byte(tmp_path: Path) -> None:
    content = {"users": ["a"], "user_data": {"a": {"x": [[0.0, 0.999, 0.0019, 0.0021] + [1.0] * 780], "y": [3]}}}
    (tmp_path / "a.json").write_text(json.dumps(content))
    ((pixels, labels),) = read_leaf(tmp_path / "a.json")
    assert pixels[0, :5].tolist() == [0, 255, 0, 1, 255] and labels.tolist() == [3]


def test_femnist_without_files_says_where_they_come_from(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"FEMNIST needs JSON files in the folder 'train' .* LEAF"):
        load_femnist(tmp_path)
