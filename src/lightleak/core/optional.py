"""Packages that only an extra brings, imported where they are used."""

from importlib import import_module
from typing import Any

from lightleak.core.errors import UnsupportedError


def import_optional(package: str, need: str, extra: str) -> Any:
    """The module of a package that may be missing.

    Args:
        package: its import name.
        need: what needs it, and its name as people write it, for the error.
        extra: extra of ours that brings it.

    Raises:
        UnsupportedError: it is not installed.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise UnsupportedError(f"{need}: pip install 'lightleak[{extra}]'") from error
