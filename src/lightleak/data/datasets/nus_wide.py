"""NUS-WIDE: web images as low-level features, their tags, and the concepts they show."""

from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pandas as pd

from lightleak.core.errors import DataError
from lightleak.data.assembly import bounded_column
from lightleak.data.datasets.description import describe
from lightleak.data.datasets.registry import dataset
from lightleak.data.schema import Column, TableSchema
from lightleak.data.sources import find_file, reading
from lightleak.data.table import Table

FEATURES = {"CH": 64, "CM55": 225, "CORR": 144, "EDH": 73, "WT": 128}
"""Official low-level features with their widths: color histogram, block-wise color moments, color correlogram, edge
direction histogram, wavelet texture; 634 in all."""
N_TAGS = 1000
Concept = Literal["buildings", "grass", "animal", "water", "person"]
IMAGE_COLUMNS = tuple(f"{name}_{i}" for name, width in FEATURES.items() for i in range(width))
TEXT_COLUMNS = tuple(f"tag_{i}" for i in range(N_TAGS))
PARTS = ("Train", "Test")


TABLE = describe("nus-wide")
CARD = TABLE.card


@dataset(TABLE.card, *TABLE.downloads)
def load_nus_wide(folder: Path, seed: int, *, property: Concept = "grass", property_column: bool = False) -> Table:
    """Load NUS-WIDE; the label is ``concept``, one of the four that are not the property.

    Frames hold the property as a last column, uint8, under its name.

    Args:
        folder: folder with ``Low_Level_Features``, ``NUS_WID_Tags`` and ``Groundtruth``.
        seed: not used; the split is the official one.
        property: the concept whose fraction an attacker wants.
        property_column: the schema names the property, as its last feature.

    Raises:
        DataError: a file is missing, of another width or length, or not of numbers.
    """
    classes = [concept for concept in get_args(Concept) if concept != property]
    train, test = (_read_part(folder, part, property, classes) for part in PARTS)
    image = (bounded_column(Column.continuous(name), train, test) for name in IMAGE_COLUMNS)
    bits = (Column.integer(name, 0, 1) for name in (*TEXT_COLUMNS, *([property] if property_column else ())))
    return Table(CARD, TableSchema((*image, *bits), Column.categorical("concept", classes)), train, test)


def _read_part(folder: Path, part: str, target: str, classes: list[str]) -> pd.DataFrame:
    """Rows of one official part that show exactly one of the classes."""
    names = (target, *classes)
    paths = {name: find_file(folder, f"Groundtruth/TrainTestLabels/Labels_{name}_{part}.txt") for name in names}
    shown = _read_concepts(paths)
    of_classes = shown[classes].to_numpy()
    kept = np.flatnonzero(of_classes.sum(1) == 1)
    if not len(kept):
        raise DataError(f"{folder}: no image of the {part} part shows exactly one of {', '.join(classes)}")
    image = np.empty((len(kept), len(IMAGE_COLUMNS)), np.float32)
    start = 0
    for name, width in FEATURES.items():
        path = find_file(folder, f"Low_Level_Features/{part}_Normalized_{name}.dat")
        image[:, start : start + width] = _read(path, width, len(shown))[kept]
        start += width
    tags = _read_bits(find_file(folder, f"NUS_WID_Tags/{part}_Tags1k.dat"), N_TAGS, len(shown))[kept]
    frames = pd.DataFrame(image, columns=list(IMAGE_COLUMNS)), pd.DataFrame(tags, columns=list(TEXT_COLUMNS))
    frame = pd.concat(frames, axis=1)
    frame["concept"] = np.asarray(classes, dtype=object)[of_classes[kept].argmax(1)]
    frame[target] = shown[target].to_numpy()[kept]
    return frame


def _read_concepts(paths: dict[str, Path]) -> pd.DataFrame:
    """Which images show each concept, uint8; all files must be equally long."""
    shown: dict[str, np.ndarray] = {}
    n_rows = None
    for concept, path in paths.items():
        shown[concept] = _read_bits(path, 1, n_rows)[:, 0]
        n_rows = len(shown[concept])
    return pd.DataFrame(shown)


def _read_bits(path: Path, width: int, n_rows: int | None = None) -> np.ndarray:
    values = _read(path, width, n_rows, "uint8")
    if values.max() > 1:
        raise DataError(f"{path} must hold 0 and 1 only")
    return values


def _read(path: Path, width: int, n_rows: int | None = None, dtype: str = "float32") -> np.ndarray:
    """Numbers between blanks or tabs, ``[n, width]``; a line may end in a separator."""
    with reading(path):
        values = pd.read_csv(path, sep=r"\s+", header=None, dtype=dtype).to_numpy()
    if values.shape[1] != width:
        raise DataError(f"{path} must have {width} numbers per line, got {values.shape[1]}")
    if n_rows is not None and len(values) != n_rows:
        raise DataError(f"{path} must have {n_rows} lines, one per image, got {len(values)}")
    if not np.isfinite(values).all():
        raise DataError(f"{path} must hold finite numbers only")
    return values
