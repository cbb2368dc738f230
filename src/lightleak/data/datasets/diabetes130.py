"""Diabetes 130-US hospitals 1999-2008: hospital encounters with ICD-9 diagnoses, several per patient."""

import zipfile
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import IO, Literal

import pandas as pd

from lightleak.data.assembly import TEST_FRACTION, cut_table
from lightleak.data.datasets.description import describe
from lightleak.data.datasets.registry import dataset
from lightleak.data.schema import MISSING_CATEGORY, Column, TableSchema
from lightleak.data.sources import find_file, reading
from lightleak.data.splits import group_holdout, holdout
from lightleak.data.table import Table

TABLE = describe("diabetes130")
PATIENT = "patient_nbr"
DRUGS = tuple(column.name for column in TABLE.schema.categorical if "Steady" in column.categories)
DIAGNOSES = ("diag_1", "diag_2", "diag_3")
# Group and its three-digit codes (first to last, both included), Strack et al., Table 2; all others are 'other'.
ICD9_GROUPS: dict[str, tuple[tuple[int, int], ...]] = {
    "circulatory": ((390, 459), (785, 785)),
    "respiratory": ((460, 519), (786, 786)),
    "digestive": ((520, 579), (787, 787)),
    "diabetes": ((250, 250),),
    "injury": ((800, 999),),
    "musculoskeletal": ((710, 739),),
    "genitourinary": ((580, 629), (788, 788)),
    "neoplasms": ((140, 239),),
}
_SPECIALTIES = ("InternalMedicine", "Emergency/Trauma", "Family/GeneralPractice", "Cardiology")
_ENDED = (11, 13, 14, 19, 20, 21)  # discharge dispositions: died, or left to a hospice (IDs_mapping.csv)


@dataset(TABLE.card, *TABLE.downloads)
def load_diabetes130(
    folder: Path,
    seed: int,
    *,
    label: Literal["readmitted", "diagnosis"] = "readmitted",
    diagnoses: Literal["grouped", "codes"] = "grouped",
    cohort: Literal["all", "strack"] = "all",
    split: Literal["patient", "row"] = "patient",
    groups: bool = False,
) -> Table:
    """Load the encounters.

    Args:
        folder: folder with ``dataset_diabetes.zip``, or the unpacked ``diabetic_data.csv``.
        seed: root seed of the split.
        label: ``readmitted`` (NO, >30, <30 days) or the first ``diagnosis``.
        diagnoses: ICD-9 groups or ``codes``.
        cohort: every encounter, or the first of each patient as in Strack et al.
        split: hold out whole patients or single rows.
        groups: keep ``patient_nbr`` in the frames for later splits by patient; it is no column of the schema.

    Raises:
        DataError: the file is missing or not what it should be.
    """
    frame = _read(find_file(folder, TABLE.card.files[0], "diabetic_data.csv"))
    if cohort == "strack":
        frame = frame.sort_values("encounter_id").drop_duplicates(PATIENT).sort_index()
        frame = frame[~frame["discharge_disposition_id"].isin(_ENDED)]
    if label == "diagnosis":
        frame = frame[frame["diag_1"].notna()]
    frame = frame.reset_index(drop=True)
    frame["medical_specialty"] = _per_distinct(frame["medical_specialty"], specialty_group)
    if diagnoses == "grouped":
        for name in DIAGNOSES:
            frame[name] = _per_distinct(frame[name], icd9_group)
    schema = _schema(frame, label, diagnoses)
    if label == "diagnosis":
        frame = frame.rename(columns={"diag_1": "diagnosis"})
    parts = (
        group_holdout(frame[PATIENT], TEST_FRACTION, seed)
        if split == "patient"
        else holdout(len(frame), TEST_FRACTION, seed)
    )
    return cut_table(TABLE.card, schema, frame, *parts, group=PATIENT if groups else None)


def icd9_group(code: str) -> str:
    """Group of an ICD-9 code after Strack et al. (2014), Table 2.

    >>> icd9_group("428"), icd9_group("250.83"), icd9_group("V57")
    ('circulatory', 'diabetes', 'other')
    """
    if code[0] in "EV":
        return "other"
    number = int(float(code))
    for name, spans in ICD9_GROUPS.items():
        if any(first <= number <= last for first, last in spans):
            return name
    return "other"


def specialty_group(specialty: str) -> str:
    """Group of the admitting physician's specialty.

    >>> specialty_group("Surgery-Neuro"), specialty_group("Nephrology")
    ('Surgery', 'Other')
    """
    if specialty in _SPECIALTIES:
        return specialty
    return "Surgery" if specialty.startswith("Surg") else "Other"


def _read(path: Path) -> pd.DataFrame:
    with reading(path):
        if path.suffix != ".zip":
            return _parse(path)
        with zipfile.ZipFile(path) as archive, archive.open("dataset_diabetes/diabetic_data.csv") as file:
            return _parse(file)


def _parse(source: Path | IO[bytes]) -> pd.DataFrame:
    # Only '?' is missing: 'None' is a result of the glucose and A1C tests. Codes are text: 250.10 is not 250.1.
    kinds: dict[Hashable, type[str]] = dict.fromkeys((*DIAGNOSES, "payer_code", "medical_specialty"), str)
    return pd.read_csv(source, keep_default_na=False, na_values="?", dtype=kinds)


def _per_distinct(values: pd.Series, group: Callable[[str], str]) -> pd.Series:
    """Apply ``group`` once per distinct value; missing values stay missing."""
    return values.astype(object).map({value: group(value) for value in values.dropna().unique()})


def _schema(frame: pd.DataFrame, label: str, diagnoses: str) -> TableSchema:
    columns = {column.name: column for column in TABLE.schema.columns}
    if diagnoses == "codes":
        for name in DIAGNOSES:
            codes = sorted(frame[name].dropna().astype(str).unique())
            columns[name] = Column.categorical(name, [*codes, MISSING_CATEGORY], missing="category")
    classes = TABLE.schema.label
    if label == "diagnosis":
        known = [category for category in columns.pop("diag_1").categories if category != MISSING_CATEGORY]
        classes = Column.categorical("diagnosis", known)
    sensitive = tuple(name for name in TABLE.schema.sensitive if name in columns)
    return TableSchema(tuple(columns.values()), classes, sensitive)
