"""Find every column of a user's table that cannot be a feature, and suggest a fix for each."""

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd

from lightleak.core.yaml_text import config_line
from lightleak.data.cells import MAX_INFERRED_CATEGORIES, category_strings, nested_kind, stray_words

_MONTH = "(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
DATE = re.compile(
    r"(\d{1,4}([-/.])\d{1,2}\2\d{1,4}"
    rf"|\d{{1,2}}[-. ]+{_MONTH}[-., ]+\d{{2,4}}"
    rf"|{_MONTH}[. ]+\d{{1,2}},? +\d{{4}})"
    r"([ T]\d{1,2}:.*)?",
    re.IGNORECASE,
)
"""A day in numbers or with the English name of its month, with or without a time."""

MOSTLY = 0.9
"""Share of the cells that must read as dates for a column to hold dates; the rest are then taken for typing errors."""

LOOKED_AT = 1000
"""Cells that are read to recognize dates in text: enough for the share above, and quick on millions of rows."""

SHOWN = 5
"""Words among numbers that a message lists."""

FEW = 20
"""Distinct values up to here say nothing about a column: a table of 30 rows may well hold 20 professions."""

LEAST_NUMBERED_ROWS = 50
"""Rows from which whole numbers that all differ look like a running number; the ages of 20 people may all differ."""

SPREAD = 2
"""A running number spans less than this many times its rows: some rows of a register may be missing."""

DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+(,\d+)?\s*")
"""A number with a decimal comma, or a whole one, which such a column may hold as well."""

MOSTLY_DISTINCT = 0.5
"""Share of distinct values above which text is no category: one that occurs in a single row carries no information."""


@dataclass(frozen=True)
class ColumnProblem:
    """Why a column cannot be used.

    Attributes:
        column: its name.
        problem: what is wrong, in words.
        fix: what to do about it.
        drops: whether leaving the column out fixes it.
        fills: whether filling in missing values fixes it.
    """

    column: str
    problem: str
    fix: str
    drops: bool = False
    fills: bool = False

    def __str__(self) -> str:
        return f"column {self.column!r} {self.problem}: {self.fix}"


def holds_dates(cells: pd.Series) -> bool:
    """Whether a column holds days or times: as such, or as text such as 2024-01-31 or 31/01/2024 08:30.

    >>> holds_dates(pd.Series(["2024-01-31", "2024-02-01", None])), holds_dates(pd.Series(["10-20", "20-30"]))
    (True, False)
    """
    if pd.api.types.is_datetime64_any_dtype(cells) or isinstance(cells.dtype, pd.PeriodDtype):
        return True
    if pd.api.types.is_numeric_dtype(cells) or isinstance(cells.dtype, pd.CategoricalDtype):
        return False
    present = cells.dropna()
    dates = [_is_date(value) for value in present.head(LOOKED_AT)]
    return bool(dates) and sum(dates) >= MOSTLY * len(dates)


def rarely_repeats(cells: pd.Series) -> bool:
    """Whether most values of a column occur once, as those of identifiers and free text do.

    >>> rarely_repeats(pd.Series([f"patient {i}" for i in range(60)])), rarely_repeats(pd.Series(["a", "b"] * 30))
    (True, False)
    """
    distinct = cells.nunique()
    return bool(distinct > FEW and distinct > MOSTLY_DISTINCT * cells.count())


def numbers_its_rows(cells: pd.Series) -> bool:
    """Whether a column looks like an identifier: whole numbers, all different, in a row or nearly so.

    >>> numbers_its_rows(pd.Series(range(1001, 1101))), numbers_its_rows(pd.Series([20, 35, 50] * 30))
    (True, False)
    """
    present = cells.dropna()
    if (
        not pd.api.types.is_numeric_dtype(cells)
        or pd.api.types.is_bool_dtype(cells)
        or len(present) < LEAST_NUMBERED_ROWS
    ):
        return False
    if not present.is_unique or not (present % 1 == 0).all():
        return False
    return bool(float(present.max()) - float(present.min()) < SPREAD * len(present))


def holds_decimal_commas(cells: pd.Series) -> bool:
    """Whether every value of a column of text is a number, some of them with a comma before the decimals.

    >>> holds_decimal_commas(pd.Series(["3,5", "-4", None])), holds_decimal_commas(pd.Series(["3", "4"]))
    (True, False)
    """
    if pd.api.types.is_numeric_dtype(cells) or isinstance(cells.dtype, pd.CategoricalDtype):
        return False
    distinct = cells.dropna().unique()
    if not all(isinstance(value, str) and DECIMAL_COMMA.fullmatch(value) for value in distinct):
        return False
    return any("," in value for value in distinct)


def column_problems(
    frame: pd.DataFrame,
    label: str,
    fills: bool,
    words: Mapping[str, Sequence[str]] = MappingProxyType({}),
    categorical: Sequence[str] = (),
) -> list[ColumnProblem]:
    """Problems of the feature columns of a table without a schema, in the order of the columns.

    Args:
        frame: the table.
        label: name of its label column, which is checked elsewhere.
        fills: missing values will be filled in.
        words: by column, the words that were read as missing cells.
        categorical: columns that hold categories even if nearly all of them are numbers.
    """
    found = []
    for name in frame.columns:
        problem = None if name == label else _problem(frame[name], fills, words.get(str(name), ()), name in categorical)
        if problem is not None:
            found.append(problem)
    return found


def problem_report(title: str, problems: Sequence[ColumnProblem]) -> str:
    """All problems of a table in one message, with the settings that fix them.

    >>> print(problem_report("t.csv", [ColumnProblem("seen", "holds dates", "drop it", drops=True)]))
    't.csv' cannot be used without changes:
    - column 'seen' holds dates: drop it
    In a config: data.drop: [seen]; in Python: drop=['seen']
    """
    dropped = [problem.column for problem in problems if problem.drops]
    yaml, python = [], []
    if dropped:
        yaml.append(config_line("data.drop", dropped))
        python.append(f"drop={dropped!r}")
    if any(problem.fills for problem in problems):
        yaml.append("data.missing: impute")
        python.append("missing='impute'")
    listed = "\n".join(f"- {problem}" for problem in problems)
    fixes = f"\nIn a config: {' and '.join(yaml)}; in Python: {', '.join(python)}" if yaml else ""
    return f"{title!r} cannot be used without changes:\n{listed}{fixes}"


def _problem(cells: pd.Series, fills: bool, words: Sequence[str], is_category: bool) -> ColumnProblem | None:
    name, present = str(cells.name), cells.dropna()
    if present.empty:
        return ColumnProblem(name, "has no value at all", "drop it", drops=True)
    if (kind := nested_kind(cells)) is not None:
        fix = "drop it, or put what matters of them in columns of their own"
        return ColumnProblem(name, f"holds cells of type {kind}", fix, drops=True)
    if holds_dates(cells) or pd.api.types.is_timedelta64_dtype(cells):
        fix = "drop it, or put a number in its place, such as days since the first date"
        return ColumnProblem(name, f"holds dates ({present.iloc[0]})", fix, drops=True)
    if pd.api.types.is_complex_dtype(cells):
        fix = "put real and imaginary parts in columns of their own, or drop it"
        return ColumnProblem(name, f"holds complex numbers ({present.iloc[0]})", fix, drops=True)
    if holds_decimal_commas(cells):
        first = next(value for value in present if "," in value).strip()
        fix = "write them with points (pandas.read_csv reads them with decimal=','), or declare categories in a schema"
        return ColumnProblem(name, f"holds numbers with decimal commas ({first!r})", fix)
    if not pd.api.types.is_numeric_dtype(cells) or pd.api.types.is_bool_dtype(cells):
        is_category = is_category or isinstance(cells.dtype, pd.CategoricalDtype)
        if not is_category and len(stray := stray_words(present)):
            listed = ", ".join(f"{word!r} ({n} cell{'s' * (n > 1)})" for word, n in stray.head(SHOWN).items())
            more = f" and {len(stray) - SHOWN} more" if len(stray) > SHOWN else ""
            fix = f"empty these cells, or, if all are codes, write {config_line('data.categorical', [name])}"
            return ColumnProblem(name, f"holds numbers, but for: {listed}{more}", fix)
        distinct = category_strings(present).nunique()
        if distinct > MAX_INFERRED_CATEGORIES:
            fix = "drop it if it is an identifier or free text, or declare its categories in a schema"
            what = f"has {distinct} distinct strings; at most {MAX_INFERRED_CATEGORIES} categories are inferred"
            return ColumnProblem(name, what, fix, drops=True)
        if rarely_repeats(category_strings(present)):
            fix = "drop it if it is an identifier or free text, or declare its categories in a schema"
            what = f"has {distinct} distinct strings in {len(present)} rows, too many to be categories"
            return ColumnProblem(name, what, fix, drops=True)
    elif np.isinf(present.to_numpy(float)).any():
        return ColumnProblem(name, "holds infinity", "put a number or nothing in its place, or drop it", drops=True)
    elif numbers_its_rows(cells):
        what = f"looks like an identifier ({len(present)} different whole numbers, nearly in a row)"
        return ColumnProblem(name, what, "drop it (data.drop), or declare it in a schema", drops=True)
    if present.nunique() < 2:
        what = f"is constant (only {present.iloc[:1].tolist()}){read_as_missing(words)}"
        return ColumnProblem(name, what, f"drop it or declare it in a schema{_keep(name, words)}", drops=True)
    gaps = int(cells.isna().sum())
    if gaps and not fills:
        fix = "fill them in (the median, or the most frequent category), or declare what they mean in a schema"
        what = f"has {gaps} missing values{read_as_missing(words)}"
        return ColumnProblem(name, what, fix + _keep(name, words), fills=True)
    return None


def read_as_missing(words: Sequence[str]) -> str:
    """Return the words of a column that were read as missing cells, in parentheses; nothing where there are none.

    >>> read_as_missing(["NA", "None"])
    " ('NA', 'None' were read as missing)"
    """
    return f" ({', '.join(map(repr, words))} {'were' if len(words) > 1 else 'was'} read as missing)" if words else ""


def _keep(name: str, words: Sequence[str]) -> str:
    kept = f"; to keep {', '.join(map(repr, words))} as a category, write {config_line('data.categorical', [name])}"
    return kept if words else ""


def _is_date(value: object) -> bool:
    if isinstance(value, datetime.date):  # a datetime, and pandas' Timestamp, is one
        return True
    return isinstance(value, str) and DATE.fullmatch(value.strip()) is not None
