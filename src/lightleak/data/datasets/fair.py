"""Fair's survey on extramarital affairs: real answers with a sensitive label, shipped inside statsmodels."""

from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from lightleak.core.errors import DataError
from lightleak.data.assembly import split_table
from lightleak.data.datasets.registry import dataset
from lightleak.data.schema import Column, TableSchema
from lightleak.data.sources import reading
from lightleak.data.table import DatasetCard, Table

CARD = DatasetCard(
    name="fair",
    title="Fair's survey on extramarital affairs (Redbook, 1974)",
    urls=(),
    files=(),
    license="Included in statsmodels with permission of the author",
    citation="R. Fair: A theory of extramarital affairs. Journal of Political Economy 86(1), 1978, pp. 45-61",
    notes=(
        "6,366 answers of married women, 8 features, encoded width 25. Ships with statsmodels, so nothing is "
        "downloaded. The label says whether the time spent in affairs is above 0 (32.2%). Age, years married, "
        "children and education are coded in the survey by the middle of an interval (such as 17.5 years): continuous "
        "columns. A fifth of the rows is held out by seed."
    ),
)

_OCCUPATIONS = {
    1: "student",
    2: "farming, semi-skilled or unskilled",
    3: "white-collar",
    4: "teacher, nurse, artist or skilled",
    5: "managerial or business",
    6: "professional with advanced degree",
}
_MEANINGS: dict[str, dict[int, str]] = {
    "rate_marriage": {1: "very poor", 2: "poor", 3: "fair", 4: "good", 5: "very good"},
    "religious": {1: "not", 2: "mildly", 3: "fairly", 4: "strongly"},
    "occupation": _OCCUPATIONS,
    "occupation_husb": _OCCUPATIONS,
}
_ORDER = ["rate_marriage", "age", "yrs_married", "children", "religious", "educ", "occupation", "occupation_husb"]
SCHEMA = TableSchema(
    tuple(
        Column.categorical(name, tuple(_MEANINGS[name].values())) if name in _MEANINGS else Column.continuous(name)
        for name in _ORDER
    ),
    Column.categorical("affair", ["no", "yes"]),
    sensitive=("affair", "rate_marriage", "religious"),
)


@dataset(CARD)
def load_fair(folder: Path, seed: int) -> Table:
    """Load the survey; the label is ``affair``.

    Args:
        folder: not used; the file is part of statsmodels.
        seed: root seed of the split.

    Raises:
        DataError: statsmodels is not installed or does not hold the file.
    """
    # The package is found, not imported: importing statsmodels takes longer than everything else here.
    spec = find_spec("statsmodels")
    if spec is None or not spec.submodule_search_locations:
        raise DataError("dataset 'fair' ships inside statsmodels, which is not installed: pip install statsmodels")
    path = Path(spec.submodule_search_locations[0]) / "datasets" / "fair" / "fair.csv"
    with reading(path):
        frame = pd.read_csv(path)
    for name, meanings in _MEANINGS.items():
        frame[name] = frame[name].astype("int64").map(meanings)
    frame["affair"] = (frame["affairs"] > 0).map({False: "no", True: "yes"})
    return split_table(CARD, SCHEMA, frame, seed)
