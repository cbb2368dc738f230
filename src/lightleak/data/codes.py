"""Whole-number columns that may hold codes of categories, such as 1 for female and 2 for male, or numbers of people."""

import re
from collections.abc import Sequence

import pandas as pd

from lightleak.core.yaml_text import config_line
from lightleak.data.schema import ColumnKind, TableSchema

MOST_CODES = 30
"""Distinct values above which whole numbers are taken for measurements. Codebooks rarely list more for one question."""

ROWS_PER_CODE = 10
"""Rows per distinct value below which a column is too short to distinguish codes from measurements of few people."""

SPREAD = 4
"""Codes lie close together: they span fewer whole numbers than this many times their distinct values. The slack is for
unused codes and for 9 or 99, which many questionnaires use for "no answer"."""

FEW_VALUES = 8
"""Distinct values up to which a distribution with a single peak is no evidence of a measurement: codes often have it
by chance."""

COUNTING_WORD = re.compile(
    "ages?|counts?|no|nr|num|numbers?|totals?|times|children|kids|siblings|dependents|persons|people|visits|stays|"
    "days?|weeks?|months?|years?|hours?|minutes?|size|quantity|amount"
)
"""A word in the name of a column that counts or measures something."""

IDENTIFYING_WORD = re.compile("ids?|identifiers?|uu?id|guid|mrn|ssn")
"""A word in the name of a column that numbers people or records."""


def possible_codes(frame: pd.DataFrame, schema: TableSchema) -> tuple[str, ...]:
    """Name the integer columns whose numbers may be codes of categories, in the order of the schema.

    Such a column has 2 to 30 distinct values that lie close together and repeat: at least 10 rows per value, and a span
    of less than 4 times their number. It is left out where it looks like a count or a measurement:

    * a word of its name says so, such as ``children``, ``num`` or ``years`` (`COUNTING_WORD`);
    * from 3 distinct values on, they start at 0 or 1 and each value is rarer than the one before it;
    * from 9 distinct values on, the frequencies have a single peak.

    The kind of a column is never changed: whether 1 to 4 are grades or codes is for the owner of the table to say.

    Args:
        frame: the rows.
        schema: the schema inferred from them.

    >>> frame = pd.DataFrame({"sex": [1, 2] * 20, "children": [0, 0, 1, 2] * 10, "ill": ["no", "yes"] * 20})
    >>> possible_codes(frame, TableSchema.infer(frame, "ill"))
    ('sex',)
    """
    whole = (column.name for column in schema.columns if column.kind is ColumnKind.INTEGER)
    return tuple(name for name in whole if _may_be_codes(name, frame[name].dropna()))


def possible_identifiers(frame: pd.DataFrame, schema: TableSchema) -> tuple[str, ...]:
    """Name the integer columns that may number people or records, in the order of the schema.

    They have more than 30 distinct values, and a word of the name says so (`IDENTIFYING_WORD`) or no value repeats.

    >>> frame = pd.DataFrame({"patient_id": [*range(7, 307, 5)] * 2, "age": [*range(20, 80)] * 2})
    >>> frame["ill"] = ["no", "yes"] * 60
    >>> possible_identifiers(frame, TableSchema.infer(frame, "ill"))
    ('patient_id',)
    """
    whole = (column.name for column in schema.columns if column.kind is ColumnKind.INTEGER)
    return tuple(name for name in whole if _may_identify(name, frame[name].dropna()))


def column_notices(codes: Sequence[str], identifiers: Sequence[str] = ()) -> list[str]:
    """Return a sentence each about columns that may hold codes or identifiers, with the setting for them.

    >>> column_notices(["SEX", "EDUCATION"])
    ['Whole numbers that may be codes: SEX, EDUCATION. If so, write data.categorical: [SEX, EDUCATION]']
    """
    return [
        f"Whole numbers that may be {what}: {', '.join(names)}. If so, write {config_line(key, names)}"
        for what, names, key in (("codes", codes, "data.categorical"), ("identifiers", identifiers, "data.drop"))
        if names
    ]


def _may_identify(name: str, cells: pd.Series) -> bool:
    distinct = cells.nunique()
    is_named_so = any(map(IDENTIFYING_WORD.fullmatch, _words(name)))
    return bool(distinct > MOST_CODES and (is_named_so or distinct == len(cells)))


def _may_be_codes(name: str, cells: pd.Series) -> bool:
    frequencies = cells.value_counts().sort_index()
    values, counts = frequencies.index.to_numpy(float), frequencies.to_numpy()
    if not 2 <= len(values) <= MOST_CODES or len(cells) < ROWS_PER_CODE * len(values):
        return False
    if values[-1] - values[0] >= SPREAD * len(values) or any(map(COUNTING_WORD.fullmatch, _words(name))):
        return False
    steps = counts[1:] - counts[:-1]
    if len(values) > 2 and values[0] in (0, 1) and (steps < 0).all():
        return False
    falls = (steps < 0).nonzero()[0]
    single_peak = not len(falls) or bool((steps[falls[0] :] <= 0).all())
    return not (single_peak and len(values) > FEW_VALUES)


def _words(name: str) -> list[str]:
    """Split a name at separators and where its case changes, in lower case.

    >>> _words("nKids_home"), _words("NUM_VISITS")
    (['n', 'kids', 'home'], ['num', 'visits'])
    """
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
