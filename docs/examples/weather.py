"""A dataset in one file: a card, a schema and a loader."""

from pathlib import Path

import numpy as np
import pandas as pd

from lightleak.core.seeds import numpy_generator
from lightleak.data.assembly import split_table
from lightleak.data.datasets.registry import dataset
from lightleak.data.schema import Column, TableSchema
from lightleak.data.table import DatasetCard, Table

CARD = DatasetCard(
    name="weather",
    title="Made-up weather, an example",
    urls=(),  # official addresses of the files
    files=(),  # their names in the dataset's folder; `sha256` holds their checksums
    license="CC0",
    citation="LightLeak's documentation",
)
SCHEMA = TableSchema(
    (
        Column.integer("wind", 0, 12),
        Column.continuous("temperature", -20, 40),
        Column.categorical("sky", ["clear", "dull"]),
    ),
    Column.categorical("rain", ["no", "yes"]),
    sensitive=("rain",),
)


@dataset(CARD)
def load_weather(folder: Path, seed: int, *, rows: int = 500) -> Table:
    """Load the table; keyword-only arguments are options: `data: {name: weather, options: {rows: 100}}`."""
    draw = numpy_generator(seed, "weather")  # a real loader reads `folder` here
    sky = draw.choice(["clear", "dull"], rows)
    frame = pd.DataFrame(
        {
            "wind": draw.integers(0, 13, rows),
            "temperature": draw.normal(12, 8, rows).clip(-20, 40).round(1),
            "sky": sky,
            "rain": np.where((sky == "dull") & (draw.random(rows) < 0.6), "yes", "no"),
        }
    )
    return split_table(CARD, SCHEMA, frame, seed)
