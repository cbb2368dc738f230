"""German Credit (Statlog)."""

from pathlib import Path

import pandas as pd

from lightleak.data.assembly import split_table
from lightleak.data.datasets.registry import Download, dataset
from lightleak.data.schema import Column, TableSchema
from lightleak.data.sources import find_file, reading
from lightleak.data.table import DatasetCard, Table

CARD = DatasetCard(
    name="german",
    title="Statlog German Credit",
    urls=("https://archive.ics.uci.edu/ml/machine-learning-databases/statlog/german/german.data",),
    files=("german.data",),
    sha256={"german.data": "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871"},
    license="CC BY 4.0",
    citation="H. Hofmann: Statlog (German Credit Data). UCI Machine Learning Repository, dataset 144, 1994. "
    "doi:10.24432/C5NC77",
    notes=(
        "TabLeak's table (Table 8): 1,000 rows, 20 features, encoded width 63 with the codebook's categories, of "
        "which 'female: single' (A95) and 'vacation' (A47) have no row. A fifth of the rows is held out by seed. "
        "Codes are shown in the codebook's words; codes=True keeps the codes of the file."
    ),
)

# Column name, and code: meaning for the qualitative attributes 1 to 20 of the codebook (german.doc), in its order.
ATTRIBUTES: tuple[tuple[str, dict[str, str]], ...] = (
    (
        "checking_account",
        {"A11": "below 0 DM", "A12": "0 to 200 DM", "A13": "200 DM and more or salary paid in", "A14": "none"},
    ),
    ("duration_months", {}),
    (
        "credit_history",
        {
            "A30": "no credits or all paid back duly",
            "A31": "all credits at this bank paid back duly",
            "A32": "existing credits paid back duly till now",
            "A33": "delay in paying off in the past",
            "A34": "critical account or credits at other banks",
        },
    ),
    (
        "purpose",
        {
            "A40": "car (new)",
            "A41": "car (used)",
            "A42": "furniture or equipment",
            "A43": "radio or television",
            "A44": "domestic appliances",
            "A45": "repairs",
            "A46": "education",
            "A47": "vacation",
            "A48": "retraining",
            "A49": "business",
            "A410": "others",
        },
    ),
    ("credit_amount", {}),
    (
        "savings",
        {
            "A61": "below 100 DM",
            "A62": "100 to 500 DM",
            "A63": "500 to 1000 DM",
            "A64": "1000 DM and more",
            "A65": "unknown or none",
        },
    ),
    (
        "employment_since",
        {
            "A71": "unemployed",
            "A72": "below 1 year",
            "A73": "1 to 4 years",
            "A74": "4 to 7 years",
            "A75": "7 years and more",
        },
    ),
    ("installment_rate_percent", {}),
    (
        "personal_status_and_sex",
        {
            "A91": "male: divorced or separated",
            "A92": "female: divorced, separated or married",
            "A93": "male: single",
            "A94": "male: married or widowed",
            "A95": "female: single",
        },
    ),
    ("other_debtors", {"A101": "none", "A102": "co-applicant", "A103": "guarantor"}),
    ("residence_since", {}),
    (
        "property",
        {
            "A121": "real estate",
            "A122": "building society savings or life insurance",
            "A123": "car or other",
            "A124": "unknown or none",
        },
    ),
    ("age", {}),
    ("other_installment_plans", {"A141": "bank", "A142": "stores", "A143": "none"}),
    ("housing", {"A151": "rent", "A152": "own", "A153": "for free"}),
    ("existing_credits", {}),
    (
        "job",
        {
            "A171": "unemployed or unskilled, non-resident",
            "A172": "unskilled, resident",
            "A173": "skilled employee or official",
            "A174": "management, self-employed or highly qualified",
        },
    ),
    ("people_liable", {}),
    ("telephone", {"A191": "none", "A192": "yes, in the customer's name"}),
    ("foreign_worker", {"A201": "yes", "A202": "no"}),
)
LABEL = Column.categorical("credit", ["good", "bad"])
SENSITIVE = ("personal_status_and_sex", "age", "foreign_worker")


@dataset(CARD, Download(CARD.urls[0], CARD.files[0]))
def load_german(folder: Path, seed: int, *, codes: bool = False) -> Table:
    """Load German Credit; the label is ``credit``.

    Args:
        folder: folder with ``german.data``.
        seed: root seed of the split.
        codes: keep codes such as ``A11`` in place of the codebook's words.

    Raises:
        DataError: the file is missing or not what it should be.
    """
    path = find_file(folder, "german.data")
    with reading(path):
        frame = pd.read_csv(path, sep=" ", names=[*(name for name, _ in ATTRIBUTES), LABEL.name])
    frame[LABEL.name] = frame[LABEL.name].map({1: "good", 2: "bad"})
    columns = []
    for name, meanings in ATTRIBUTES:
        if not meanings:
            columns.append(Column.integer(name))
            continue
        columns.append(Column.categorical(name, list(meanings) if codes else list(meanings.values())))
        if not codes:
            # A code the codebook does not know stays as it is, and the schema refuses it by name.
            frame[name] = frame[name].replace(meanings)
    return split_table(CARD, TableSchema(tuple(columns), LABEL, sensitive=SENSITIVE), frame, seed)
