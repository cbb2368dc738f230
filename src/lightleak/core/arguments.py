"""Arguments of the wrong type, refused by name: else a slip ends in an error from deep inside."""

from operator import index
from pathlib import Path

from lightleak.core.errors import UsageError


def require_kind(name: str, value: object, kinds: type | tuple[type, ...], expected: str) -> None:
    """Raise `UsageError` unless the value is of one of these types.

    Args:
        name: of the argument.
        value: what came.
        kinds: what is allowed.
        expected: the same in words, with what to do instead where that is not plain.

    >>> require_kind("before", 3, dict, "a state dict")
    Traceback (most recent call last):
    lightleak.core.errors.UsageError: before must be a state dict, got int
    """
    if not isinstance(value, kinds):
        raise UsageError(f"{name} must be {expected}, got {type(value).__name__}")


def require_path(name: str, value: object) -> Path:
    """The value as a path.

    Raises:
        UsageError: it is none.
    """
    require_kind(name, value, (str, Path), "a path (str or Path)")
    return Path(str(value))


def whole_number(name: str, value: object, least: int = 1) -> int:
    """The value as an int; those of numpy count, floats and strings do not.

    Raises:
        UsageError: it is no whole number, or below ``least``.

    >>> whole_number("n_rows", 6)
    6
    """
    try:
        number = None if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None:
        raise UsageError(f"{name} must be a whole number, got {value!r}")
    if number < least:
        raise UsageError(f"{name} must be at least {least}, got {number}")
    return number
