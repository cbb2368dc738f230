"""Tables as CSV that a spreadsheet shows and does not run: text that it would take for a formula is marked as text."""

import csv
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
"""Text that a spreadsheet runs, or that looks escaped: an apostrophe before it must differ from ours."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z")


def csv_text(frame: "pd.DataFrame", raw: bool = False) -> str:
    r"""Return the table as CSV; text cells and column names that begin like a formula get an apostrophe in front.

    A formula begins with ``=``, ``+``, ``-``, ``@``, a tab or a line break. Numbers are unchanged, also those
    written as text.

    >>> import pandas as pd
    >>> csv_text(pd.DataFrame({"-age": [-3, 4], "job": ["=1+1", "-7.5"]}))
    "'-age,job\n-3,'=1+1\n4,-7.5\n"

    Args:
        frame: the table.
        raw: leave all text unchanged.
    """
    escaped = frame if raw else frame.rename(columns=_escape).apply(_escape_column)
    text = str(escaped.to_csv(index=False))
    # Python quotes no lone carriage return, at which readers begin a new row.
    return str(escaped.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC)) if "\r" in text else text


def without_escape(cell: str) -> str:
    """Return a cell of text, as read from `csv_text`'s CSV, as it was before.

    >>> [without_escape(cell) for cell in ("'=1+1", "'quoted'", "-7.5")]
    ['=1+1', "'quoted'", '-7.5']
    """
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _escape_column(column: "pd.Series[Any]") -> "pd.Series[Any]":
    from pandas.api.types import is_numeric_dtype  # heavy, and a reader does not need it

    return column if is_numeric_dtype(column) else column.astype(object).map(_escape)


def _escape(cell: Any) -> Any:
    if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.match(cell):
        return f"'{cell}"
    return cell
