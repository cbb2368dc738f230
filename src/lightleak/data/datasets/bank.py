"""Bank Marketing, one of ProVFL's tables."""

from pathlib import Path

import pandas as pd

from lightleak.data.assembly import split_table
from lightleak.data.datasets.codebook import domain
from lightleak.data.datasets.registry import Download, dataset
from lightleak.data.schema import Column, TableSchema
from lightleak.data.sources import find_file, reading
from lightleak.data.table import DatasetCard, Table

CARD = DatasetCard(
    name="bank",
    title="Bank Marketing",
    urls=("https://archive.ics.uci.edu/ml/machine-learning-databases/00222/bank.zip",),
    files=("bank-full.csv",),
    license="CC BY 4.0",
    citation="S. Moro, P. Rita, P. Cortez: Bank Marketing. UCI Machine Learning Repository, dataset 222, 2012. "
    "doi:10.24432/C5K306",
    notes=(
        "ProVFL's table (Table III, 'Bankmk'): 45,211 rows, 16 features, encoded width 51, 'unknown' kept as a "
        "category as the codebook does. Reads UCI's semicolon file and a comma-separated copy whose columns stand in "
        "another order; columns are put into UCI's order. No checksum of UCI's own file is known; the comma-separated "
        "copy this loader was checked on has SHA-256 "
        "f88fc99a0f58a6852add4d6ff06e65f75dc6aea38a80fd2adcc072fcfaafde91. A fifth of the rows is held out by seed. "
        "duration is known only after the call that decides the label: drop it to model what a bank could predict."
    ),
)

SCHEMA = TableSchema(
    (
        Column.integer("age"),
        Column.categorical(
            "job",
            domain(
                "admin., unknown, unemployed, management, housemaid, entrepreneur, student, blue-collar, "
                "self-employed, retired, technician, services"
            ),
        ),
        Column.categorical("marital", ["married", "divorced", "single"]),
        Column.categorical("education", ["unknown", "secondary", "primary", "tertiary"]),
        Column.categorical("default", ["no", "yes"]),
        Column.integer("balance"),
        Column.categorical("housing", ["no", "yes"]),
        Column.categorical("loan", ["no", "yes"]),
        Column.categorical("contact", ["unknown", "telephone", "cellular"]),
        Column.integer("day"),
        Column.categorical("month", domain("jan, feb, mar, apr, may, jun, jul, aug, sep, oct, nov, dec")),
        Column.integer("duration"),
        Column.integer("campaign"),
        Column.integer("pdays"),
        Column.integer("previous"),
        Column.categorical("poutcome", ["unknown", "other", "failure", "success"]),
    ),
    Column.categorical("y", ["no", "yes"]),
    sensitive=("age", "marital", "balance"),
)


@dataset(CARD, Download(CARD.urls[0], "bank.zip", members=("bank-full.csv",)))
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
    return split_table(CARD, SCHEMA, frame, seed)
