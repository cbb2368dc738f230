"""Census-Income (KDD), 1994 and 1995, one of ProVFL's tables."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pandas as pd

from lightleak.data.assembly import build_table, split_table
from lightleak.data.datasets.description import describe
from lightleak.data.datasets.registry import dataset
from lightleak.data.sources import find_file
from lightleak.data.table import Table

TABLE = describe("census")


@dataset(TABLE.card, *TABLE.downloads)
def load_census(
    folder: Path, seed: int, *, part: Literal["all", "train", "test"] = "all", instance_weight: bool = True
) -> Table:
    """Load Census-Income; the label is ``income``.

    Args:
        folder: folder with ``census-income.data.gz`` and ``census-income.test.gz`` (or both unpacked).
        seed: root seed of the split where ``part`` names one file; ``all`` keeps the official split.
        part: both official files, or one of them.
        instance_weight: keep the column ``instance-weight``.

    Raises:
        DataError: a file is missing or not what it should be.
    """
    columns = (column for column in TABLE.schema.columns if instance_weight or column.name != "instance-weight")
    card, schema = TABLE.card, replace(TABLE.schema, columns=tuple(columns))
    if part == "all":
        train, test = (_read(find_file(folder, name, name.removesuffix(".gz"))) for name in card.files)
        return build_table(card, schema, train, test)
    name = card.files[0] if part == "train" else card.files[1]
    return split_table(card, schema, _read(find_file(folder, name, name.removesuffix(".gz"))), seed)


def _read(path: Path) -> pd.DataFrame:
    # 'NA' is one of the categories of hispanic-origin.
    return TABLE.read_bare(path, dtype={column.name: "category" for column in TABLE.schema.categorical})
