"""Heritage Health Prize: one row per member and year, put together from four official files."""

from pathlib import Path

import numpy as np
import pandas as pd

from lightleak.data.assembly import split_table
from lightleak.data.datasets.codebook import domain
from lightleak.data.datasets.registry import dataset
from lightleak.data.schema import MISSING_CATEGORY, Column, TableSchema
from lightleak.data.sources import find_file, reading
from lightleak.data.table import DatasetCard, Table

CARD = DatasetCard(
    name="health-heritage",
    title="Heritage Health Prize",
    urls=("https://www.kaggle.com/c/hhp/data",),
    files=("Claims.csv", "DrugCount.csv", "LabCount.csv", "Members.csv"),
    license="Kaggle competition rules of the Heritage Health Prize; a login is needed",
    citation="Heritage Provider Network: Heritage Health Prize. Kaggle, 2012",
    notes=(
        "TabLeak's table (Table 8): a row per member and year with a claim, 218,415 rows, 17 features, encoded width "
        "110; the label says whether the highest Charlson index of the year is above 0. Of each categorical claim "
        "field the most frequent value of the year is taken, the first in the listed order when several are (the "
        "paper's source takes the argmax of the counts). '162+' days of delay, '7+' drugs and '10+' lab tests count "
        "as 162, 7 and 10; a year without drug or lab record counts as 0. Files of release 3, unpacked from "
        "HHP_release3.zip; no checksum is known. Tested on a small made table, as the files cannot be passed on; "
        "ProVFL's 61,700 rows (Table III) are a part its paper does not describe. A fifth of the rows is held out by "
        "seed."
    ),
)

_KEYS = ["Year", "MemberID"]
# The order decides ties between equally frequent values; it is the order of the paper's one-hot columns.
CLAIM_CATEGORIES: dict[str, tuple[str, ...]] = {
    "PrimaryConditionGroup": domain(
        "AMI, APPCHOL, ARTHSPIN, CANCRA, CANCRB, CANCRM, CATAST, CHF, COPD, FLaELEC, FXDISLC, GIBLEED, GIOBSENT, "
        "GYNEC1, GYNECA, HEART2, HEART4, HEMTOL, HIPFX, INFEC4, LIVERDZ, METAB1, METAB3, MISCHRT, MISCL1, MISCL5, "
        "MSC2a3, NEUMENT, ODaBNCA, PERINTL, PERVALV, PNCRDZ, PNEUM, PRGNCY, missing, RENAL1, RENAL2, RENAL3, RESPR4, "
        "ROAMI, SEIZURE, SEPSIS, SKNAUT, STROKE, TRAUMA, UTI"
    ),
    "Specialty": domain(
        "Anesthesiology, Diagnostic Imaging, Emergency, General Practice, Internal, Laboratory, Obstetrics and "
        "Gynecology, Other, Pathology, Pediatrics, Rehabilitation, missing, Surgery"
    ),
    "ProcedureGroup": domain(
        "ANES, EM, MED, PL, missing, RAD, SAS, SCS, SDS, SEOA, SGS, SIS, SMCD, SMS, SNS, SO, SRS, SUS"
    ),
    "PlaceSvc": domain(
        "Ambulance, Home, Independent Lab, Inpatient Hospital, Office, Other, Outpatient Hospital, missing, Urgent Care"
    ),
}
CHARLSON = ("0", "1-2", "3-4", "5+")
AGES = domain("0-9, 10-19, 20-29, 30-39, 40-49, 50-59, 60-69, 70-79, 80+, missing")
COUNTS = (
    "LabCount_total",
    "LabCount_months",
    "DrugCount_total",
    "DrugCount_months",
    "no_Claims",
    "no_Providers",
    "no_Vendors",
    "no_PCPs",
    "PayDelay_total",
    "PayDelay_max",
    "PayDelay_min",
)
SCHEMA = TableSchema(
    (
        *(Column.integer(name) for name in COUNTS),
        *(Column.categorical(name, listed, missing="category") for name, listed in CLAIM_CATEGORIES.items()),
        Column.categorical("AgeAtFirstClaim", AGES, missing="category"),
        Column.categorical("Sex", (MISSING_CATEGORY, "F", "M"), missing="category"),
    ),
    Column.categorical("max_CharlsonIndex", ["=0", ">0"]),
    sensitive=("PrimaryConditionGroup", "AgeAtFirstClaim", "Sex"),
)


@dataset(CARD)
def load_health_heritage(folder: Path, seed: int) -> Table:
    """Load Health Heritage; the label is ``max_CharlsonIndex``.

    Args:
        folder: folder with the four files of release 3.
        seed: root seed of the split.

    Raises:
        DataError: a file is missing or not what it should be.
    """
    claims, drugs, labs, members = (find_file(folder, name) for name in CARD.files)
    with reading(claims):
        frame = _claims_per_year(pd.read_csv(claims, dtype={"PayDelay": str, "Year": str}))
    with reading(drugs):
        frame = frame.merge(_monthly_counts(pd.read_csv(drugs, dtype=str), "DrugCount"), on=_KEYS, how="left")
    with reading(labs):
        frame = frame.merge(_monthly_counts(pd.read_csv(labs, dtype=str), "LabCount"), on=_KEYS, how="left")
    with reading(members):
        people = pd.read_csv(members, dtype={"AgeAtFirstClaim": str, "Sex": str})
        frame = frame.merge(people[["MemberID", "AgeAtFirstClaim", "Sex"]], on="MemberID", how="left")
    return split_table(CARD, SCHEMA, frame.fillna(dict.fromkeys(COUNTS, 0)), seed)


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
