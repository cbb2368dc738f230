"""Picture grids on a page: private images above their reconstructions (Fig. 2 to 11)."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightleak.core.image_similarity import matched_psnr, psnr
from lightleak.core.matching import match_rows
from lightleak.experiments.unit import write_whole
from lightleak.report.page import Block, Page, Section, fill, render
from lightleak.report.sections.pictures import PictureRow, picture_row

FILE_NAME = "figure.html"
PER_LINE = 10


def kept_pictures(name: str, images: Tensor, true: Tensor | None = None) -> dict[str, Any]:
    """Images in [0, 1] ``[n, c, h, w]`` as a unit keeps them, with their mean PSNR where the true ones are given."""
    if true is not None:
        name += f", mean PSNR {float(matched_psnr(images.flatten(1), true.flatten(1)).mean()):.1f} dB"
    return picture_row(name, to_bytes(images.cpu()).numpy(), private=True)


def pictures_file(folder: Path, unit: str) -> Path:
    """Where the pictures of a unit are kept."""
    return folder / "pictures" / f"{unit}.json"


def write_figure(
    folder: Path, title: str, notes: Sequence[str], units: Sequence[str], shown: int | None = None
) -> None:
    """Write the page of the pictures that units have kept.

    Args:
        folder: the run folder.
        title: heading of the page.
        notes: paragraphs above the pictures.
        units: each has kept the client's images and then what an attack made of them.
        shown: number of images that are shown; None: all of them.
    """
    kept = [json.loads(pictures_file(folder, unit).read_text()) for unit in units]
    rows = [row for i, of_unit in enumerate(kept) for row in (of_unit if i == 0 else of_unit[1:])]
    blocks = [_block(row["name"], row["png"][:shown]) for row in rows]
    section = Section("pictures", "Pictures", (*notes, *blocks))
    page = render(Page(title, "images", [section], private="It shows a client's images.", genre="reproduction"))
    write_whole(folder / FILE_NAME, page)


def _block(title: str, images: Sequence[str]) -> Block:
    starts = range(0, len(images), PER_LINE)
    rows = [PictureRow(f"from {start + 1}", True, tuple(images[start : start + PER_LINE])) for start in starts]
    return fill("sections", "picture_table", title, rows)


def to_bytes(images: Tensor) -> Tensor:
    """Images in [0, 1] as uint8; what lies outside is clipped.

    >>> to_bytes(torch.tensor([-1.0, 0.5, 1.0]))
    tensor([  0, 128, 255], dtype=torch.uint8)
    """
    return (images.clamp(0, 1) * 255).round().to(torch.uint8)


def order_of(true: Tensor, made: Tensor) -> Tensor:
    """For each true image the one of ``made`` it is paired with, by total PSNR; both ``[n, c, h, w]`` in [0, 1]."""
    return match_rows(psnr(true.flatten(1), made.flatten(1)))
