"""Image datasets by name, and who holds which images."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from lightleak.core.errors import DataError, UsageError
from lightleak.data.image_datasets import ImageDataset, client_positions, load_image_dataset
from lightleak.data.image_scale import PUBLISHED_STATISTICS, ImageScale


@pytest.fixture(scope="module")
def digits() -> ImageDataset:
    return load_image_dataset()


@pytest.fixture
def femnist(tmp_path: Path) -> Path:
    """Five writers with 2, 4, 6, 8 and 10 images each; the class of an image is the number of its writer."""
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
        sizes = {f"w{i}": 2 * i + 2 for i in range(5)}
        data = {name: {"x": [[0.5] * 784] * n, "y": [int(name[1])] * n} for name, n in sizes.items()}
        (tmp_path / part / "0.json").write_text(json.dumps({"users": list(data), "user_data": data}))
    return tmp_path


def test_digits_are_the_default_and_their_held_out_fifth_is_fixed(digits: ImageDataset) -> None:
    assert (digits.name, digits.n_classes, len(digits.train), len(digits.test)) == ("digits", 10, 1438, 359)
    assert digits.scale == ImageScale.fit(digits.train) and not digits.writers
    again = load_image_dataset("digits")
    assert torch.equal(again.test.pixels, digits.test.pixels)


def test_framed_digits_have_femnists_size_and_share_of_ink_and_a_place_of_their_own(digits: ImageDataset) -> None:
    framed = load_image_dataset("framed_digits")
    assert framed.train.shape == (1, 28, 28) and torch.equal(framed.train.labels, digits.train.labels)
    assert framed.scale == ImageScale.fit(framed.train)
    assert framed.scale.mean[0] == pytest.approx(PUBLISHED_STATISTICS["femnist"][0][0], abs=0.005)
    assert framed.scale.deviation[0] == pytest.approx(PUBLISHED_STATISTICS["femnist"][1][0], abs=0.005)
    ink = 255 - framed.train.pixels[:, 0].float()
    assert ink.sum((1, 2)) == pytest.approx(digits.train.pixels.float().sum((1, 2, 3)) * (10 / 8) ** 2, rel=0.05)
    inked = [[int(along.nonzero()[0]) for along in (image.sum(1), image.sum(0))] for image in ink]
    assert len({tuple(place) for place in inked}) > 250  # of 361 places and a few starts within them
    assert torch.equal(load_image_dataset("framed_digits").test.pixels, framed.test.pixels)


def test_the_others_come_from_folders_with_the_papers_scale(
    tmp_path: Path, femnist: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = load_image_dataset("femnist", femnist)
    assert dataset.scale == ImageScale((1, 28, 28), (0.9642384386141873,), (0.15767843198426892,))
    assert [len(own) for own in dataset.writers] == [2, 4, 6, 8, 10] and dataset.n_classes == 62
    assert [len(own) for own in load_image_dataset("femnist", femnist, writers=2).writers] == [2, 4]
    monkeypatch.setenv("LIGHTLEAK_DATA_DIR", str(tmp_path))
    (tmp_path / "mnist").mkdir()
    for part in ("train", "t10k"):
        header = struct.pack(">HBB3I", 0, 8, 3, 1, 28, 28)
        (tmp_path / "mnist" / f"{part}-images-idx3-ubyte").write_bytes(header + bytes(784))
        (tmp_path / "mnist" / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">HBBI", 0, 8, 1, 1) + b"\x03")
    assert load_image_dataset("mnist").scale.mean == (0.1307,)
    (tmp_path / "cifar100").mkdir()
    for part in ("train", "test"):
        (tmp_path / "cifar100" / f"{part}.bin").write_bytes(bytes(3074))
    assert load_image_dataset("cifar100").scale.deviation == (0.2675, 0.2565, 0.2761)


def test_clients_without_writers_draw_their_images(digits: ImageDataset) -> None:
    clients = [client_positions(digits, client, 50, seed=0) for client in range(40)]
    for own in clients:
        assert own.shape == (50,) and len(own.unique()) == 50 and int(own.max()) < len(digits.train)
    assert len({tuple(own.tolist()) for own in clients}) == 40
    assert len(torch.cat(clients).unique()) > 1000  # 2,000 draws of 1,438 miss a quarter of them
    assert torch.equal(client_positions(digits, 7, 50, seed=0), clients[7])
    assert not torch.equal(client_positions(digits, 7, 50, seed=1), clients[7])


def test_clients_with_writers_are_those_with_enough_images(femnist: Path) -> None:
    dataset = load_image_dataset("femnist", femnist)
    clients = [client_positions(dataset, client, 6, seed=0) for client in range(3)]
    owners = [dataset.train.labels[own].unique().tolist() for own in clients]
    assert sorted(owners) == [[2], [3], [4]]
    for (owner,), own in zip(owners, clients, strict=True):
        assert np.array_equal(own.numpy(), dataset.writers[owner][:6])
    orders = [[dataset.train.labels[client_positions(dataset, c, 6, s)[0]].item() for c in range(3)] for s in range(9)]
    assert len({tuple(order) for order in orders}) > 1
    with pytest.raises(DataError, match="3 writers of 'femnist' have 6 images; client 3 would be one more"):
        client_positions(dataset, 3, 6, seed=0)


def test_what_cannot_be_served_is_refused(digits: ImageDataset) -> None:
    with pytest.raises(
        UsageError, match="image dataset must be one of digits, framed_digits, mnist, femnist, cifar100, got 'cifar10'"
    ):
        load_image_dataset("cifar10")
    with pytest.raises(UsageError, match="writers must be at least 1, and are FEMNIST's alone; got 3 for 'digits'"):
        load_image_dataset("digits", writers=3)
    with pytest.raises(UsageError, match="got 0 for 'femnist'"):
        load_image_dataset("femnist", writers=0)
    for n in (0, 1439):
        with pytest.raises(DataError, match=f"a client holds 1 to 1438 images of 'digits', got {n}"):
            client_positions(digits, 0, n, seed=0)
