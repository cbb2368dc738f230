"""Heritage Health Prize: one row per member and year, put together from four official files."""

from pathlib import Path

import numpy as np
import pandas as pd

from lightleak.data.assembly import split_table
from lightleak.data.datasets.description import describe
from lightleak.data.datasets.made import made_card, made_rows
from lightleak.data.datasets.registry import dataset
from lightleak.data.schema import MISSING_CATEGORY
from lightleak.data.sources import find_file, reading
from lightleak.data.table import Table

TABLE = describe("health-heritage")

_KEYS = ["Year", "MemberID"]
# The order of the categories decides ties between equally frequent values; it is that of the paper's one-hot columns.
CLAIM_CATEGORIES = {
    name: TABLE.schema.column(name).categories
    for name in ("PrimaryConditionGroup", "Specialty", "ProcedureGroup", "PlaceSvc")
}
CHARLSON = ("0", "1-2", "3-4", "5+")
COUNTS = tuple(column.name for column in TABLE.schema.numerical)


@dataset(TABLE.card, *TABLE.downloads)
def load_health_heritage(folder: Path, seed: int, *, made: int = 0) -> Table:
    """Load Health Heritage; the label is ``max_CharlsonIndex``.

    Args:
        folder: folder with the four files of release 3.
        seed: root seed of the split.
        made: rows to make in these columns in place of reading the files, see `made_rows`; 0: none.

    Raises:
        DataError: a file is missing or not what it should be.
    """
    if made:
        return split_table(made_card(TABLE.card, made), TABLE.schema, made_rows(TABLE.schema, made), seed)
    claims, drugs, labs, members = (find_file(folder, name) for name in TABLE.card.files)
    with reading(claims):
        frame = _claims_per_year(pd.read_csv(claims, dtype={"PayDelay": str, "Year": str}))
    with reading(drugs):
        frame = frame.merge(_monthly_counts(pd.read_csv(drugs, dtype=str), "DrugCount"), on=_KEYS, how="left")
    with reading(labs):
        frame = frame.merge(_monthly_counts(pd.read_csv(labs, dtype=str), "LabCount"), on=_KEYS, how="left")
    with reading(members):
        people = pd.read_csv(members, dtype={"AgeAtFirstClaim": str, "Sex": str})
        frame = frame.merge(people[["MemberID", "AgeAtFirstClaim", "Sex"]], on="MemberID", how="left")
    return split_table(TABLE.card, TABLE.schema, frame.fillna(dict.fromkeys(COUNTS, 0)), seed)


def _claims_per_year(claims: pd.DataFrame) -> pd.DataFrame:
    """One row per member and year: counts, delays, most frequent categories and the label."""
    delay = claims["PayDelay"].str.rstrip("+").astype("int64")
    index = claims["CharlsonIndex"].astype(str)
    if unknown := sorted(set(index.unique()) - set(CHARLSON)):
        raise ValueError(f"column 'CharlsonIndex': expected one of {list(CHARLSON)}, got {unknown[:5]}")
    claims = claims.assign(PayDelay=delay, ill=index != CHARLSON[0])
    grouped = claims.groupby(_KEYS, sort=True)
    years = grouped.agg(
        no_Claims=("ProviderID", "count"),
        no_Providers=("ProviderID", "nunique"),
        no_Vendors=("Vendor", "nunique"),
        no_PCPs=("PCP", "nunique"),
        PayDelay_total=("PayDelay", "sum"),
        PayDelay_max=("PayDelay", "max"),
        PayDelay_min=("PayDelay", "min"),
        ill=("ill", "max"),
    )
    group = grouped.ngroup().to_numpy()
    for name, listed in CLAIM_CATEGORIES.items():
        years[name] = _most_frequent(group, len(years), claims[name], listed)
    years["max_CharlsonIndex"] = np.where(years.pop("ill"), ">0", "=0")
    return years.reset_index()


def _most_frequent(group: np.ndarray, n_groups: int, values: pd.Series, listed: tuple[str, ...]) -> np.ndarray:
    """Most frequent value of every group, strings ``[n_groups]``; the first listed of equally frequent ones."""
    values = values.fillna(MISSING_CATEGORY)
    codes = pd.Categorical(values, categories=list(listed)).codes
    if (codes < 0).any():
        unknown = sorted(set(values.unique()) - set(listed))
        raise ValueError(f"column {values.name!r}: expected one of {list(listed)}, got {unknown[:5]}")
    cells = np.bincount(group * len(listed) + codes, minlength=n_groups * len(listed))
    return np.asarray(listed, dtype=object)[cells.reshape(n_groups, len(listed)).argmax(1)]


def _monthly_counts(records: pd.DataFrame, name: str) -> pd.DataFrame:
    """Sum over the year, and number of months with a record."""
    keys = records["Year"], records["MemberID"].astype("int64")
    grouped = records[name].str.rstrip("+").astype("int64").groupby(list(keys))
    return grouped.agg(["sum", "count"]).set_axis([f"{name}_total", f"{name}_months"], axis=1).reset_index()
