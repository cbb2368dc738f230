"""Packages that only an extra brings, imported where they are used, and how this copy of the project gets them."""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from lightleak.core.errors import UnsupportedError

PROJECT = "lightleak"


@cache
def checkout() -> Path | None:
    """The source checkout that the package runs from, if it does."""
    folder = Path(__file__).resolve().parents[3]
    return folder if (folder / "pyproject.toml").is_file() and (folder / "src" / PROJECT).is_dir() else None


def install_line(extra: str = "") -> str:
    """Return the command that installs the project, or an extra of it, the way this copy was installed."""
    if checkout() is None:
        return f"pip install '{PROJECT}[{extra}]'" if extra else f"pip install --force-reinstall {PROJECT}"
    return f'pip install -c constraints.txt -e ".[{extra}]"' if extra else "pip install -c constraints.txt -e ."


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
        raise UnsupportedError(f"{need}: {install_line(extra)}") from error
