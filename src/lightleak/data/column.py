"""One column of a table: what it holds, its categories or bounds, and what to do about missing values."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np

from lightleak.core.errors import DataError

MissingPolicy = Literal["refuse", "category", "impute"]
MISSING_CATEGORY = "missing"


class ColumnKind(StrEnum):
    """What a column holds."""

    CONTINUOUS = "continuous"
    INTEGER = "integer"
    CATEGORICAL = "categorical"

    @property
    def is_numerical(self) -> bool:
        """Integer or continuous."""
        return self is not ColumnKind.CATEGORICAL


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        name: column name in the table.
        kind: continuous, integer or categorical.
        categories: ordered categories (strings) of a categorical column.
        lower: lowest value of a numerical column that the server assumes, and decoding clamps to; ``None``: the lowest
            seen when an encoder is fitted.
        upper: highest value, likewise.
        missing: ``refuse`` missing values, give them their own ``category``, or ``impute`` the median (of an integer
            column the lower one) or the most frequent category of the rows that are being read.

    Raises:
        DataError: a column that describes no values.

    >>> Column.integer("age", 0, 120).width, Column.categorical("sex", ["F", "M"]).width
    (1, 2)
    """

    name: str
    kind: ColumnKind
    categories: tuple[str, ...] = ()
    lower: float | None = None
    upper: float | None = None
    missing: MissingPolicy = "refuse"

    def __post_init__(self) -> None:
        if self.missing not in get_args(MissingPolicy):
            raise DataError(f"{self}: missing must be refuse, category or impute, got {self.missing!r}")
        if self.is_numerical:
            self._check_bounds()
        else:
            self._check_categories()

    def __str__(self) -> str:
        return f"column {self.name!r}"

    def _check_bounds(self) -> None:
        if self.categories:
            raise DataError(f"{self}: {self.kind} columns have no categories, got {list(self.categories)[:5]}")
        if self.missing == "category":
            raise DataError(f"{self}: missing='category' needs a categorical column, got {self.kind}")
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            whole = self.kind is ColumnKind.INTEGER
            if bound is not None and (not math.isfinite(bound) or (whole and bound % 1 != 0)):
                raise DataError(f"{self}: {name} bound must be a {'whole' if whole else 'finite'} number, got {bound}")
        if self.lower is not None and self.upper is not None and self.lower >= self.upper:
            raise DataError(f"{self}: lower bound must be below the upper, got {self.lower} and {self.upper}")

    def _check_categories(self) -> None:
        listed = list(self.categories)
        if self.lower is not None or self.upper is not None:
            raise DataError(f"{self}: a categorical column has no bounds, got {self.lower} and {self.upper}")
        odd = [category for category in listed if not isinstance(category, str) or category != category.strip()]
        if odd:
            raise DataError(f"{self}: categories must be strings without surrounding space, got {odd[:5]}")
        if len(listed) < 2:
            raise DataError(f"{self}: a categorical column needs at least 2 categories, got {listed}")
        if len(set(listed)) != len(listed):
            raise DataError(f"{self}: categories must differ from each other, got {listed[:12]}")
        if self.missing == "category" and MISSING_CATEGORY not in listed:
            raise DataError(f"{self}: missing='category' needs {MISSING_CATEGORY!r} among the categories, got {listed}")

    @property
    def is_numerical(self) -> bool:
        """Integer or continuous."""
        return self.kind.is_numerical

    @property
    def width(self) -> int:
        """Encoded positions: one per category, or one."""
        return 1 if self.is_numerical else len(self.categories)

    def number_text(self, value: float) -> str:
        """Return a number of this column as text: every digit of a whole one, otherwise 12 significant digits.

        >>> Column.integer("income").number_text(1234567.0), Column.continuous("dose").number_text(0.1 + 0.2)
        ('1234567', '0.3')
        """
        return str(int(value)) if self.kind is ColumnKind.INTEGER else f"{value:.12g}"

    @classmethod
    def categorical(cls, name: str, categories: Sequence[str], missing: MissingPolicy = "refuse") -> "Column":
        """A categorical column; ``missing='category'`` adds a category of its own."""
        listed = tuple(categories)
        if missing == "category" and MISSING_CATEGORY not in listed:
            listed = (*listed, MISSING_CATEGORY)
        return cls(name, ColumnKind.CATEGORICAL, listed, missing=missing)

    @classmethod
    def integer(
        cls, name: str, lower: float | None = None, upper: float | None = None, missing: MissingPolicy = "refuse"
    ) -> "Column":
        """A column of whole numbers."""
        return cls(name, ColumnKind.INTEGER, lower=lower, upper=upper, missing=missing)

    @classmethod
    def continuous(
        cls, name: str, lower: float | None = None, upper: float | None = None, missing: MissingPolicy = "refuse"
    ) -> "Column":
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
        """Inverse of `to_dict`; numbers may be text, categories may be numbers.

        Raises:
            DataError: a key is unknown or a value has no meaning.
        """
        known = ("name", "kind", "categories", "lower", "upper", "missing")
        if not isinstance(state, Mapping) or set(state) - set(known) or "name" not in state:
            raise DataError(f"a column is a mapping with name and any of {', '.join(known[1:])}; got {state!r}")
        if not _is_scalar(state["name"]):
            raise DataError(f"a column's name must be text, got {state['name']!r}")
        name, kinds = str(state["name"]), [str(kind) for kind in ColumnKind]
        if state.get("kind") not in kinds:
            raise DataError(f"column {name!r}: kind must be one of {', '.join(kinds)}, got {state.get('kind')!r}")
        kind, missing = ColumnKind(state["kind"]), state.get("missing", "refuse")
        listed = state.get("categories", ())
        if not isinstance(listed, list | tuple):
            raise DataError(f"column {name!r}: categories must be a list, got {listed!r}")
        if odd := [category for category in listed if not _is_scalar(category)]:
            raise DataError(f"column {name!r}: categories must be text or numbers, got {odd[:5]}")
        categories = tuple(category_text(category) for category in listed)
        if missing == "category" and not kind.is_numerical:
            return cls.categorical(name, categories, missing)
        lower, upper = (_bound(name, key, state.get(key)) for key in ("lower", "upper"))
        return cls(name, kind, categories, lower, upper, missing)


def category_text(value: Any) -> str:
    """A category as text, without surrounding space; a whole float loses its '.0', so that 1.0 and 1 are one category.

    >>> category_text(1.0), category_text(" yes "), category_text(True)
    ('1', 'yes', 'True')
    """
    whole = isinstance(value, float | np.floating) and value.is_integer()
    return str(int(value)) if whole else str(value).strip()


def _is_scalar(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, Real) and math.isfinite(value))


def _bound(column: str, key: str, value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"column {column!r}: {key} bound must be a number, got {value!r}") from error
