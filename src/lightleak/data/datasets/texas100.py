"""Texas-100: hospital stays as 6,169 binary features and the 100 most frequent procedures."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd

from lightleak.core.errors import DataError
from lightleak.data.assembly import TEST_FRACTION
from lightleak.data.datasets.description import describe
from lightleak.data.datasets.made import made_card, made_rows
from lightleak.data.datasets.registry import dataset
from lightleak.data.schema import Column, TableSchema
from lightleak.data.sources import find_file, reading
from lightleak.data.splits import holdout
from lightleak.data.table import Table

N_CLASSES, N_FEATURES = 100, 6169
BLOCK_LINES = 1024  # lines read at a time: 13 MB of the official file
TABLE = describe("texas100")
CARD = TABLE.card


@dataset(TABLE.card, *TABLE.downloads)
def load_texas100(folder: Path, seed: int, *, made: int = 0) -> Table:
    """Load Texas-100; the label is ``procedure``, 1 to 100.

    Args:
        folder: folder with ``texas/100/feats`` and ``texas/100/labels``, or ``feats`` and ``labels``.
        seed: root seed of the split.
        made: rows to make in these columns in place of reading the files, see `made_rows`; 0: none.

    Raises:
        DataError: a file is missing, holds something else than 0 and 1, or the two differ in length.
    """
    if made:
        card, drawn = made_card(CARD, made), made_rows(_schema(N_FEATURES), made)
        classes = drawn.pop("procedure").to_numpy().astype("int64")
        features = drawn.to_numpy().astype("uint8")
    else:
        card, (features, classes) = CARD, _read(folder)
    schema, parts = _schema(features.shape[1]), []
    for rows in holdout(len(features), TEST_FRACTION, seed):
        part = pd.DataFrame(features[rows], columns=[column.name for column in schema.columns], copy=False)
        part["procedure"] = classes[rows].astype(str).astype(object)
        parts.append(part)
    return Table(card, schema, *parts)


def _read(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features ``[n, d]`` and classes ``[n]`` of the official files."""
    feats, labels = (find_file(folder, name, Path(name).name, f"{name}.gz") for name in CARD.files)
    with reading(feats):
        features = _read_bits(feats)
    with reading(labels):
        classes = np.loadtxt(labels, dtype="int64", ndmin=1)
    if len(classes) != len(features):
        raise DataError(f"{labels} must have {len(features)} lines, one per line of {feats.name}, got {len(classes)}")
    if classes.min() < 1 or classes.max() > N_CLASSES:
        raise DataError(f"{labels} must hold classes 1 to {N_CLASSES}, got {classes.min()} to {classes.max()}")
    return features, classes


def _schema(n_features: int) -> TableSchema:
    label = Column.categorical("procedure", [str(i) for i in range(1, N_CLASSES + 1)])
    return TableSchema(tuple(Column.integer(f"feature_{i}", 0, 1) for i in range(n_features)), label)


def _read_bits(path: Path) -> np.ndarray:
    """Comma-separated 0s and 1s as uint8 ``[n, d]``.

    Every line of such a file is equally long, so that the bits are every second byte: parsing the 830 MB of the
    official file as numbers takes minutes, this takes seconds. Read in blocks, it needs twice the memory of its result.
    """
    blocks = []
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        first = file.readline().removesuffix(b"\n") + b"\n"
        width, raw = len(first), first
        while raw:
            if len(raw) % width == width - 1:  # the last line may lack its line feed
                raw += b"\n"
            blocks.append(_bits_of_lines(path, raw, width))
            raw = file.read(BLOCK_LINES * width)
    return np.concatenate(blocks)


def _bits_of_lines(path: Path, raw: bytes, width: int) -> np.ndarray:
    """The bits of whole lines of ``width`` bytes, uint8 ``[lines, width / 2]``."""
    if len(raw) % width or width % 2:
        raise DataError(f"{path} must hold lines of 0 and 1 with commas between them, all equally long")
    lines = np.frombuffer(raw, dtype=np.uint8).reshape(-1, width)
    bits, separators = lines[:, 0::2] - ord("0"), lines[:, 1::2]
    if bits.max() > 1 or (separators[:, :-1] != ord(",")).any() or (separators[:, -1] != ord("\n")).any():
        raise DataError(f"{path} must hold lines of 0 and 1 with commas between them, and nothing else")
    return bits
