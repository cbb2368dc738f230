"""Diabetes 130-US hospitals 1999-2008: hospital encounters with ICD-9 diagnoses, several per patient."""

import zipfile
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import IO, Literal

import pandas as pd

from lightleak.data.assembly import TEST_FRACTION, cut_table
from lightleak.data.datasets.codebook import domain
from lightleak.data.datasets.registry import Download, dataset
from lightleak.data.schema import MISSING_CATEGORY, Column, TableSchema
from lightleak.data.sources import find_file, reading
from lightleak.data.splits import group_holdout, holdout
from lightleak.data.table import DatasetCard, Table

CARD = DatasetCard(
    name="diabetes130",
    title="Diabetes 130-US hospitals for years 1999-2008",
    urls=("https://archive.ics.uci.edu/ml/machine-learning-databases/00296/dataset_diabetes.zip",),
    files=("dataset_diabetes.zip",),
    sha256={"dataset_diabetes.zip": "2cc570fc34b09ba1169d94b68c27ce3802dce7dc4ab6082bed833a6c195507a5"},
    license="CC BY 4.0",
    citation="B. Strack et al.: Impact of HbA1c measurement on hospital readmission rates: analysis of 70,000 clinical "
    "database patient records. BioMed Research International, 2014. UCI dataset 296, doi:10.24432/C5230J",
    notes=(
        "101,766 encounters of 71,518 patients. Left out: encounter_id, weight (97% missing), examide and citoglipton "
        "(one value only). medical_specialty (72 values) is grouped into 7 as in Strack et al. with emergency and "
        "trauma beside them. ICD-9 codes are grouped into the 9 groups of Strack et al., Table 2; diagnoses='codes' "
        "keeps the 717 to 790 codes of each column, as many as the file has, for there is no codebook of them. "
        "Missing values ('?') have a category of their own. split='patient' (default) never puts one patient on both "
        "sides; groups=True keeps patient_nbr in the frames, beside the columns of the schema. cohort='strack' keeps "
        "the first encounter of each patient and drops those that ended in death or hospice: 69,973 rows (69,984 in "
        "the paper, which does not list the dispositions it means). label='diagnosis' makes the group (or code) of "
        "the first diagnosis the class and leaves diag_1 out of the features, dropping the 21 rows without one."
    ),
)

PATIENT = "patient_nbr"
DRUGS = domain(
    "metformin, repaglinide, nateglinide, chlorpropamide, glimepiride, acetohexamide, glipizide, glyburide, "
    "tolbutamide, pioglitazone, rosiglitazone, acarbose, miglitol, troglitazone, tolazamide, insulin, "
    "glyburide-metformin, glipizide-metformin, glimepiride-pioglitazone, metformin-rosiglitazone, "
    "metformin-pioglitazone"
)
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


@dataset(CARD, Download(CARD.urls[0], CARD.files[0]))
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
    frame = _read(find_file(folder, CARD.files[0], "diabetic_data.csv"))
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
    table = cut_table(CARD, schema, frame, *parts)
    if not groups:
        return table
    train, test = (
        part.assign(**{PATIENT: frame[PATIENT].to_numpy()[rows]})
        for part, rows in zip((table.train, table.test), parts, strict=True)
    )
    return Table(CARD, table.schema, train, test)


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
    codes = list(map(str, range(1, 31)))
    diagnosis = {name: _diagnosis_categories(frame[name], diagnoses) for name in DIAGNOSES}
    columns = [
        _with_gaps("race", ["Caucasian", "AfricanAmerican", "Hispanic", "Asian", "Other"]),
        Column.categorical("gender", ["Female", "Male", "Unknown/Invalid"]),
        Column.categorical("age", [f"[{decade}-{decade + 10})" for decade in range(0, 100, 10)]),
        # Codes of IDs_mapping.csv, which explains them.
        Column.categorical("admission_type_id", codes[:8]),
        Column.categorical("discharge_disposition_id", codes[:30]),
        Column.categorical("admission_source_id", codes[:26]),
        Column.integer("time_in_hospital"),
        _with_gaps("payer_code", domain("BC, CH, CM, CP, DM, FR, HM, MC, MD, MP, OG, OT, PO, SI, SP, UN, WC")),
        _with_gaps("medical_specialty", [*_SPECIALTIES, "Surgery", "Other"]),
        *(Column.integer(name) for name in ("num_lab_procedures", "num_procedures", "num_medications")),
        *(Column.integer(name) for name in ("number_outpatient", "number_emergency", "number_inpatient")),
        *(_with_gaps(name, diagnosis[name]) for name in DIAGNOSES if label != "diagnosis" or name != "diag_1"),
        Column.integer("number_diagnoses"),
        Column.categorical("max_glu_serum", ["None", "Norm", ">200", ">300"]),
        Column.categorical("A1Cresult", ["None", "Norm", ">7", ">8"]),
        *(Column.categorical(name, ["No", "Steady", "Up", "Down"]) for name in DRUGS),
        Column.categorical("change", ["No", "Ch"]),
        Column.categorical("diabetesMed", ["No", "Yes"]),
    ]
    classes = (
        Column.categorical("diagnosis", diagnosis["diag_1"])
        if label == "diagnosis"
        else Column.categorical("readmitted", ["NO", ">30", "<30"])
    )
    sensitive = ("race", "gender", "age", *(c.name for c in columns if c.name in DIAGNOSES))
    return TableSchema(tuple(columns), classes, sensitive)


def _diagnosis_categories(values: pd.Series, diagnoses: str) -> list[str]:
    return [*ICD9_GROUPS, "other"] if diagnoses == "grouped" else sorted(values.dropna().astype(str).unique())


def _with_gaps(name: str, categories: Sequence[str]) -> Column:
    return Column.categorical(name, [*categories, MISSING_CATEGORY], missing="category")
