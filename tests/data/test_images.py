"""Images by class: the digits, and splits that lose no image and put none on two sides."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightleak.core.errors import DataError
from lightleak.data.images import LabeledImages, from_pixels, load_digits_images, split_by_class, to_pixels


def numbered(labels: torch.Tensor, n_classes: int) -> LabeledImages:
    """Images that can be told apart: the pixels of image i spell i."""
    number = torch.arange(len(labels))
    pixels = torch.stack([number // 256, number % 256], 1).to(torch.uint8).view(-1, 1, 1, 2)
    return LabeledImages(pixels, labels, tuple(f"class {i}" for i in range(n_classes)))


def numbers(images: LabeledImages) -> list[int]:
    pixels = images.pixels.long().flatten(1)
    return (pixels[:, 0] * 256 + pixels[:, 1]).tolist()


def test_the_digits_are_those_of_scikit_learn() -> None:
    from sklearn import datasets

    found, digits = datasets.load_digits(), load_digits_images()
    assert digits.shape == (1, 8, 8) and digits.names == tuple("0123456789")
    assert digits.labels.tolist() == found.target.tolist()
    levels = (digits.images.squeeze(1) + 1) * 8  # 17 levels, 0 to 16
    assert torch.allclose(levels, torch.from_numpy(found.images).float(), atol=0.05)


def test_bytes_become_floats_and_bytes_again() -> None:
    every = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(to_pixels(from_pixels(every)), every)
    assert from_pixels(every).min() == -1 and from_pixels(every).max() == 1


@settings(max_examples=30)
@given(
    counts=st.lists(st.integers(1, 30), min_size=3, max_size=6),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 5),
    data=st.data(),
)
def test_a_split_loses_nothing_and_holds_out_a_share_of_every_class(
    counts: list[int], fraction: float, seed: int, data: st.DataObject
) -> None:
    private = data.draw(st.permutations(range(len(counts))))[: data.draw(st.integers(1, len(counts) - 1))]
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]
    images = numbered(labels, len(counts))
    task = split_by_class("made", images, private, fraction, seed)
    parts = (task.private_train, task.private_test, task.public)
    assert sorted(number for part in parts for number in numbers(part)) == list(range(len(labels)))
    assert set(labels[numbers(task.public)].tolist()).isdisjoint(private)
    for new, old in enumerate(private):
        assert task.private_train.names[new] == f"class {old}"
        for part in parts[:2]:
            assert (labels[numbers(part)] == old).tolist() == (part.labels == new).tolist()
        held = int((task.private_test.labels == new).sum())
        assert held == min(int(torch.tensor(counts[old] * fraction).round()), counts[old] - 1)


def test_a_split_depends_on_its_seed_alone() -> None:
    images = numbered(torch.arange(60) % 3, 3)
    first, torch_moved, other = (split_by_class("made", images, [0, 1], 0.5, seed) for seed in (1, 1, 2))
    assert numbers(first.private_test) == numbers(torch_moved.private_test) != numbers(other.private_test)


@pytest.mark.parametrize(
    ("private", "fraction", "said"),
    [
        ([], 0.1, "distinct"),
        ([0, 0], 0.1, "distinct"),
        ([0, 9], 0.1, "distinct"),
        ([-1], 0.1, "distinct"),
        ([3], 0.1, "have images"),
        ([0, 1, 2], 0.1, "left for the public"),
        ([0], 1.0, "test_fraction"),
    ],
)
def test_a_split_names_what_cannot_be(private: list[int], fraction: float, said: str) -> None:
    with pytest.raises(DataError, match=said):
        split_by_class("made", numbered(torch.arange(9) % 3, 4), private, fraction)


@pytest.mark.parametrize(
    ("pixels", "labels", "said"),
    [
        (torch.zeros(2, 1, 4, 4), torch.zeros(2).long(), "uint8"),
        (torch.zeros(2, 4, 4, dtype=torch.uint8), torch.zeros(2).long(), "uint8"),
        (torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.zeros(3).long(), "one per image"),
        (torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 2]), "from 0 to 1"),
    ],
)
def test_images_and_labels_must_fit(pixels: torch.Tensor, labels: torch.Tensor, said: str) -> None:
    with pytest.raises(DataError, match=said):
        LabeledImages(pixels, labels, ("a", "b"))
