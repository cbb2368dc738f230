"""CelebA from its official layout, on a few made JPEG files."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lightleak.core.errors import DataError, UsageError
from lightleak.data.celeba import load_celeba, private_identities, read_faces

# Person of each file. Persons 1 and 2 have the lowest numbers; 3 and 5 have the most images.
PERSONS = [5, 3, 1, 2, 3, 5, 7, 3, 5, 2, 7, 5]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """178 x 218 pixels, red in the central 108 x 108, its green the number of the file; blue around it."""
    (tmp_path / "img_align_celeba").mkdir()
    for index in range(len(PERSONS)):
        face = np.zeros((218, 178, 3), dtype=np.uint8)
        face[..., 2] = 255
        face[55 : 55 + 108, 35 : 35 + 108] = (255, 20 * index, 0)
        Image.fromarray(face).save(tmp_path / "img_align_celeba" / f"{index + 1:06d}.jpg", quality=100, subsampling=0)
    lines = [f"{index + 1:06d}.jpg {person}" for index, person in enumerate(PERSONS)]
    (tmp_path / "identity_CelebA.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def files(pixels: torch.Tensor) -> list[int]:
    """Numbers of the files behind images, read off their green."""
    return (pixels[:, 1].float().mean((1, 2)) / 20).round().long().tolist()


@pytest.mark.parametrize(("choice", "private"), [("first", [1, 2]), ("most_populous", [3, 5])])
def test_private_are_the_first_or_the_most_populous(folder: Path, choice: str, private: list[int]) -> None:
    task = load_celeba(folder, 2, choice, size=16, test_fraction=0.4)  # type: ignore[arg-type]
    assert task.private_train.names == tuple(map(str, private))
    for part in (task.private_train, task.private_test):
        assert [PERSONS[i] for i in files(part.pixels)] == [private[label] for label in part.labels.tolist()]
    everyone = [i for part in (task.private_train, task.private_test, task.public) for i in files(part.pixels)]
    assert sorted(everyone) == list(range(len(PERSONS)))
    assert {PERSONS[i] for i in files(task.public.pixels)} == set(PERSONS) - set(private)


def test_a_face_is_the_central_square(folder: Path) -> None:
    task = load_celeba(folder, 2, size=27)
    pixels = task.public.pixels.float()
    assert pixels.shape[1:] == (3, 27, 27)
    assert pixels[:, 0].min() > 240 and pixels[:, 2].max() < 15  # nothing of the blue around it


def test_without_a_crop_the_largest_square_is_taken(folder: Path) -> None:
    faces = read_faces([folder / "img_align_celeba" / "000001.jpg"], 89, crop=None)
    blue = faces[0, 2] > 128  # 178 columns of which 108 are red, halved
    assert blue[44].sum() == pytest.approx(89 - 54, abs=2) and blue[0].all()


def test_public_images_can_be_fewer(folder: Path) -> None:
    few = load_celeba(folder, 2, public_images=3, size=8, seed=1)
    assert len(few.public) == 3 and len(few.private_train) + len(few.private_test) == 3
    assert set(files(few.public.pixels)) <= {i for i, person in enumerate(PERSONS) if person not in (1, 2)}


def test_of_equally_many_images_the_lower_number_is_private() -> None:
    assert private_identities(np.array([9, 4, 9, 4, 2, 1, 1]), 2, "most_populous").tolist() == [1, 4]


def test_what_is_missing_or_damaged_is_named(folder: Path) -> None:
    with pytest.raises(DataError, match="5 private identities need at least 6, got 5"):
        load_celeba(folder, 5)
    (folder / "img_align_celeba" / "000002.jpg").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"000002\.jpg cannot be read"):
        load_celeba(folder, 2, size=8)
    (folder / "img_align_celeba" / "000002.jpg").unlink()
    with pytest.raises(DataError, match=r"000002\.jpg"):
        load_celeba(folder, 2, size=8)
    (folder / "identity_CelebA.txt").write_text("000001.jpg\n")
    with pytest.raises(DataError, match="expected lines such as"):
        load_celeba(folder, 2)
    with pytest.raises(DataError, match=r"identity_CelebA\.txt and the folder img_align_celeba in .*fetch"):
        load_celeba(folder / "img_align_celeba", 2)


def test_a_crop_larger_than_the_image_is_refused(folder: Path) -> None:
    with pytest.raises(DataError, match="at least 200 x 200"):
        load_celeba(folder, 2, crop=200)


@pytest.mark.parametrize("changed", [{"choice": "last"}, {"private": 0}, {"size": 0}, {"public_images": 0}])
def test_settings_out_of_range_are_named(folder: Path, changed: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="must be"):
        load_celeba(folder, **changed)  # type: ignore[arg-type]
