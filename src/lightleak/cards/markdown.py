"""Prose and tables in Markdown, for the pages of the documentation that are made from the code."""

import html
import re
from collections.abc import Sequence


def as_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; cells are Markdown already (`as_cell`)."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def prose(text: str) -> str:
    """Return prose with its backticks; what Markdown or HTML would take for markup elsewhere is escaped."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else _escaped(part) for part in parts)


def _escaped(text: str) -> str:
    return re.sub(r"([*_\[\]|])", r"\\\1", html.escape(text, quote=False))


def as_cell(text: str) -> str:
    """Return prose as the cell of a table, with its backticks and without other markup."""
    return prose(" ".join(text.split())).replace("`|`", "`\\|`")
