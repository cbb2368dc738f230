"""What a config names by label: attacks and defenses, made and checked with their place in the config."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from lightleak.core.errors import UsageError

T = TypeVar("T")


def name_and_settings(label: str, options: Mapping[str, Any], key: str = "attack") -> tuple[str, dict[str, Any]]:
    """The name that a label of the config stands for, its own or that of its setting ``key``, and the other settings.

    >>> name_and_settings("deep trees", {"attack": "provfl_b", "depth": 3})
    ('provfl_b', {'depth': 3})
    """
    settings = dict(options)
    return settings.pop(key, label), settings


def placed(where: str, make: Callable[[], T]) -> T:
    """Return what ``make`` makes.

    Raises:
        UsageError: it refuses a setting; the message begins with the place in the config.
    """
    try:
        return make()
    except (UsageError, TypeError) as error:  # a factory with named arguments refuses others by TypeError
        raise UsageError(f"{where}: {error}") from error
