"""Typed reading of a file that another process wrote: what is absent is unknown, what has a wrong type is an error."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lightleak.core.errors import UsageError


@dataclass(frozen=True)
class Fields:
    """The fields of one mapping of a JSON file.

    Attributes:
        raw: the mapping.
        where: file and place, for errors.
    """

    raw: Mapping[str, Any]
    where: str

    @classmethod
    def of(cls, raw: Any, where: str) -> "Fields":
        """Read a mapping.

        Raises:
            UsageError: it is none.
        """
        if not isinstance(raw, Mapping):
            raise UsageError(f"{where}: expected a mapping, got {_short(raw)}")
        return cls(raw, where)

    def number(self, name: str) -> float | None:
        """A finite number; None where it is absent, null or not finite.

        >>> Fields({"seconds": 2, "loss": float("nan")}, "row 0").number("seconds")
        2.0

        Raises:
            UsageError: it is no number.
        """
        return finite(self.raw.get(name), f"{self.where}, field {name!r}")

    def required_number(self, name: str) -> float:
        """A finite number that has to be there."""
        found = self.number(name)
        if found is None:
            raise self._wrong(name, "a finite number")
        return found

    def whole(self, name: str) -> int | None:
        """A whole number; None where it is absent or null."""
        value = self.raw.get(name)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise self._wrong(name, "a whole number")

    def flag(self, name: str) -> bool:
        """True or false; false where it is absent or null."""
        value = self.raw.get(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise self._wrong(name, "true or false")

    def text(self, name: str) -> str | None:
        """Text; None where it is absent, null or empty."""
        value = self.raw.get(name)
        if value is None or isinstance(value, str):
            return value or None
        raise self._wrong(name, "text")

    def one_of(self, name: str, allowed: Sequence[str]) -> str:
        """One of a few words, which has to be there."""
        value = self.raw.get(name)
        if isinstance(value, str) and value in allowed:
            return value
        raise self._wrong(name, f"one of {', '.join(allowed)}")

    def entries(self, name: str) -> list[Any]:
        """A list; empty where it is absent or null."""
        value = self.raw.get(name)
        if value is None or isinstance(value, list):
            return value or []
        raise self._wrong(name, "a list")

    def inner(self, name: str) -> "Fields":
        """A mapping within; empty where it is absent or null."""
        value = self.raw.get(name)
        if value is None or isinstance(value, Mapping):
            return Fields(value or {}, f"{self.where}, field {name!r}")
        raise self._wrong(name, "a mapping")

    def _wrong(self, name: str, expected: str) -> UsageError:
        return UsageError(f"{self.where}, field {name!r}: expected {expected}, got {_short(self.raw.get(name))}")


def finite(value: Any, where: str) -> float | None:
    """A finite number; None where it is null or not finite.

    Raises:
        UsageError: it is no number.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{where}: expected a number, got {_short(value)}")
    return float(value) if math.isfinite(value) else None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
