"""Reading a value out of a results row, which an older version or another tool may have written."""

import math
from typing import Any


def number(value: Any) -> float | None:
    """A finite number, or None.

    >>> number(2), number("2"), number(True)
    (2.0, None, None)
    """
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known else None


def whole(value: Any) -> int | None:
    """A finite number without its fraction, or None."""
    found = number(value)
    return None if found is None else int(found)


def text(value: Any) -> str | None:
    """Text, or None where there is none."""
    return None if value is None or value == "" else str(value)
