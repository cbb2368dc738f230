"""Law school admissions (project SEAPHE)."""

from pathlib import Path

import pandas as pd

from lightleak.data.assembly import split_table
from lightleak.data.datasets.description import describe
from lightleak.data.datasets.registry import dataset
from lightleak.data.sources import find_file, reading
from lightleak.data.table import Table

TABLE = describe("lawschool")


@dataset(TABLE.card, *TABLE.downloads)
def load_lawschool(folder: Path, seed: int) -> Table:
    """Load the law school table; the label is ``admit``.

    Args:
        folder: folder with ``lawschs1_1.dta`` (all rows) or ``lawschool.csv.gz`` (a part); the former wins.
        seed: root seed of the split.

    Raises:
        DataError: no file is there, or it is not what it should be.
    """
    path = find_file(folder, *TABLE.card.files)
    with reading(path):
        frame = pd.read_stata(path) if path.suffix == ".dta" else pd.read_csv(path, encoding="utf-8-sig")
        frame = frame.rename(columns=str.lower)[[*TABLE.schema.names, TABLE.schema.label.name]]
    # An unknown race is an empty string; one copy of the table pads it with blanks.
    blank = frame["race"].astype(object).map(lambda race: isinstance(race, str) and not race.strip())
    return split_table(TABLE.card, TABLE.schema, frame[~blank.astype(bool)].dropna(), seed)
