"""Read a user's CSV or Parquet file, with the cells of declared categories as the text that the file holds."""

import gzip
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from lightleak.core.errors import DataError
from lightleak.data.cells import LEADING_ZERO
from lightleak.data.column_problems import holds_decimal_commas
from lightleak.data.sources import reading

_CSV = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt")
_PARQUET = (".parquet", ".pq")
_WHOLE_FLOAT = r"[-+]?\d+\.0"


@dataclass(frozen=True)
class Spelling:
    """What reading a file as numbers and text hides.

    Attributes:
        padded: columns of whole numbers of which some are written with a leading zero, as codes are.
        missing: by column of text, the words that were read as missing cells, such as ``None`` and ``NA``.
    """

    padded: tuple[str, ...] = ()
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_table(path: Path, texts: Collection[str] = ()) -> pd.DataFrame:
    """Return the table of a file.

    Args:
        path: CSV, TSV (also gzipped) or Parquet.
        texts: columns of a CSV file whose cells are categories, whatever they look like: ``007`` is not 7, and only an
            empty cell is missing. Whole numbers that are all written as 1.0, as pandas writes them if cells are
            missing, lose the '.0'.

    Raises:
        DataError: the file is missing, unreadable, of another format, or repeats the name of a column.
    """
    require_table_file(path)
    with reading(path):
        if path.name.lower().endswith(_PARQUET):
            return pd.read_parquet(path)
        separator = _separator(path)
        names = pd.read_csv(path, sep=separator, header=None, nrows=1, dtype=str, keep_default_na=False).iloc[0]
        require_distinct(names[names != ""], path.name)
        frame = pd.read_csv(path, sep=separator, converters=dict.fromkeys(texts, _text), low_memory=False)
        frame = frame.assign(**{column: _without_zeros(frame[column]) for column in texts if column in frame})
        return frame if separator == "," else _with_points(frame, texts)


def require_table_file(path: Path) -> None:
    """Raise `DataError` unless a file is there, with an ending that `read_table` knows."""
    if not path.is_file():
        what = f"is no file but a folder; name a file in it ({', '.join(_CSV + _PARQUET)})" * path.is_dir()
        raise DataError(f"table {path} {what or 'does not exist or is no file'}")
    if not path.name.lower().endswith(_CSV + _PARQUET):
        raise DataError(
            f"table {path} must be one of {', '.join(_CSV + _PARQUET)}, got {path.suffix or 'no suffix'!r}; export it "
            "as one of these, or read it by pandas and hand the DataFrame to lightleak.prepare"
        )


def read_spelling(path: Path, frame: pd.DataFrame) -> Spelling:
    """Return what `read_table` hid of a file; nothing of Parquet, whose columns have types.

    Args:
        path: the file.
        frame: what was read from it.
    """
    if not path.name.lower().endswith(_CSV):
        return Spelling()
    whole = {name for name in frame.columns if _is_whole(frame[name])}
    text = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    gaps = {name: frame[name].isna().to_numpy() for name in text}
    read = whole | {name for name, missing in gaps.items() if missing.any()}
    with reading(path):
        texts = pd.read_csv(path, sep=_separator(path), usecols=read.__contains__, dtype=str, keep_default_na=False)
    words = {name: sorted(set(texts[name][gaps[name]].str.strip()) - {""}) for name in texts.columns if name in gaps}
    return Spelling(
        padded=tuple(name for name in texts.columns if name in whole and texts[name].str.match(LEADING_ZERO).any()),
        missing={name: tuple(found) for name, found in words.items() if found},
    )


def require_distinct(names: Iterable[object], title: str) -> None:
    """Raise `DataError` for repeated names of columns, to which pandas would append a number."""
    if repeated := sorted(str(name) for name, n in Counter(names).items() if n > 1):
        raise DataError(f"column names of {title!r} must differ from each other; repeated: {repeated}; rename them")


def _is_whole(cells: pd.Series) -> bool:
    is_number = pd.api.types.is_numeric_dtype(cells) and not pd.api.types.is_bool_dtype(cells)
    return is_number and bool((cells.dropna() % 1 == 0).all())


def _text(cell: str) -> str | None:
    return cell.strip() or None


def _without_zeros(cells: pd.Series) -> pd.Series:
    present = cells.dropna()
    is_whole = not present.empty and present.str.fullmatch(_WHOLE_FLOAT).all()
    return cells.str.removesuffix(".0") if is_whole else cells


def _with_points(frame: pd.DataFrame, texts: Collection[str]) -> pd.DataFrame:
    """Numbers with decimal commas as numbers, but for the columns named.

    Only for files whose cells are not separated by commas, as exports with decimal commas are: elsewhere 1,234 may be a
    thousand.
    """
    german = [name for name in frame.columns if name not in texts and holds_decimal_commas(frame[name])]
    return frame.assign(**{str(name): pd.to_numeric(frame[name].str.replace(",", ".")) for name in german})


def _separator(path: Path) -> str:
    """The separator that occurs most often in the line of column names, outside of quotes."""
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8") as file:
        names = next((line for line in file if line.strip()), "")
    return max(",;\t|", key=re.sub('"[^"]*"', "", names).count)
