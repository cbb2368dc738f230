"""Pictures of attacked images: made ones above the private ones that they come nearest to."""

import base64
import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightleak.core.errors import UsageError
from lightleak.report.blocks import Section
from lightleak.report.page import fill
from lightleak.report.read import Run

FILE_NAME = "pictures.json"
SCHEMA_VERSION = 1
SHOWN_SIDE = 64
"""Pixels that the longer side of a picture has on the page, at least."""


@dataclass(frozen=True)
class PictureRow:
    """One row of a grid: what the pictures are, whether they show private data, and one PNG in base64 per class."""

    name: str
    private: bool
    png: tuple[str, ...]


@dataclass(frozen=True)
class PictureGrid:
    """Pictures by class, of one attack with one latent search on one network."""

    target: str
    attack: str
    search: str
    classes: tuple[str, ...]
    rows: tuple[PictureRow, ...]


def picture_row(name: str, pixels: np.ndarray, private: bool) -> dict[str, Any]:
    """A row of a grid as `FILE_NAME` has it; ``pixels`` are uint8 ``[classes, c, h, w]``."""
    return {"name": name, "private": private, "png": [base64.b64encode(png(_spread(one))).decode() for one in pixels]}


def pictures_json(grids: Sequence[Mapping[str, Any]]) -> str:
    """The text of `FILE_NAME`: grids of ``target``, ``attack``, ``search``, ``classes``, ``rows`` (`picture_row`)."""
    return json.dumps({"schema_version": SCHEMA_VERSION, "grids": list(grids)})


def load_pictures(run: Run, redact: bool = False) -> tuple[PictureGrid, ...]:
    """The grids of a run; none where it has no pictures, and none at all with ``redact``.

    Made images are as telling as the private ones that they are meant to look like, so a redacted page shows neither.

    Raises:
        UsageError: the file is no list of grids with one picture for each class in every row.
    """
    grids = () if redact else run.entries(FILE_NAME, PictureGrid, SCHEMA_VERSION, "grids")
    for row, classes in ((row, grid.classes) for grid in grids for row in grid.rows):
        if len(row.png) != len(classes):
            raise UsageError(f"{run.path / FILE_NAME}: expected {len(classes)} pictures in a row, got {len(row.png)}")
        for one in row.png:
            try:
                base64.b64decode(one, validate=True)
            except ValueError as error:
                raise UsageError(f"{run.path / FILE_NAME}: expected pictures in base64, got {error}") from error
    return grids


def pictures_section(grids: Sequence[PictureGrid], title: Callable[[PictureGrid], str]) -> Section | None:
    """Draw grids of pictures; None where there are none."""
    drawn = fill("sections", "pictures", [(grid, title(grid)) for grid in grids])
    return Section("pictures", "Pictures", (drawn,)) if grids else None


def png(pixels: np.ndarray) -> bytes:
    r"""A PNG file of uint8 ``[h, w, 1]`` (gray) or ``[h, w, 3]`` (red, green, blue).

    >>> png(np.zeros((1, 1, 1), np.uint8))[:8]
    b'\x89PNG\r\n\x1a\n'

    Raises:
        UsageError: another shape or type.
    """
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in (1, 3):
        raise UsageError(f"a picture must be uint8 [h, w, 1 or 3], got {pixels.dtype} {list(pixels.shape)}")
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    lines = np.zeros((height, 1 + width * channels), dtype=np.uint8)  # each line begins with its filter: none
    lines[:, 1:] = pixels.reshape(height, -1)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _spread(pixels: np.ndarray) -> np.ndarray:
    """``[c, h, w]`` to ``[h, w, c]``, each pixel repeated until the picture is large enough to look at."""
    scale = max(1, -(-SHOWN_SIDE // max(pixels.shape[1:])))
    return pixels.transpose(1, 2, 0).repeat(scale, axis=0).repeat(scale, axis=1)
