"""Census-Income (KDD), 1994 and 1995, one of ProVFL's tables."""

from collections.abc import Hashable
from pathlib import Path
from typing import Literal

import pandas as pd

from lightleak.data.assembly import build_table, split_table
from lightleak.data.datasets.codebook import domain
from lightleak.data.datasets.registry import Download, dataset
from lightleak.data.schema import Column, TableSchema
from lightleak.data.sources import find_file, reading
from lightleak.data.table import DatasetCard, Table

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/census-income-mld/"
CARD = DatasetCard(
    name="census",
    title="Census-Income (KDD)",
    urls=(_UCI + "census-income.data.gz", _UCI + "census-income.test.gz"),
    files=("census-income.data.gz", "census-income.test.gz"),
    sha256={"census-income.test.gz": "5ac4cacd3ca9f1ecb10de1a0a41e4ac68fdc419e3fec190f5c0c6cc03b2ea659"},
    license="CC BY 4.0",
    citation="T. Lane, R. Kohavi: Census-Income (KDD). UCI Machine Learning Repository, dataset 117, 2000. "
    "doi:10.24432/C5N30T",
    notes=(
        "ProVFL's table (Table III): 299,285 rows (199,523 + 99,762), 41 features, encoded width 511: the codebook's "
        "categories, a category for missing values where the file has '?', and the instance weight, which UCI says "
        "must not be used by a classifier (instance_weight=False drops it: 40 features, width 510). Nothing is "
        "dropped. part='test' or 'train' takes one of the two files alone and holds out a fifth of it by seed; on the "
        "test file the fractions of Table IV are sex Female .5191 (paper, all rows: .5205), race Black .1015 (.1020), "
        "education Bachelors .0991 (.0994). No checksum of the training file is known."
    ),
)

_COUNTRIES = (
    "Cambodia; Canada; China; Columbia; Cuba; Dominican-Republic; Ecuador; El-Salvador; England; France; Germany; "
    "Greece; Guatemala; Haiti; Holand-Netherlands; Honduras; Hong Kong; Hungary; India; Iran; Ireland; Italy; Jamaica; "
    "Japan; Laos; Mexico; Nicaragua; Outlying-U S (Guam USVI etc); Panama; Peru; Philippines; Poland; Portugal; "
    "Puerto-Rico; Scotland; South Korea; Taiwan; Thailand; Trinadad&Tobago; United-States; Vietnam; Yugoslavia"
)
_STATES = (
    "Not in universe; Abroad; Alabama; Alaska; Arizona; Arkansas; California; Colorado; Connecticut; Delaware; "
    "District of Columbia; Florida; Georgia; Idaho; Illinois; Indiana; Iowa; Kansas; Kentucky; Louisiana; Maine; "
    "Maryland; Massachusetts; Michigan; Minnesota; Mississippi; Missouri; Montana; Nebraska; Nevada; New Hampshire; "
    "New Jersey; New Mexico; New York; North Carolina; North Dakota; Ohio; Oklahoma; Oregon; Pennsylvania; "
    "South Carolina; South Dakota; Tennessee; Texas; Utah; Vermont; Virginia; West Virginia; Wisconsin; Wyoming"
)
_HOUSEHOLD = (
    "Child <18 never marr not in subfamily; Other Rel <18 never marr child of subfamily RP; Other Rel <18 never marr "
    "not in subfamily; Grandchild <18 never marr child of subfamily RP; Grandchild <18 never marr not in subfamily; "
    "Secondary individual; In group quarters; Child under 18 of RP of unrel subfamily; RP of unrelated subfamily; "
    "Spouse of householder; Householder; Other Rel <18 never married RP of subfamily; Grandchild <18 never marr RP of "
    "subfamily; Child <18 never marr RP of subfamily; Child <18 ever marr not in subfamily; Other Rel <18 ever marr RP "
    "of subfamily; Child <18 ever marr RP of subfamily; Nonfamily householder; Child <18 spouse of subfamily RP; Other "
    "Rel <18 spouse of subfamily RP; Other Rel <18 ever marr not in subfamily; Grandchild <18 ever marr not in "
    "subfamily; Child 18+ never marr Not in a subfamily; Grandchild 18+ never marr not in subfamily; Child 18+ ever "
    "marr RP of subfamily; Other Rel 18+ never marr not in subfamily; Child 18+ never marr RP of subfamily; Other Rel "
    "18+ ever marr RP of subfamily; Other Rel 18+ never marr RP of subfamily; Other Rel 18+ spouse of subfamily RP; "
    "Other Rel 18+ ever marr not in subfamily; Child 18+ ever marr Not in a subfamily; Grandchild 18+ ever marr not in "
    "subfamily; Child 18+ spouse of subfamily RP; Spouse of RP of unrelated subfamily; Grandchild 18+ ever marr RP of "
    "subfamily; Grandchild 18+ never marr RP of subfamily; Grandchild 18+ spouse of subfamily RP"
)
_MISSING = "; missing"
# Name and categories of the 41 attributes in the order of the file; no categories: a number.
ATTRIBUTES: tuple[tuple[str, str], ...] = (
    ("age", ""),
    (
        "class-of-worker",
        "Not in universe; Federal government; Local government; Never worked; Private; Self-employed-incorporated; "
        "Self-employed-not incorporated; State government; Without pay",
    ),
    ("detailed-industry-recode", "; ".join(map(str, range(52)))),
    ("detailed-occupation-recode", "; ".join(map(str, range(47)))),
    (
        "education",
        "Children; Less than 1st grade; 1st 2nd 3rd or 4th grade; 5th or 6th grade; 7th and 8th grade; 9th grade; "
        "10th grade; 11th grade; 12th grade no diploma; High school graduate; Some college but no degree; Associates "
        "degree-occup /vocational; Associates degree-academic program; Bachelors degree(BA AB BS); Masters degree(MA "
        "MS MEng MEd MSW MBA); Prof school degree (MD DDS DVM LLB JD); Doctorate degree(PhD EdD)",
    ),
    ("wage-per-hour", ""),
    ("enroll-in-edu-inst-last-wk", "Not in universe; High school; College or university"),
    (
        "marital-stat",
        "Never married; Married-civilian spouse present; Married-spouse absent; Separated; Divorced; Widowed; "
        "Married-A F spouse present",
    ),
    (
        "major-industry-code",
        "Not in universe or children; Entertainment; Social services; Agriculture; Education; Public administration; "
        "Manufacturing-durable goods; Manufacturing-nondurable goods; Wholesale trade; Retail trade; Finance insurance "
        "and real estate; Private household services; Business and repair services; Personal services except private "
        "HH; Construction; Medical except hospital; Other professional services; Transportation; Utilities and "
        "sanitary services; Mining; Communications; Hospital services; Forestry and fisheries; Armed Forces",
    ),
    (
        "major-occupation-code",
        "Not in universe; Professional specialty; Other service; Farming forestry and fishing; Sales; Adm support "
        "including clerical; Protective services; Handlers equip cleaners etc; Precision production craft & repair; "
        "Technicians and related support; Machine operators assmblrs & inspctrs; Transportation and material moving; "
        "Executive admin and managerial; Private household services; Armed Forces",
    ),
    ("race", "White; Black; Other; Amer Indian Aleut or Eskimo; Asian or Pacific Islander"),
    (
        "hispanic-origin",
        "Mexican (Mexicano); Mexican-American; Puerto Rican; Central or South American; All other; Other Spanish; "
        "Chicano; Cuban; Do not know; NA",
    ),
    ("sex", "Female; Male"),
    ("member-of-a-labor-union", "Not in universe; No; Yes"),
    (
        "reason-for-unemployment",
        "Not in universe; Re-entrant; Job loser - on layoff; New entrant; Job leaver; Other job loser",
    ),
    (
        "full-or-part-time-employment-stat",
        "Children or Armed Forces; Full-time schedules; Unemployed part- time; Not in labor force; Unemployed "
        "full-time; PT for non-econ reasons usually FT; PT for econ reasons usually PT; PT for econ reasons usually FT",
    ),
    ("capital-gains", ""),
    ("capital-losses", ""),
    ("dividends-from-stocks", ""),
    (
        "tax-filer-stat",
        "Nonfiler; Joint one under 65 & one 65+; Joint both under 65; Single; Head of household; Joint both 65+",
    ),
    ("region-of-previous-residence", "Not in universe; South; Northeast; West; Midwest; Abroad"),
    ("state-of-previous-residence", _STATES + _MISSING),
    ("detailed-household-and-family-stat", _HOUSEHOLD),
    (
        "detailed-household-summary-in-household",
        "Child under 18 never married; Other relative of householder; Nonrelative of householder; Spouse of "
        "householder; Householder; Child under 18 ever married; Group Quarters- Secondary individual; Child 18 or "
        "older",
    ),
    ("instance-weight", ""),
    (
        "migration-code-change-in-msa",
        "Not in universe; Nonmover; MSA to MSA; NonMSA to nonMSA; MSA to nonMSA; NonMSA to MSA; Abroad to MSA; Not "
        "identifiable; Abroad to nonMSA" + _MISSING,
    ),
    (
        "migration-code-change-in-reg",
        "Not in universe; Nonmover; Same county; Different county same state; Different state same division; Abroad; "
        "Different region; Different division same region" + _MISSING,
    ),
    (
        "migration-code-move-within-reg",
        "Not in universe; Nonmover; Same county; Different county same state; Different state in West; Abroad; "
        "Different state in Midwest; Different state in South; Different state in Northeast" + _MISSING,
    ),
    ("live-in-this-house-1-year-ago", "Not in universe under 1 year old; Yes; No"),
    ("migration-prev-res-in-sunbelt", "Not in universe; Yes; No" + _MISSING),
    ("num-persons-worked-for-employer", ""),
    (
        "family-members-under-18",
        "Both parents present; Neither parent present; Mother only present; Father only present; Not in universe",
    ),
    ("country-of-birth-father", _COUNTRIES + _MISSING),
    ("country-of-birth-mother", _COUNTRIES + _MISSING),
    ("country-of-birth-self", _COUNTRIES + _MISSING),
    (
        "citizenship",
        "Native- Born in the United States; Foreign born- Not a citizen of U S; Native- Born in Puerto Rico or U S "
        "Outlying; Native- Born abroad of American Parent(s); Foreign born- U S citizen by naturalization",
    ),
    ("own-business-or-self-employed", "0; 1; 2"),
    ("fill-inc-questionnaire-for-veterans-admin", "Not in universe; Yes; No"),
    ("veterans-benefits", "0; 1; 2"),
    ("weeks-worked-in-year", ""),
    ("year", "94; 95"),
)
LABEL = Column.categorical("income", ["- 50000", "50000+"])


@dataset(CARD, *(Download(url, file) for url, file in zip(CARD.urls, CARD.files, strict=True)))
def load_census(
    folder: Path, seed: int, *, part: Literal["all", "train", "test"] = "all", instance_weight: bool = True
) -> Table:
    """Load Census-Income; the label is ``income``.

    Args:
        folder: folder with ``census-income.data.gz`` and ``census-income.test.gz`` (or both unpacked).
        seed: root seed of the split where ``part`` names one file; ``all`` keeps the official split.
        part: both official files, or one of them.
        instance_weight: keep the column ``instance-weight``.

    Raises:
        DataError: a file is missing or not what it should be.
    """
    attributes = [(name, listed) for name, listed in ATTRIBUTES if instance_weight or name != "instance-weight"]
    schema = TableSchema(tuple(_column(*entry) for entry in attributes), LABEL, sensitive=("race", "sex"))
    if part == "all":
        train, test = (_read(find_file(folder, name, name.removesuffix(".gz"))) for name in CARD.files)
        return build_table(CARD, schema, train, test)
    name = CARD.files[0] if part == "train" else CARD.files[1]
    return split_table(CARD, schema, _read(find_file(folder, name, name.removesuffix(".gz"))), seed)


def _read(path: Path) -> pd.DataFrame:
    names = [name for name, _ in ATTRIBUTES]
    categorical: dict[Hashable, str] = {name: "category" for name, listed in ATTRIBUTES if listed}
    with reading(path):
        frame = pd.read_csv(
            path,
            names=[*names, LABEL.name],
            skipinitialspace=True,
            keep_default_na=False,  # 'NA' is one of the categories of hispanic-origin
            na_values="?",
            dtype=categorical,
        )
    return frame.assign(**{LABEL.name: frame[LABEL.name].str.rstrip(".")})


def _column(name: str, listed: str) -> Column:
    if name == "instance-weight":
        return Column.continuous(name)
    if not listed:
        return Column.integer(name)
    return Column.categorical(name, domain(listed, "; "), missing="category" if listed.endswith(_MISSING) else "refuse")
