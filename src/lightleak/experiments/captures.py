"""Folders of captures that an offline attack reads."""

from pathlib import Path

from lightleak.core.errors import UsageError
from lightleak.core.stored import DAMAGED


def find_captures(root: Path) -> list[Path]:
    """Folders below ``root`` (or ``root`` itself) that hold an ``observation/``, sorted.

    Raises:
        UsageError: there is none.
    """
    folders = sorted(path.parent for path in root.rglob("observation") if path.is_dir()) if root.is_dir() else []
    found = [folder for folder in folders if DAMAGED not in folder.name]
    if not found:
        raise UsageError(f"--capture {root} holds no captured update (a folder with observation/facts.json)")
    return found


def named_captures(root: Path) -> dict[str, Path]:
    """The same by names that are unique among them."""
    return {"-".join(path.relative_to(root).parts) or root.resolve().name: path for path in find_captures(root)}
