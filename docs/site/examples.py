"""Copies docs/examples into the pages that show them: ``python docs/site/examples.py`` after one of them changed."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[1]
PAGES = (DOCS / "extend.md", DOCS / "python.md")

_BLOCK = re.compile(r"<!-- (examples/\w+\.py) -->\n```py\n(?:(?!```).*\n)*```\n")


def embedded(text: str) -> str:
    """Return a page with the content of every file that a comment names in the block below that comment."""
    return _BLOCK.sub(lambda found: f"<!-- {found[1]} -->\n```py\n{(DOCS / found[1]).read_text('utf-8')}```\n", text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(embedded(page.read_text("utf-8")), encoding="utf-8")
