"""Pictures in a report: PNG files that an independent reader reads back, and no private one on a redacted page."""

import base64
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lightleak.core.errors import UsageError
from lightleak.report.read import Run
from lightleak.report.sections.pictures import (
    FILE_NAME,
    load_pictures,
    picture_row,
    pictures_json,
    pictures_section,
    png,
)

NAMES = {"target": "resnet-6", "attack": "plgmi", "search": "gradient"}


def read(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def pixels(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("shape", [(1, 1, 1), (8, 8, 1), (5, 3, 3), (64, 64, 3)])
def test_a_png_is_read_back_to_the_bit(shape: tuple[int, int, int]) -> None:
    image = pixels(*shape)
    assert np.array_equal(read(png(image)), image)


@pytest.mark.parametrize("bad", [np.zeros((2, 2), np.uint8), np.zeros((2, 2, 2), np.uint8), np.zeros((2, 2, 1))])
def test_a_png_is_of_grey_or_coloured_bytes(bad: np.ndarray) -> None:
    with pytest.raises(UsageError, match="a picture must be uint8"):
        png(bad)


def run(folder: Path) -> Run:
    return Run("run", folder)


def written(folder: Path, *rows: dict[str, object]) -> Run:
    (folder / FILE_NAME).write_text(pictures_json([{**NAMES, "classes": ["a", "b"], "rows": list(rows)}]))
    return run(folder)


def test_pictures_come_back_as_they_were_and_large_enough(tmp_path: Path) -> None:
    small, large = pixels(2, 1, 8, 8), pixels(2, 3, 64, 64)
    (grid,) = load_pictures(
        written(tmp_path, picture_row("made up", small, False), picture_row("private", large, True))
    )
    assert (grid.classes, grid.attack, grid.search, grid.target) == (("a", "b"), "plgmi", "gradient", "resnet-6")
    section = pictures_section([grid], lambda one: one.attack)
    assert section is not None
    (drawn,) = section.blocks
    assert "<h3>plgmi</h3>" in drawn and re.findall(r'scope="col">(\w+)<', drawn) == ["a", "b"]
    sources = re.findall(r'src="([^"]+)"', drawn)
    assert [(row.name, row.private) for row in grid.rows] == [("made up", False), ("private", True)]
    for shown_row, images, scale in zip((sources[:2], sources[2:]), (small, large), (8, 1), strict=True):
        for source, image in zip(shown_row, images, strict=True):
            head, data = source.split(",")
            assert head == "data:image/png;base64"
            shown = read(base64.b64decode(data))
            assert shown.shape == (64, 64, len(image))
            assert np.array_equal(shown[::scale, ::scale], image.transpose(1, 2, 0))
            assert np.array_equal(shown[scale - 1 :: scale, scale - 1 :: scale], image.transpose(1, 2, 0))


def test_a_redacted_page_and_a_run_without_pictures_have_none(tmp_path: Path) -> None:
    assert load_pictures(run(tmp_path)) == ()
    folder = written(tmp_path, picture_row("made up", pixels(2, 1, 8, 8), False))
    assert load_pictures(folder, redact=True) == ()
    assert not load_pictures(folder)[0].rows[0].private
    assert pictures_section([], lambda one: "") is None


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        json.dumps({"schema_version": 2, "grids": []}),
        json.dumps({"schema_version": 1, "grids": [{"target": "x"}]}),
        pictures_json([{**NAMES, "classes": ["a"], "rows": [{"name": "n", "private": False, "png": []}]}]),
        pictures_json([{**NAMES, "classes": ["a"], "rows": [{"name": "n", "private": False, "png": ['"><']}]}]),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(UsageError, match=FILE_NAME):
        load_pictures(run(tmp_path))
