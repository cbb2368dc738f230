"""A table's columns as a first-class idea: kind, categories, bounds, label and sensitive columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import yaml

from lightleak.core.errors import DataError

MissingPolicy = Literal["refuse", "category", "impute"]
MISSING_CATEGORY = "missing"
MAX_INFERRED_CATEGORIES = 100  # above it a column of strings is an identifier or free text, not a category


class ColumnKind(StrEnum):
    """What a column holds."""

    CONTINUOUS = "continuous"
    INTEGER = "integer"
    CATEGORICAL = "categorical"


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        name: column name in the table.
        kind: continuous, integer or categorical.
        categories: ordered categories (strings) of a categorical column.
        lower: lowest admissible value of a numerical column; ``None``: the lowest seen when an encoder is fitted.
        upper: highest admissible value, likewise.
        missing: ``refuse`` missing values, give them their own ``category``, or ``impute`` (median or most frequent).
    """

    name: str
    kind: ColumnKind
    categories: tuple[str, ...] = ()
    lower: float | None = None
    upper: float | None = None
    missing: MissingPolicy = "refuse"

    def __post_init__(self) -> None:
        """Raise `DataError` for a column that describes no values."""
        if self.kind is ColumnKind.CATEGORICAL:
            if len(self.categories) < 2:
                raise DataError(f"column {self.name!r}: a categorical column needs at least 2 categories, got {list(self.categories)}")
            if len(set(self.categories)) != len(self.categories):
                raise DataError(f"column {self.name!r}: categories must differ from each other, got {list(self.categories)}")
        elif self.categories:
            raise DataError(f"column {self.name!r}: a {self.kind} column has no categories, got {list(self.categories)[:5]}")
        elif self.missing == "category":
            raise DataError(f"column {self.name!r}: missing='category' needs a categorical column, got {self.kind}")
        if self.lower is not None and self.upper is not None and self.lower >= self.upper:
            raise DataError(f"column {self.name!r}: lower bound must be below the upper, got {self.lower} and {self.upper}")

    @property
    def is_numerical(self) -> bool:
        """Integer or continuous."""
        return self.kind is not ColumnKind.CATEGORICAL

    @property
    def width(self) -> int:
        """Encoded positions: one per category, or one."""
        return 1 if self.is_numerical else len(self.categories)

    @classmethod
    def categorical(cls, name: str, categories: Sequence[str], missing: MissingPolicy = "refuse") -> "Column":
        """A categorical column; ``missing='category'`` adds a category of its own."""
        listed = tuple(categories)
        if missing == "category" and MISSING_CATEGORY not in listed:
            listed = (*listed, MISSING_CATEGORY)
        return cls(name, ColumnKind.CATEGORICAL, listed, missing=missing)

    @classmethod
    def integer(cls, name: str, lower: float | None = None, upper: float | None = None, missing: MissingPolicy = "refuse") -> "Column":
        """A column of whole numbers."""
        return cls(name, ColumnKind.INTEGER, lower=lower, upper=upper, missing=missing)

    @classmethod
    def continuous(cls, name: str, lower: float | None = None, upper: float | None = None, missing: MissingPolicy = "refuse") -> "Column":
        """A column of real numbers."""
        return cls(name, ColumnKind.CONTINUOUS, lower=lower, upper=upper, missing=missing)

    def to_dict(self) -> dict[str, Any]:
        """JSON- and YAML-ready form, defaults left out."""
        state: dict[str, Any] = {"name": self.name, "kind": str(self.kind)}
        if self.categories:
            state["categories"] = list(self.categories)
        state |= {key: value for key in ("lower", "upper") if (value := getattr(self, key)) is not None}
        return state if self.missing == "refuse" else state | {"missing": self.missing}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> "Column":
        """Inverse of `to_dict`.

        Raises:
            DataError: a key is unknown or a value has no meaning.
        """
        unknown = set(state) - {"name", "kind", "categories", "lower", "upper", "missing"}
        if unknown or "name" not in state:
            raise DataError(f"a column needs a name and may have kind, categories, lower, upper, missing; got {dict(state)}")
        kinds = [str(kind) for kind in ColumnKind]
        if state.get("kind") not in kinds:
            raise DataError(f"column {state['name']!r}: kind must be one of {kinds}, got {state.get('kind')!r}")
        if state.get("missing", "refuse") not in ("refuse", "category", "impute"):
            raise DataError(f"column {state['name']!r}: missing must be refuse, category or impute, got {state['missing']!r}")
        categories = tuple(str(category) for category in state.get("categories", ()))
        if state.get("missing") == "category" and MISSING_CATEGORY not in categories:
            categories = (*categories, MISSING_CATEGORY)
        return cls(
            str(state["name"]), ColumnKind(state["kind"]), categories, state.get("lower"), state.get("upper"), state.get("missing", "refuse")
        )


@dataclass(frozen=True)
class TableSchema:
    """Ordered feature columns, the label column (its categories are the classes 0..C-1) and the sensitive columns.

    >>> schema = TableSchema((Column.integer("age", 0, 120), Column.categorical("sex", ["F", "M"])), Column.categorical("ill", ["no", "yes"]))
    >>> schema.names, schema.n_classes
    (('age', 'sex'), 2)
    """

    columns: tuple[Column, ...]
    label: Column
    sensitive: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise `DataError` for repeated names, a numerical label, or a sensitive column that does not exist."""
        names = [*self.names, self.label.name]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise DataError(f"column names must differ from each other; repeated: {repeated}")
        if not self.columns:
            raise DataError("a schema needs at least one feature column besides the label")
        if self.label.is_numerical:
            raise DataError(f"label {self.label.name!r} must be categorical, got {self.label.kind}")
        missing = [name for name in self.sensitive if name not in names]
        if missing:
            raise DataError(f"sensitive columns {missing} are not in the table; columns: {names}")

    @property
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
        unknown = set(state) - {"columns", "label", "sensitive"}
        if unknown or not {"columns", "label"} <= set(state):
            raise DataError(f"a schema has columns, label and sensitive; got the keys {sorted(state)}")
        columns = tuple(Column.from_dict(column) for column in state["columns"])
        return cls(columns, Column.from_dict(state["label"]), tuple(state.get("sensitive", ())))

    def to_yaml(self, path: Path) -> None:
        """Write the schema as YAML."""
        path.write_text(yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True))

    @classmethod
    def from_yaml(cls, path: Path) -> "TableSchema":
        """Read a schema.

        Raises:
            DataError: the file is missing, no YAML, or no schema.
        """
        if not path.is_file():
            raise DataError(f"schema file {path} does not exist")
        try:
            state = yaml.safe_load(path.read_text())
        except yaml.YAMLError as error:
            raise DataError(f"schema file {path} is not YAML: {error}") from error
        if not isinstance(state, Mapping):
            raise DataError(f"schema file {path} must hold a mapping with columns and label, got {type(state).__name__}")
        return cls.from_dict(state)

    @classmethod
    def infer(
        cls, frame: pd.DataFrame, label: str, sensitive: Sequence[str] = (), max_categories: int = MAX_INFERRED_CATEGORIES
    ) -> "TableSchema":
        """Read kinds, categories and bounds off a table.

        Whole numbers become integer columns, other numbers continuous, booleans and strings categorical (sorted).

        Raises:
            DataError: no such label, one class, a constant column, or a column of more than ``max_categories`` strings.
        """
        if label not in frame.columns:
            raise DataError(f"label {label!r} is not a column of the table; columns: {list(map(str, frame.columns))}")
        classes = _category_strings(frame[label].dropna()).unique().tolist()
        if len(classes) < 2:
            raise DataError(f"label {label!r} must have at least 2 classes, got {classes}")
        if len(classes) > max_categories:
            raise DataError(f"label {label!r} has {len(classes)} distinct values; at most {max_categories} classes are allowed")
        columns = tuple(_infer_column(frame[name], max_categories) for name in frame.columns if name != label)
        return cls(columns, Column.categorical(label, _in_order(classes)), tuple(sensitive))

    def validate(self, frame: pd.DataFrame, require_label: bool = True) -> pd.DataFrame:
        """Check a table and give it canonical types: categories as strings, integers as int64, continuous as float64.

        Args:
            frame: the table; further columns are dropped.
            require_label: the label column must be there.

        Raises:
            DataError: the first column that is missing, holds missing values, an unknown category, or no number; with
                what was expected and what came.
        """
        wanted = [*self.columns, *([self.label] if require_label or self.label.name in frame.columns else [])]
        absent = [column.name for column in wanted if column.name not in frame.columns]
        if absent:
            raise DataError(f"columns {absent} are missing; the table has {list(map(str, frame.columns))}")
        checked = {column.name: _check_column(column, frame[column.name]) for column in wanted}
        return pd.DataFrame(checked, index=frame.index)


def _category_strings(values: pd.Series) -> pd.Series:
    """Categories as strings; whole numbers lose their '.0', so that 1.0 and 1 are one category."""
    if pd.api.types.is_float_dtype(values) and len(values) and (values.dropna() % 1 == 0).all():
        values = values.astype("Int64")
    return values.astype(object).where(values.notna(), None).map(lambda v: None if v is None else str(v).strip())


def _in_order(categories: Sequence[str]) -> list[str]:
    """Numbers by value, everything else by name."""
    try:
        return sorted(categories, key=float)
    except ValueError:
        return sorted(categories)


def _infer_column(values: pd.Series, max_categories: int) -> Column:
    name = str(values.name)
    present = values.dropna()
    if present.nunique() < 2:
        found = present.unique().tolist()
        raise DataError(f"column {name!r} is constant (only {found}); drop it or declare it in a schema")
    missing: MissingPolicy = "refuse"
    if pd.api.types.is_bool_dtype(values) or not pd.api.types.is_numeric_dtype(values):
        categories = _category_strings(present).unique().tolist()
        if len(categories) > max_categories:
            raise DataError(
                f"column {name!r} has {len(categories)} distinct strings; at most {max_categories} categories are inferred. "
                "Drop it if it is an identifier or free text, or declare its categories in a schema"
            )
        return Column.categorical(name, _in_order(categories), missing)
    numbers = present.astype(float)
    if not np.isfinite(numbers).all():
        raise DataError(f"column {name!r} must be finite, got infinity")
    make = Column.integer if (numbers % 1 == 0).all() else Column.continuous
    return make(name, float(numbers.min()), float(numbers.max()), missing)


def _check_column(column: Column, values: pd.Series) -> pd.Series:
    values = _category_strings(values) if not column.is_numerical else _to_numbers(column, values)
    gaps = int(values.isna().sum())
    if gaps:
        if column.missing == "refuse":
            raise DataError(
                f"column {column.name!r} has {gaps} missing values; expected none (missing: category or missing: impute in the "
                "schema accepts them)"
            )
        if column.missing == "category":
            values = values.fillna(MISSING_CATEGORY)
        elif values.notna().any():
            values = values.fillna(values.mode().iloc[0] if not column.is_numerical else values.median())
        else:
            raise DataError(f"column {column.name!r} has no value at all; nothing to impute from")
    if not column.is_numerical:
        unknown = sorted(set(values.unique()) - set(column.categories))
        if unknown:
            known = list(column.categories[:12]) + ["..."] * (len(column.categories) > 12)
            raise DataError(f"column {column.name!r}: expected one of {known}, got {unknown[:5]}")
        return values.astype(str)
    if not np.isfinite(values).all():
        raise DataError(f"column {column.name!r}: expected finite numbers, got infinity")
    if column.kind is ColumnKind.INTEGER:
        fractional = values[values % 1 != 0]
        if len(fractional):
            raise DataError(f"column {column.name!r}: expected whole numbers, got {fractional.iloc[0]!r}")
        return values.astype("int64")
    return values.astype("float64")


def _to_numbers(column: Column, values: pd.Series) -> pd.Series:
    numbers = pd.to_numeric(values, errors="coerce").astype("float64")
    broken = values[numbers.isna() & values.notna()]
    if len(broken):
        raise DataError(f"column {column.name!r}: expected a number ({column.kind}), got {broken.iloc[0]!r}")
    return numbers
