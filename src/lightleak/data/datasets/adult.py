"""Adult (census income 1994), TabLeak's and ProVFL's main table."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from lightleak.data.assembly import build_table
from lightleak.data.datasets.description import describe
from lightleak.data.datasets.registry import dataset
from lightleak.data.schema import Column
from lightleak.data.sources import find_file
from lightleak.data.table import Table

TABLE = describe("adult")
LABEL = TABLE.schema.label.name
WITH_GAPS = ("workclass", "occupation", "native-country")


@dataset(TABLE.card, *TABLE.downloads)
def load_adult(
    folder: Path,
    seed: int,
    *,
    missing: Literal["drop", "category"] = "drop",
    final_weight: bool = True,
    duplicates: Literal["keep", "drop"] = "keep",
) -> Table:
    """Load Adult; the label is ``salary``.

    Args:
        folder: folder with ``adult.data`` and ``adult.test``.
        seed: not used; the split is the official one.
        missing: ``drop`` rows with a missing value (TabLeak) or give it a ``category`` of its own (ProVFL).
        final_weight: keep the column ``fnlwgt``.
        duplicates: ``drop`` repeated rows within each part, after ``final_weight`` has been decided.

    Raises:
        DataError: a file is missing or not what it should be.
    """
    columns = [column for column in TABLE.schema.columns if final_weight or column.name != "fnlwgt"]
    names = [column.name for column in columns]
    # adult.test opens with a remark of the program that cut it, and its labels end in a full stop.
    read = (TABLE.read_bare(find_file(folder, file), comment="|") for file in TABLE.card.files)
    parts = [part[[*names, LABEL]] for part in read]
    if missing == "drop":
        parts = [part.dropna() for part in parts]
    if duplicates == "drop":
        parts = [part.drop_duplicates() for part in parts]
    if missing == "category":
        columns = [
            Column.categorical(column.name, column.categories, "category") if column.name in WITH_GAPS else column
            for column in columns
        ]
    return build_table(TABLE.card, replace(TABLE.schema, columns=tuple(columns)), *parts)
