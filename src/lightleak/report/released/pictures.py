"""Pictures for a report: made images above the private ones they come nearest to (thesis Fig. 5.1)."""

import base64
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lightleak.core.errors import UsageError
from lightleak.report.released.wording import attack_name, model_name, search_name

FILE_NAME = "pictures.json"
SCHEMA_VERSION = 1
SHOWN_SIDE = 64
"""Pixels that the longer side of a picture has on the page, at least."""


@dataclass(frozen=True)
class PictureRow:
    """One row of a grid.

    Attributes:
        name: what the pictures are.
        private: they show private data.
        sources: one PNG per class, as a data URI.
    """

    name: str
    private: bool
    sources: tuple[str, ...]


@dataclass(frozen=True)
class PictureGrid:
    """Pictures by class.

    Attributes:
        target: the released network.
        attack: name of the attack or baseline.
        search: latent search.
        classes: names of the columns.
        rows: at least one.
    """

    target: str
    attack: str
    search: str
    classes: tuple[str, ...]
    rows: tuple[PictureRow, ...]

    @property
    def title(self) -> str:
        """What was attacked, and how, in words."""
        return " · ".join([attack_name(self.attack), search_name(self.search), f"target {model_name(self.target)}"])

    @property
    def shows_private(self) -> bool:
        """Private data are among the pictures."""
        return any(row.private for row in self.rows)


def picture_row(name: str, pixels: np.ndarray, private: bool) -> dict[str, Any]:
    """A row of a grid as `FILE_NAME` holds it; ``pixels`` are uint8 ``[classes, c, h, w]``."""
    return {"name": name, "private": private, "png": [base64.b64encode(png(_spread(one))).decode() for one in pixels]}


def pictures_json(grids: Sequence[Mapping[str, Any]]) -> str:
    """The text of `FILE_NAME`: grids of ``target``, ``attack``, ``search``, ``classes``, ``rows`` (`picture_row`)."""
    return json.dumps({"schema_version": SCHEMA_VERSION, "grids": list(grids)})


def load_pictures(folder: Path, redact: bool = False) -> tuple[PictureGrid, ...]:
    """The grids of a run folder; none where it has no pictures. With ``redact`` none that is private, nor made up.

    Made images are as telling as the private ones that they are meant to look like, so a redacted page shows neither.

    Raises:
        UsageError: the file is not what `pictures_json` writes.
    """
    file = folder / FILE_NAME
    if redact or not file.is_file():
        return ()
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
        if raw["schema_version"] != SCHEMA_VERSION:
            raise UsageError(f"{file}: schema_version must be {SCHEMA_VERSION}, got {raw['schema_version']!r}")
        return tuple(_grid(grid) for grid in raw["grids"])
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{file}: expected grids of pictures, got {type(error).__name__}: {error}") from error


def _grid(raw: Mapping[str, Any]) -> PictureGrid:
    classes = tuple(map(str, raw["classes"]))
    rows = tuple(
        PictureRow(str(row["name"]), bool(row["private"]), tuple(_source(text) for text in row["png"]))
        for row in raw["rows"]
    )
    if any(len(row.sources) != len(classes) for row in rows):
        raise ValueError(f"a row needs one picture for each of {len(classes)} classes")
    return PictureGrid(str(raw["target"]), str(raw["attack"]), str(raw["search"]), classes, rows)


def _source(text: str) -> str:
    """A data URI. Decoding and encoding again leaves nothing in the page but base64."""
    return "data:image/png;base64," + base64.b64encode(base64.b64decode(text, validate=True)).decode()


def png(pixels: np.ndarray) -> bytes:
    r"""A PNG file of uint8 ``[h, w, 1]`` (grey) or ``[h, w, 3]`` (red, green, blue).

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
