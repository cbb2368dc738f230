"""Bank Marketing, one of ProVFL's tables."""

from pathlib import Path

import pandas as pd

from lightleak.data.assembly import split_table
from lightleak.data.datasets.description import describe
from lightleak.data.datasets.registry import dataset
from lightleak.data.sources import find_file, reading
from lightleak.data.table import Table

TABLE = describe("bank")


@dataset(TABLE.card, *TABLE.downloads)
def load_bank(folder: Path, seed: int) -> Table:
    """Load Bank Marketing; the label is ``y`` (subscribed a term deposit).

    Args:
        folder: folder with ``bank-full.csv``.
        seed: root seed of the split.

    Raises:
        DataError: the file is missing or not what it should be.
    """
    path = find_file(folder, "bank-full.csv")
    with reading(path):
        with path.open(encoding="utf-8") as file:
            separator = ";" if ";" in file.readline() else ","
        frame = pd.read_csv(path, sep=separator)
    return split_table(TABLE.card, TABLE.schema, frame, seed)
