"""Fair's survey on extramarital affairs: real answers with a sensitive label, shipped inside statsmodels."""

from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from lightleak.core.errors import DataError
from lightleak.data.assembly import split_table
from lightleak.data.datasets.description import describe
from lightleak.data.datasets.registry import dataset
from lightleak.data.sources import reading
from lightleak.data.table import Table

TABLE = describe("fair")


@dataset(TABLE.card, *TABLE.downloads)
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
    for name, meanings in TABLE.codes.items():
        frame[name] = frame[name].astype("int64").astype(str).map(meanings)
    frame["affair"] = (frame["affairs"] > 0).map({False: "no", True: "yes"})
    return split_table(TABLE.card, TABLE.schema, frame, seed)
