"""A table's columns as a first-class idea: the features in order, the label and the sensitive columns."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from lightleak.core.errors import DataError
from lightleak.core.yaml_text import RefusedYaml, read_yaml_file, yaml_of
from lightleak.data.cells import MAX_INFERRED_CATEGORIES, category_strings, check_cells, in_order, infer_column
from lightleak.data.column import MISSING_CATEGORY, Column, ColumnKind, MissingPolicy

__all__ = ["MAX_INFERRED_CATEGORIES", "MISSING_CATEGORY", "Column", "ColumnKind", "MissingPolicy", "TableSchema"]


@dataclass(frozen=True)
class TableSchema:
    """Ordered feature columns, the label column (its categories are the classes 0..C-1) and the sensitive columns.

    Raises:
        DataError: no feature column, repeated names, a numerical label, or a sensitive column that does not exist.

    >>> columns = (Column.integer("age", 0, 120), Column.categorical("sex", ["F", "M"]))
    >>> schema = TableSchema(columns, label=Column.categorical("ill", ["no", "yes"]))
    >>> schema.names, schema.n_classes
    (('age', 'sex'), 2)
    """

    columns: tuple[Column, ...]
    label: Column
    sensitive: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [*self.names, self.label.name]
        repeated = sorted(name for name, times in Counter(names).items() if times > 1)
        if repeated:
            raise DataError(f"column names must differ from each other; repeated: {repeated}")
        if not self.columns:
            raise DataError("a schema needs at least one feature column in addition to the label")
        if self.label.is_numerical:
            raise DataError(f"label {self.label.name!r} must be categorical, got {self.label.kind}")
        missing = [name for name in self.sensitive if name not in names]
        if missing:
            raise DataError(f"sensitive columns {missing} are not in the table; columns: {names}")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the feature columns, in order."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def categorical(self) -> tuple[Column, ...]:
        """The categorical feature columns."""
        return tuple(column for column in self.columns if not column.is_numerical)

    @cached_property
    def numerical(self) -> tuple[Column, ...]:
        """The integer and continuous feature columns."""
        return tuple(column for column in self.columns if column.is_numerical)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of the sensitive columns that are categorical; the label may be one."""
        categorical = {column.name for column in (*self.categorical, self.label)}
        return tuple(name for name in self.sensitive if name in categorical)

    @property
    def n_classes(self) -> int:
        """Number of classes of the label."""
        return len(self.label.categories)

    def column(self, name: str) -> Column:
        """The feature column of that name.

        Raises:
            DataError: no such column.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise DataError(f"no column {name!r}; columns: {list(self.names)}")

    def to_dict(self) -> dict[str, Any]:
        """JSON- and YAML-ready form."""
        return {
            "columns": [column.to_dict() for column in self.columns],
            "label": self.label.to_dict(),
            "sensitive": list(self.sensitive),
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> "TableSchema":
        """Inverse of `to_dict`.

        Raises:
            DataError: a part is missing or has no meaning.
        """
        known = ("columns", "label", "sensitive")
        if not isinstance(state, Mapping) or set(state) - set(known) or not {"columns", "label"} <= set(state):
            found = sorted(map(str, state)) if isinstance(state, Mapping) else state
            raise DataError(f"a schema is a mapping with columns, label and perhaps sensitive; got {found!r}")
        for key in ("columns", "sensitive"):
            if not isinstance(state.get(key, ()), list | tuple):
                raise DataError(f"{key} of a schema must be a list, got {state[key]!r}")
        columns = tuple(Column.from_dict(column) for column in state["columns"])
        return cls(columns, Column.from_dict(state["label"]), tuple(map(str, state.get("sensitive", ()))))

    def to_yaml(self, path: Path) -> None:
        """Write the schema as YAML."""
        path.write_text(yaml_of(self.to_dict()), encoding="utf-8")

    @classmethod
    def from_yaml(cls, path: Path) -> "TableSchema":
        """Read a schema. Categories are taken literally: ``no`` is not a boolean and ``007`` is not a number.

        Raises:
            DataError: the file is missing, no YAML, or no schema, or `read_yaml` refuses it.
        """
        if not path.is_file():
            raise DataError(f"schema file {path} does not exist")
        try:
            state = read_yaml_file(path, words=True)
        except RefusedYaml as error:
            raise DataError(f"schema file {path}: {error}") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise DataError(f"schema file {path} is not YAML: {error}") from error
        try:
            return cls.from_dict(state)
        except DataError as error:
            raise DataError(f"schema file {path}: {error}") from error

    @classmethod
    def infer(
        cls,
        frame: pd.DataFrame,
        label: str,
        sensitive: Sequence[str] = (),
        max_categories: int = MAX_INFERRED_CATEGORIES,
    ) -> "TableSchema":
        """Read kinds, categories and bounds off a table.

        Whole numbers become integer columns, other numbers continuous, booleans and strings categorical (sorted).

        Raises:
            DataError: no such label, one class, a constant column, a column of more than ``max_categories`` strings,
                infinity, or two columns of one name.
        """
        _require_distinct_names(frame)
        if label not in frame.columns:
            raise DataError(f"label {label!r} is not a column of the table; columns: {list(map(str, frame.columns))}")
        classes = category_strings(frame[label].dropna()).unique().tolist()
        if len(classes) < 2:
            raise DataError(f"label {label!r} must have at least 2 classes, got {classes}")
        if len(classes) > max_categories:
            raise DataError(
                f"label {label!r} has {len(classes)} distinct values; at most {max_categories} classes are allowed"
            )
        columns = tuple(infer_column(frame[name], max_categories) for name in frame.columns if name != label)
        return cls(columns, Column.categorical(label, in_order(classes)), tuple(sensitive))

    def validate(self, frame: pd.DataFrame, require_label: bool = True) -> pd.DataFrame:
        """Check a table and give it canonical types: categories as strings, integers as int64, continuous as float64.

        Args:
            frame: the table; further columns are dropped.
            require_label: the label column must be there.

        Raises:
            DataError: a column is missing or there twice, or the first column with a cell that does not fit it (see
                `lightleak.data.cells.check_cells`).
        """
        wanted = [*self.columns, *([self.label] if require_label or self.label.name in frame.columns else [])]
        require_columns(frame, [column.name for column in wanted])
        checked = {column.name: check_cells(column, frame[column.name]) for column in wanted}
        return pd.DataFrame(checked, index=frame.index)

    def validate_label(self, frame: pd.DataFrame) -> pd.Series:
        """Check the label column alone, whatever the others hold: classes as strings.

        Raises:
            DataError: the column is missing or holds an unknown class.
        """
        require_columns(frame, [self.label.name])
        return check_cells(self.label, frame[self.label.name])


def require_columns(frame: pd.DataFrame, names: Sequence[str]) -> None:
    """Raise `DataError` where a column is missing or two of the table's have one name."""
    _require_distinct_names(frame)
    present = set(frame.columns)
    absent = [name for name in names if name not in present]
    if absent:
        raise DataError(f"columns {absent} are missing; the table has {list(map(str, frame.columns))}")


def _require_distinct_names(frame: pd.DataFrame) -> None:
    repeated = frame.columns[frame.columns.duplicated()].unique().tolist()
    if repeated:
        raise DataError(f"column names of a table must differ from each other; repeated: {repeated}")
