"""Picture grids as one self-contained HTML page: private images above what attacks make of them (Fig. 2 to 11)."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lightleak.core.errors import DataError
from lightleak.core.image_similarity import psnr
from lightleak.core.matching import match_rows
from lightleak.experiments.unit import write_whole
from lightleak.report.released.pictures import png

FILE_NAME = "figure.html"
PER_LINE = 10
SHOWN_SIDE = 48
"""Pixels that an image has on the page."""

_STYLE = (
    "body{font:15px/1.5 sans-serif;margin:2rem;max-width:72rem}figure{margin:0 0 1.2rem}"
    "figcaption{color:#444}img{image-rendering:pixelated;display:block}"
)


@dataclass(frozen=True)
class PictureBlock:
    """Images under one caption.

    Attributes:
        caption: what they are.
        pixels: uint8 ``[n, c, h, w]``.

    Raises:
        DataError: pixels of another type or shape.
    """

    caption: str
    pixels: Tensor

    def __post_init__(self) -> None:
        if self.pixels.ndim != 4 or self.pixels.dtype != torch.uint8 or not len(self.pixels):
            raise DataError(f"pictures must be uint8 [n, c, h, w], got {self.pixels.dtype} {list(self.pixels.shape)}")


def figure_page(title: str, notes: Sequence[str], blocks: Sequence[PictureBlock]) -> str:
    """The page; its images are part of it.

    Args:
        title: heading.
        notes: paragraphs below it.
        blocks: at least one; with images of one size.
    """
    shown = "".join(_figure(block) for block in blocks)
    told = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{told}{shown}</body></html>\n"
    )


def write_figure(folder: Path, title: str, notes: Sequence[str], blocks: Sequence[PictureBlock]) -> Path:
    """Write `FILE_NAME` into a run folder and return its path."""
    write_whole(folder / FILE_NAME, figure_page(title, notes, blocks))
    return folder / FILE_NAME


def to_bytes(images: Tensor) -> Tensor:
    """Images in [0, 1] as uint8; what lies outside is cut.

    >>> to_bytes(torch.tensor([-1.0, 0.5, 1.0]))
    tensor([  0, 128, 255], dtype=torch.uint8)
    """
    return (images.clamp(0, 1) * 255).round().to(torch.uint8)


def order_of(true: Tensor, made: Tensor) -> Tensor:
    """For each true image the one of ``made`` it is paired with, by total PSNR; both ``[n, c, h, w]`` in [0, 1]."""
    return match_rows(psnr(true.flatten(1), made.flatten(1)))


def _figure(block: PictureBlock) -> str:
    sheet = _sheet(block.pixels.numpy())
    source = base64.b64encode(png(sheet)).decode()
    height, width = sheet.shape[:2]
    scale = SHOWN_SIDE / block.pixels.shape[-1]
    return (
        f"<figure><figcaption>{escape(block.caption)}</figcaption>"
        f'<img alt="{escape(block.caption)}" width="{round(width * scale)}" height="{round(height * scale)}" '
        f'src="data:image/png;base64,{source}"></figure>'
    )


def _sheet(pixels: np.ndarray) -> np.ndarray:
    """``[n, c, h, w]`` as one picture ``[lines * (h + 1), PER_LINE * (w + 1), c]``, white between and after them."""
    n, channels, height, width = pixels.shape
    across = min(n, PER_LINE)
    lines = -(-n // across)
    whole = np.full((lines * across, channels, height + 1, width + 1), 255, dtype=np.uint8)
    whole[:n, :, :height, :width] = pixels
    grid = whole.reshape(lines, across, channels, height + 1, width + 1).transpose(0, 3, 1, 4, 2)
    return grid.reshape(lines * (height + 1), across * (width + 1), channels)
