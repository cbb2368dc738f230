"""German Credit (Statlog); the file is part of the package (CC BY 4.0, see german.yaml)."""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from lightleak.data.assembly import split_table
from lightleak.data.datasets.description import describe
from lightleak.data.datasets.registry import dataset
from lightleak.data.schema import Column
from lightleak.data.table import Table

TABLE = describe("german")
LABEL = TABLE.schema.label.name


@dataset(TABLE.card, *TABLE.downloads)
def load_german(folder: Path, seed: int, *, codes: bool = False) -> Table:
    """Load German Credit; the label is ``credit``.

    Args:
        folder: not used; the file is part of the package.
        seed: root seed of the split.
        codes: keep codes such as ``A11`` in place of the codebook's words.
    """
    frame = pd.read_csv(Path(__file__).with_name("german.data"), sep=" ", names=[*TABLE.schema.names, LABEL])
    frame[LABEL] = frame[LABEL].map({1: "good", 2: "bad"})
    if not codes:
        return split_table(TABLE.card, TABLE.schema, frame.replace(TABLE.codes), seed)
    columns = tuple(
        Column.categorical(column.name, list(TABLE.codes[column.name])) if column.name in TABLE.codes else column
        for column in TABLE.schema.columns
    )
    return split_table(TABLE.card, replace(TABLE.schema, columns=columns), frame, seed)
