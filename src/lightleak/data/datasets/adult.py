"""Adult (census income 1994), TabLeak's and ProVFL's main table."""

from pathlib import Path
from typing import Literal

import pandas as pd

from lightleak.data.assembly import build_table
from lightleak.data.datasets.codebook import domain
from lightleak.data.datasets.registry import Download, dataset
from lightleak.data.schema import Column, TableSchema
from lightleak.data.sources import find_file, reading
from lightleak.data.table import DatasetCard, Table

CARD = DatasetCard(
    name="adult",
    title="Adult census income",
    urls=(
        "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/adult.data",
        "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/adult.test",
    ),
    files=("adult.data", "adult.test"),
    sha256={
        "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    },
    license="CC BY 4.0",
    citation="B. Becker, R. Kohavi: Adult. UCI Machine Learning Repository, dataset 2, 1996. doi:10.24432/C5XW20",
    notes=(
        "Training rows are adult.data, test rows adult.test. The default is TabLeak's table (Table 8): rows with a "
        "missing value dropped, 45,222 rows, encoded width 105 with the codebook's categories ('Never-worked' has no "
        "row left). ProVFL's table (Tables III, IV) is missing='category', final_weight=False, duplicates='drop': "
        "44,355 rows, duplicates dropped within each of the two files but not across them. Its encoded width is 107 "
        "here and 111 in the paper, whose code adds an empty category 'Other' to education, marital-status, "
        "relationship and sex; this is also why its Table IV counts 3 values of sex. Its code further takes "
        "capital-gain 99999 for a missing value and sets it to the mean; here it stays as recorded."
    ),
)

NUMERICAL = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
CATEGORIES = {
    "workclass": "Private, Self-emp-not-inc, Self-emp-inc, Federal-gov, Local-gov, State-gov, Without-pay, "
    "Never-worked",
    "education": "Bachelors, Some-college, 11th, HS-grad, Prof-school, Assoc-acdm, Assoc-voc, 9th, 7th-8th, 12th, "
    "Masters, 1st-4th, 10th, Doctorate, 5th-6th, Preschool",
    "marital-status": "Married-civ-spouse, Divorced, Never-married, Separated, Widowed, Married-spouse-absent, "
    "Married-AF-spouse",
    "occupation": "Tech-support, Craft-repair, Other-service, Sales, Exec-managerial, Prof-specialty, "
    "Handlers-cleaners, Machine-op-inspct, Adm-clerical, Farming-fishing, Transport-moving, Priv-house-serv, "
    "Protective-serv, Armed-Forces",
    "relationship": "Wife, Own-child, Husband, Not-in-family, Other-relative, Unmarried",
    "race": "White, Asian-Pac-Islander, Amer-Indian-Eskimo, Other, Black",
    "sex": "Female, Male",
    "native-country": "United-States, Cambodia, England, Puerto-Rico, Canada, Germany, Outlying-US(Guam-USVI-etc), "
    "India, Japan, Greece, South, China, Cuba, Iran, Honduras, Philippines, Italy, Poland, Jamaica, Vietnam, Mexico, "
    "Portugal, Ireland, France, Dominican-Republic, Laos, Ecuador, Taiwan, Haiti, Columbia, Hungary, Guatemala, "
    "Nicaragua, Scotland, Thailand, Yugoslavia, El-Salvador, Trinadad&Tobago, Peru, Hong, Holand-Netherlands",
}
ORDER = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
)
LABEL = Column.categorical("salary", ["<=50K", ">50K"])
WITH_GAPS = ("workclass", "occupation", "native-country")


@dataset(CARD, *(Download(url, file) for url, file in zip(CARD.urls, CARD.files, strict=True)))
def load_adult(
    folder: Path,
    seed: int,
    *,
    missing: Literal["drop", "category"] = "drop",
    final_weight: bool = True,
    duplicates: Literal["keep", "drop"] = "keep",
) -> Table:
    """Load Adult; the label is ``salary``.

    Args:
        folder: folder with ``adult.data`` and ``adult.test``.
        seed: not used; the split is the official one.
        missing: ``drop`` rows with a missing value (TabLeak) or give it a ``category`` of its own (ProVFL).
        final_weight: keep the column ``fnlwgt``.
        duplicates: ``drop`` repeated rows within each part, after ``final_weight`` has been decided.

    Raises:
        DataError: a file is missing or not what it should be.
    """
    names = [name for name in ORDER if final_weight or name != "fnlwgt"]
    parts = [_read(find_file(folder, name))[[*names, LABEL.name]] for name in CARD.files]
    if missing == "drop":
        parts = [part.dropna() for part in parts]
    if duplicates == "drop":
        parts = [part.drop_duplicates() for part in parts]
    schema = TableSchema(tuple(_column(name, missing) for name in names), LABEL, sensitive=("race", "sex"))
    return build_table(CARD, schema, *parts)


def _read(path: Path) -> pd.DataFrame:
    with reading(path):
        frame = pd.read_csv(
            path,
            names=[*ORDER, LABEL.name],
            skipinitialspace=True,
            keep_default_na=False,
            na_values="?",
            comment="|",  # adult.test opens with a remark of the program that cut it
        )
    # Labels of adult.test end in a full stop.
    return frame.assign(**{LABEL.name: frame[LABEL.name].str.rstrip(".")})


def _column(name: str, missing: Literal["drop", "category"]) -> Column:
    if name in NUMERICAL:
        return Column.integer(name)
    own_category = missing == "category" and name in WITH_GAPS
    return Column.categorical(name, domain(CATEGORIES[name]), missing="category" if own_category else "refuse")
