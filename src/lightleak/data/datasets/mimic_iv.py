"""MIMIC-IV: hospital admissions with their primary diagnosis, put together from nine official files."""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from lightleak.core.errors import DataError, UsageError
from lightleak.core.seeds import numpy_generator
from lightleak.data import event_pairs
from lightleak.data.assembly import TEST_FRACTION, cut_table
from lightleak.data.datasets.description import describe
from lightleak.data.datasets.registry import dataset
from lightleak.data.event_pairs import read_event_pairs
from lightleak.data.schema import MISSING_CATEGORY, Column, TableSchema
from lightleak.data.sources import find_file, reading
from lightleak.data.splits import group_holdout
from lightleak.data.table import Table

TABLE = describe("mimic_iv")
CARD = TABLE.card
FILES = tuple(Path(file).name.removesuffix(".csv.gz") for file in CARD.files)

PATIENT, STAY, LABEL = "subject_id", "hadm_id", "diagnosis"
# Vital signs by their name in omr.csv (the two parts of a blood pressure by their own) and the range outside of which a
# value is a slip of the keyboard or of the unit.
PLAUSIBLE: dict[str, tuple[float, float]] = {
    "Weight (Lbs)": (50.0, 1000.0),
    "BMI (kg/m2)": (10.0, 100.0),
    "Height (Inches)": (36.0, 96.0),
    "eGFR": (0.0, 200.0),
    "systolic": (50.0, 300.0),
    "diastolic": (20.0, 200.0),
}
_PRESSURE = "Blood Pressure"
_COUNTS = ("num_medications", "num_procedures", "length_of_stay")
_NO_YES = ("no", "yes")


@dataset(TABLE.card, *TABLE.downloads)
def load_mimic_iv(
    folder: Path,
    seed: int,
    *,
    medications: int = 100,
    lab_items: int = 452,
    impute: Literal["mean", "normal"] = "mean",
    groups: bool = False,
) -> Table:
    """Load MIMIC-IV; the label is ``diagnosis``, such as ``icd10:I214``.

    Args:
        folder: folder that holds the nine files, gzipped or not, in ``hosp/`` or at once.
        seed: root seed of the split and of imputed numbers.
        medications: medications that get a column.
        lab_items: laboratory items that get a column.
        impute: missing vital signs are the mean, or drawn from a normal distribution.
        groups: keep ``subject_id`` in the frames for later splits by patient; it is no column of the schema.

    Raises:
        UsageError: a number of columns below 0.
        DataError: a file is missing or not what it should be.
    """
    for name, value in (("medications", medications), ("lab_items", lab_items)):
        if value < 0:
            raise UsageError(f"option {name!r} of dataset 'mimic_iv' must be at least 0, got {value}")
    paths = {name: find_file(folder, *_names(name)) for name in FILES}
    stays = _stays(paths)
    ids = pd.Index(stays[STAY])
    with reading(paths["procedures_icd"]):
        procedures = pd.read_csv(paths["procedures_icd"], usecols=[STAY])[STAY]
        stays["num_procedures"] = procedures.value_counts().reindex(ids, fill_value=0).to_numpy()
    stays["num_medications"] = read_event_pairs(paths["prescriptions"], ids, STAY, "drug").items_per_unit
    for name, values in _vital_signs(paths["omr"], stays).items():
        stays[name] = _imputed(name, values, impute, seed)
    services = read_event_pairs(paths["services"], ids, STAY, "curr_service")
    given = read_event_pairs(paths["emar"], ids, STAY, "medication")
    abnormal = read_event_pairs(paths["labevents"], ids, STAY, "itemid", only=("flag", "abnormal"))
    bits = {
        **{f"curr_service_{name}": of_name for name, of_name in services.most_frequent().items()},
        **{f"med_{name}": of_name for name, of_name in given.most_frequent(medications).items()},
        **{f"lab_event_{name}": of_name for name, of_name in abnormal.most_frequent(lab_items).items()},
    }
    return _table(stays, bits, seed, groups)


def _names(name: str) -> tuple[str, ...]:
    return tuple(f"{place}{name}.csv{packed}" for place in ("hosp/", "") for packed in (".gz", ""))


def _stays(paths: Mapping[str, Path]) -> pd.DataFrame:
    """One row per admission with a primary diagnosis: its ids, first day, days of stay, categories and label."""
    with reading(paths["admissions"]):
        wanted = [PATIENT, STAY, "admittime", "dischtime", "insurance", "race"]
        stays = pd.read_csv(paths["admissions"], usecols=wanted)
        if stays[STAY].duplicated().any():
            raise ValueError(f"column {STAY!r} must name each admission once")
        begun, ended = (pd.to_datetime(stays.pop(name)) for name in ("admittime", "dischtime"))
    stays = stays.assign(day=begun.dt.normalize(), length_of_stay=(ended - begun).dt.days)
    stays = stays[stays["length_of_stay"] >= 0].astype({"length_of_stay": "int64"})
    with reading(paths["patients"]):
        patients = pd.read_csv(paths["patients"], usecols=[PATIENT, "gender"])
        stays = stays.merge(patients, on=PATIENT, how="left", validate="many_to_one")
    with reading(paths["diagnoses_icd"]):
        # Codes are text: 0030 is not 30.
        kinds: dict[Hashable, type[str]] = {"icd_code": str, "icd_version": str}
        diagnoses = pd.read_csv(
            paths["diagnoses_icd"], usecols=[STAY, "seq_num", "icd_code", "icd_version"], dtype=kinds
        )
        primary = diagnoses[diagnoses["seq_num"] == 1].drop_duplicates(STAY).dropna()
        label = "icd" + primary["icd_version"].str.strip() + ":" + primary["icd_code"].str.strip()
        stays = stays.merge(pd.DataFrame({STAY: primary[STAY], LABEL: label}), on=STAY)
    if stays.empty:
        raise DataError(f"{paths['diagnoses_icd']} has no primary diagnosis (seq_num 1) of an admission")
    return stays


def _vital_signs(path: Path, stays: pd.DataFrame) -> dict[str, np.ndarray]:
    """Each vital sign of the patient nearest to the day of admission, float64 ``[n]``, NaN where there is none."""
    with reading(path):
        chunks = [
            _parsed(chunk[chunk[PATIENT].isin(stays[PATIENT])])
            for chunk in pd.read_csv(path, dtype={"result_value": str}, chunksize=event_pairs.CHUNK_ROWS)
        ]
    measured = pd.concat(chunks).sort_values(["chartdate", "seq_num"], kind="stable")
    by_day = stays.reset_index().sort_values("day", kind="stable")
    found = {}
    for name, (lowest, highest) in PLAUSIBLE.items():
        values = measured[(measured["name"] == name) & measured["value"].between(lowest, highest)]
        values = values.drop_duplicates([PATIENT, "chartdate"], keep="last")[[PATIENT, "chartdate", "value"]]
        nearest = pd.merge_asof(by_day, values, left_on="day", right_on="chartdate", by=PATIENT, direction="nearest")
        found[name] = nearest.set_index("index")["value"].sort_index().to_numpy()
    return found


def _parsed(records: pd.DataFrame) -> pd.DataFrame:
    """Records of the outpatient record as (patient, day, seq_num, name, value); what is no number is left out."""
    parts = []
    pressure = records[records["result_name"] == _PRESSURE]
    both = pressure["result_value"].str.split("/", n=1, expand=True).reindex(columns=[0, 1])
    for name, values in (("systolic", both[0]), ("diastolic", both[1])):
        parts.append(pressure.assign(name=name, value=values))
    others = records[records["result_name"].isin(PLAUSIBLE)]
    # A filtration rate above what is measured reads '>60'.
    parts.append(others.assign(name=others["result_name"], value=others["result_value"].str.lstrip("<>= ")))
    parsed = pd.concat(parts)[[PATIENT, "chartdate", "seq_num", "name", "value"]]
    parsed["value"] = pd.to_numeric(parsed["value"], errors="coerce")
    parsed["chartdate"] = pd.to_datetime(parsed["chartdate"]).dt.normalize()
    return parsed.dropna().astype({"value": "float64"})


def _imputed(name: str, values: np.ndarray, impute: str, seed: int) -> np.ndarray:
    gaps = np.isnan(values)
    if gaps.all():
        raise DataError(f"omr.csv of dataset 'mimic_iv' has no {name!r} of any patient with an admission")
    mean, deviation = values[~gaps].mean(), values[~gaps].std()
    if impute == "mean":
        return np.where(gaps, mean, values)
    drawn = numpy_generator(seed, "mimic-iv-impute", name).normal(mean, deviation, len(values))
    return np.where(gaps, drawn.clip(*PLAUSIBLE[name]), values)


def _table(stays: pd.DataFrame, bits: Mapping[str, np.ndarray], seed: int, groups: bool) -> Table:
    """The columns of Table 4.2; booleans are joined unchecked, as a check would widen each cell to eight bytes."""
    columns = (
        *(Column.continuous(name) for name in PLAUSIBLE),
        *(Column.integer(name) for name in _COUNTS),
        *(_from_file(name, stays[name]) for name in ("race", "insurance")),
        Column.categorical("gender", ["F", "M"]),
    )
    codes = sorted(stays[LABEL].unique())
    if len(codes) < 2:
        raise DataError(f"the admissions of dataset 'mimic_iv' must have at least 2 primary diagnoses, got {codes}")
    schema = TableSchema(columns, Column.categorical(LABEL, codes), ("race", "insurance", "gender", LABEL))
    rows = group_holdout(stays[PATIENT], TEST_FRACTION, seed)
    table = cut_table(CARD, schema, stays, *rows)
    schema = replace(
        table.schema, columns=(*table.schema.columns, *(Column.categorical(name, _NO_YES) for name in bits))
    )
    frames = []
    for part, frame in zip(rows, (table.train, table.test), strict=True):
        words = {
            name: pd.Categorical.from_codes(of_name[part].astype(np.int8), categories=pd.Index(_NO_YES))
            for name, of_name in bits.items()
        }
        label = {LABEL: frame.pop(LABEL), **({PATIENT: stays[PATIENT].to_numpy()[part]} if groups else {})}
        frames.append(pd.concat([frame, pd.DataFrame(words), pd.DataFrame(label)], axis=1))
    return Table(CARD, schema, *frames)


def _from_file(name: str, cells: pd.Series) -> Column:
    """A column of the categories that the file has: they change from version to version."""
    return Column.categorical(name, [*sorted(cells.dropna().str.strip().unique()), MISSING_CATEGORY], "category")
