"""Law school admissions (project SEAPHE)."""

from pathlib import Path

import pandas as pd

from lightleak.data.assembly import split_table
from lightleak.data.datasets.codebook import domain
from lightleak.data.datasets.registry import Download, dataset
from lightleak.data.schema import Column, TableSchema
from lightleak.data.sources import find_file, reading
from lightleak.data.table import DatasetCard, Table

CARD = DatasetCard(
    name="lawschool",
    title="Law school admissions",
    urls=("http://www.seaphe.org/databases/FOIA/lawschs1_1.dta",),
    files=("lawschs1_1.dta", "lawschool.csv.gz"),
    sha256={"lawschool.csv.gz": "0dc2761917b953382451bb46c39fa5aecadfb06ed9fe2e30bf6bf0c2a6d38b7c"},
    license="Public records (US Freedom of Information Act requests of project SEAPHE); no license stated",
    citation="L. F. Wightman: LSAC national longitudinal bar passage study, 1998, as TabLeak cites the table; "
    "collected by project SEAPHE, R. Sander",
    notes=(
        "TabLeak's table (Table 8): 7 features, encoded width 39 with the domains of the whole file; rows without "
        "label or with any missing value dropped; columns enroll, asian, black, hispanic, white, missingrace and urm "
        "dropped. The official Stata file lawschs1_1.dta gives 96,584 rows in the paper; no checksum of it is known, "
        "and the project's site may be gone. The comma-separated copy lawschool.csv.gz whose checksum is known is cut "
        "at the 65,536 lines of an old spreadsheet: 65,535 rows, 56,117 of them complete, from 13 of the 24 colleges. "
        "So the fractions of ProVFL's Table IV differ there: race Black .0972 (paper .0863), resident 0 .6761 "
        "(.6908), gender 0 .4393 (.4427). LSAT and GPA are continuous as in the paper. A fifth of the rows is held "
        "out by seed."
    ),
)

COLLEGES = domain(
    "Arizona, Arizona State, Baltimore, Buffalo, Cincinnati, Cleveland State, George Mason, Hawaii, Houston, Idaho, "
    "Louisiana State, Michigan, Minnesota, Missouri at Columbia, Missouri at Kansas City, Nevada Las Vegas, "
    "North Carolina, Northern Illinois, Ohio State, Virginia, Washington, West Virginia, William and Mary, Wyoming"
)
SCHEMA = TableSchema(
    (
        Column.continuous("lsat"),
        Column.continuous("gpa"),
        Column.categorical("race", ["Asian", "Black", "Hispanic", "White"]),
        Column.categorical("resident", ["0", "1"]),
        Column.categorical("college", COLLEGES),
        # '200x': the college did not say which year.
        Column.categorical("year", ["2005", "2006", "2007", "2008", "200x"]),
        Column.categorical("gender", ["0", "1"]),
    ),
    Column.categorical("admit", ["0", "1"]),
    sensitive=("race", "gender"),
)


@dataset(CARD, Download(CARD.urls[0], CARD.files[0]))
def load_lawschool(folder: Path, seed: int) -> Table:
    """Load the law school table; the label is ``admit``.

    Args:
        folder: folder with ``lawschs1_1.dta`` (all rows) or ``lawschool.csv.gz`` (a part); the former wins.
        seed: root seed of the split.

    Raises:
        DataError: no file is there, or it is not what it should be.
    """
    path = find_file(folder, *CARD.files)
    with reading(path):
        frame = pd.read_stata(path) if path.suffix == ".dta" else pd.read_csv(path, encoding="utf-8-sig")
        frame = frame.rename(columns=str.lower)[[*SCHEMA.names, SCHEMA.label.name]]
    # An unknown race is an empty string; one copy of the table pads it with blanks.
    blank = frame["race"].astype(object).map(lambda race: isinstance(race, str) and not race.strip())
    return split_table(CARD, SCHEMA, frame[~blank.astype(bool)].dropna(), seed)
