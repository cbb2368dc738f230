"""German Credit (Statlog)."""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from lightleak.data.assembly import split_table
from lightleak.data.datasets.description import describe
from lightleak.data.datasets.registry import dataset
from lightleak.data.schema import Column
from lightleak.data.sources import find_file, reading
from lightleak.data.table import Table

TABLE = describe("german")
LABEL = TABLE.schema.label.name


@dataset(TABLE.card, *TABLE.downloads)
def load_german(folder: Path, seed: int, *, codes: bool = False) -> Table:
    """Load German Credit; the label is ``credit``.

    Args:
        folder: folder with ``german.data``.
        seed: root seed of the split.
        codes: keep codes such as ``A11`` in place of the codebook's words.

    Raises:
        DataError: the file is missing or not what it should be.
    """
    path = find_file(folder, "german.data")
    with reading(path):
        frame = pd.read_csv(path, sep=" ", names=[*TABLE.schema.names, LABEL])
    frame[LABEL] = frame[LABEL].map({1: "good", 2: "bad"})
    if not codes:
        # A code the codebook does not know stays unchanged, and the schema refuses it by name.
        return split_table(TABLE.card, TABLE.schema, frame.replace(TABLE.codes), seed)
    columns = tuple(
        Column.categorical(column.name, list(TABLE.codes[column.name])) if column.name in TABLE.codes else column
        for column in TABLE.schema.columns
    )
    return split_table(TABLE.card, replace(TABLE.schema, columns=columns), frame, seed)
