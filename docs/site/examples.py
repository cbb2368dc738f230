"""Puts the files of docs/examples into docs/extend.md: ``python docs/site/examples.py`` after one of them changed."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "extend.md"

_BLOCK = re.compile(r"<!-- (examples/\w+\.py) -->\n```py\n(?:(?!```).*\n)*```\n")


def embedded(text: str) -> str:
    """Return a page with the content of every file that a comment names in the block below that comment."""
    return _BLOCK.sub(lambda found: f"<!-- {found[1]} -->\n```py\n{(DOCS / found[1]).read_text('utf-8')}```\n", text)


if __name__ == "__main__":
    PAGE.write_text(embedded(PAGE.read_text("utf-8")), encoding="utf-8")
