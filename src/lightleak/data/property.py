"""The target property of a property inference attack: which rows have it."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from lightleak.core.errors import UsageError
from lightleak.data.schema import TableSchema


@dataclass(frozen=True)
class Property:
    """A row has the property when its cell of ``column`` is ``value`` (ProVFL, Table IV).

    Attributes:
        column: a categorical column, or a whole-number one of few values.
        value: the category, as the schema writes it.
    """

    column: str
    value: str

    @classmethod
    def parse(cls, text: str) -> "Property":
        """Read ``column=value``.

        >>> Property.parse("sex=Male")
        Property(column='sex', value='Male')

        Raises:
            UsageError: there is no ``=`` between two words.
        """
        column, given, value = text.partition("=")
        if not (given and column.strip() and value.strip()):
            raise UsageError(f"a property is written column=value, such as sex=Male; got {text!r}")
        return cls(column.strip(), value.strip())

    def __str__(self) -> str:
        return f"{self.column}={self.value}"

    def check(self, schema: TableSchema) -> None:
        """Raise `UsageError` where the schema has no such column, or the column no such category."""
        if self.column not in schema.names:
            raise UsageError(f"property {self}: no column {self.column!r}; known: {', '.join(schema.names)}")
        column = schema.columns[schema.names.index(self.column)]
        if not column.is_numerical and self.value not in column.categories:
            known = ", ".join(map(repr, column.categories[:12]))
            raise UsageError(f"property {self}: column {self.column!r} has no value {self.value!r}; known: {known}")

    def mask(self, frame: pd.DataFrame) -> np.ndarray:
        """Which rows of ``frame`` have the property, bool ``[n]``; numbers are compared as numbers.

        >>> Property("sex", "Male").mask(pd.DataFrame({"sex": ["Male", "Female"]})).tolist()
        [True, False]

        Raises:
            UsageError: a column of numbers and a value that is none.
        """
        cells = frame[self.column]
        if pd.api.types.is_numeric_dtype(cells):
            try:
                return (cells == float(self.value)).to_numpy(dtype=bool)
            except ValueError as error:
                raise UsageError(f"property {self}: {self.column!r} holds numbers, got {self.value!r}") from error
        return (cells.astype(str) == self.value).to_numpy(dtype=bool)
