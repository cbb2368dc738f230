"""The cells of one column: what kind of column they make, and their canonical values under a given one."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from lightleak.core.errors import DataError
from lightleak.data.column import MISSING_CATEGORY, Column, ColumnKind, category_text

MAX_INFERRED_CATEGORIES = 100  # above it a column of strings is an identifier or free text, not a category
MOSTLY_NUMBERS = 0.9  # share of distinct cells above which the others of a column are words among numbers
LEADING_ZERO = r"\s*[-+]?0\d+\s*$"
LARGEST_INTEGER = 2**53  # whole numbers up to here are exact in float64


def category_strings(cells: pd.Series) -> pd.Series:
    """Cells as stripped strings, ``None`` where missing (see `lightleak.data.column.category_text`).

    Raises:
        DataError: cells that are lists or other things without a value of their own.
    """
    if pd.api.types.infer_dtype(cells).startswith("mixed"):
        odd = cells[~cells.map(pd.api.types.is_hashable).astype(bool)]
        if len(odd):
            raise DataError(f"column {cells.name!r}: expected numbers or strings, got {odd.iloc[0]!r}")
        # As keys of a table True, 1 and 1.0 would be one category; as text they are not.
        cells = cells.map(category_text, na_action="ignore")
    codes, distinct = pd.factorize(cells)
    texts = np.array([*(category_text(value) for value in distinct), None], dtype=object)
    return pd.Series(texts[codes], index=cells.index, name=cells.name, dtype=object)  # code -1 is a missing cell


def nested_kind(cells: pd.Series) -> str | None:
    """Return the type of the first cell without a value of its own, such as a list, ``None`` if there is none.

    >>> nested_kind(pd.Series([None, [1, 2]])), nested_kind(pd.Series(["a", 1]))
    ('list', None)
    """
    if cells.dtype != object:
        return None
    return next((type(cell).__name__ for cell in cells if not pd.api.types.is_hashable(cell)), None)


def without_blanks(cells: pd.Series, is_category: bool = False) -> pd.Series:
    """Return the cells with those of whitespace alone as missing, and decimal numbers as floats.

    If the others are all numbers without leading zeros, they become numbers.

    Args:
        cells: of one column.
        is_category: the column is declared to hold categories: what remains is not changed.

    >>> without_blanks(pd.Series(["18", " ", "40"])).tolist()
    [18.0, nan, 40.0]
    """
    if not (cells.dtype == object or isinstance(cells.dtype, pd.StringDtype)):
        return cells
    if not is_category and pd.api.types.infer_dtype(cells) == "decimal":
        return pd.to_numeric(cells)
    blank = cells.map(lambda cell: isinstance(cell, str) and not cell.strip()).astype(bool)
    if not blank.any():
        return cells
    cells = cells.mask(blank, None)
    present = cells.dropna()
    if is_category or present.astype(str).str.match(LEADING_ZERO).any():
        return cells
    numbers = pd.to_numeric(present, errors="coerce")
    return cells if present.empty or numbers.isna().any() else numbers.reindex(cells.index)


def stray_words(cells: pd.Series) -> pd.Series:
    """Return how often each cell that is no number occurs in a column of text, if nearly all distinct ones are numbers.

    >>> stray_words(pd.Series([*"0123456789", "?", "?"])).to_dict(), stray_words(pd.Series(["1", "2", "3+"])).to_dict()
    ({'?': 2}, {})
    """
    counts = category_strings(cells).value_counts()
    stray = counts[pd.to_numeric(counts.index.to_series(), errors="coerce").isna()]
    return stray if len(counts) - len(stray) > MOSTLY_NUMBERS * len(counts) else stray[:0]


def in_order(categories: Sequence[str]) -> list[str]:
    """Numbers by value, everything else by name.

    >>> in_order(["10", "9"]), in_order(["10", "9", "x"])
    (['9', '10'], ['10', '9', 'x'])
    """
    try:
        values = {category: float(category) for category in categories}
    except ValueError:
        return sorted(categories)
    if any(math.isnan(value) for value in values.values()):  # the word "nan": float reads it, but it has no place
        return sorted(categories)
    return sorted(categories, key=lambda category: (values[category], category))


def category_codes(column: Column, cells: pd.Series) -> np.ndarray:
    """Index of each cell among the categories of a column, int64 ``[n]``; -1 for a value that is none of them.

    >>> category_codes(Column.categorical("sex", ["F", "M"]), pd.Series(["M", "F", "?"])).tolist()
    [1, 0, -1]
    """
    return pd.Categorical(cells, categories=list(column.categories)).codes.astype(np.int64)


def infer_column(cells: pd.Series, max_categories: int = MAX_INFERRED_CATEGORIES) -> Column:
    """The column these cells make: whole numbers integer, other numbers continuous, booleans and strings categorical.

    Whole numbers beyond 2**53, which float64 does not distinguish, are continuous.

    Raises:
        DataError: infinity, a constant column, or more than ``max_categories`` strings.
    """
    name = str(cells.name)
    present = cells.dropna()
    numerical = pd.api.types.is_numeric_dtype(cells) and not pd.api.types.is_bool_dtype(cells)
    distinct = (present if numerical else category_strings(present)).unique().tolist()
    if len(distinct) < 2:
        raise DataError(f"column {name!r} is constant (only {distinct}); drop it or declare it in a schema")
    if not numerical:
        if len(distinct) > max_categories:
            raise DataError(
                f"column {name!r} has {len(distinct)} distinct strings; at most {max_categories} categories are "
                "inferred. Drop it if it is an identifier or free text, or declare its categories in a schema"
            )
        return Column.categorical(name, in_order(distinct))
    numbers = present.astype("float64")
    if not np.isfinite(numbers).all():
        raise DataError(f"column {name!r}: expected finite numbers, got infinity")
    whole = ((numbers % 1 == 0) & (numbers.abs() <= LARGEST_INTEGER)).all()
    make = Column.integer if whole else Column.continuous
    return make(name, float(numbers.min()), float(numbers.max()))


def check_cells(column: Column, cells: pd.Series) -> pd.Series:
    """Canonical values: categories as strings, integers as int64, continuous numbers as float64.

    Raises:
        DataError: missing values that the column refuses, an unknown category, no number, or no whole number; with what
            was expected and what came. Bounds are not checked: a row may lie outside what an attacker assumes.
    """
    values = fill(column, _present(column, cells))
    if not column.is_numerical:
        unknown = sorted(set(values.unique()) - set(column.categories))
        if unknown:
            known = list(column.categories[:12]) + ["..."] * (len(column.categories) > 12)
            raise DataError(f"{column}: expected one of {known}, got {unknown[:5]}")
        return values.astype(str)
    if not np.isfinite(values).all():
        raise DataError(f"{column}: expected finite numbers, got infinity")
    if column.kind is ColumnKind.INTEGER:
        broken = values[(values % 1 != 0) | (values.abs() > LARGEST_INTEGER)]
        if len(broken):
            raise DataError(f"{column}: expected whole numbers of at most 2**53, got {float(broken.iloc[0])!r}")
    return values.astype("int64" if column.kind is ColumnKind.INTEGER else "float64")


def gaps(column: Column, cells: pd.Series) -> pd.Series:
    """Return which cells `check_cells` finds missing."""
    return _present(column, cells).isna()


def _present(column: Column, cells: pd.Series) -> pd.Series:
    return _numbers(column, cells) if column.is_numerical else category_strings(cells)


def fill(column: Column, values: pd.Series) -> pd.Series:
    """Fill missing values as the column says, from the others.

    Raises:
        DataError: the column refuses missing values, or there are no others.
    """
    gaps = int(values.isna().sum())
    if not gaps:
        return values
    if column.missing == "refuse":
        raise DataError(
            f"{column} has {gaps} missing values; expected none (missing: category or missing: impute in the schema "
            "accepts them)"
        )
    if column.missing == "category":
        return values.fillna(MISSING_CATEGORY)
    if gaps == len(values):
        raise DataError(f"{column} has no value at all; nothing to impute from")
    if not column.is_numerical:
        return values.fillna(values.mode().iloc[0])
    # The lower of two middle values is itself a value of the column: an integer column stays one.
    whole = column.kind is ColumnKind.INTEGER
    return values.fillna(values.quantile(interpolation="lower") if whole else values.median())


def _numbers(column: Column, cells: pd.Series) -> pd.Series:
    if pd.api.types.is_complex_dtype(cells):  # float64 would keep the real parts alone
        raise DataError(f"{column}: expected a number ({column.kind}), got complex numbers")
    numbers = pd.to_numeric(cells, errors="coerce").astype("float64")
    broken = cells[numbers.isna() & cells.notna()]
    if len(broken):
        raise DataError(f"{column}: expected a number ({column.kind}), got {broken.iloc[0]!r}")
    return numbers
