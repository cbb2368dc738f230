"""Make blocks and draw pages of them; templates hold the prose.

Sentences live in ``templates/NAME.html.j2``, one macro for each part of a page, where they read as English with their
conditions; `fill` renders one with typed facts. In templates the functions of `report.format` are filters
(``{{ value | percent }}``), and the macros of ``macros.html.j2`` draw blocks (``{{ table(found) }}``).
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from functools import cache
from inspect import isfunction
from pathlib import Path
from typing import Any, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.runtime import Macro
from markupsafe import Markup

import lightleak
from lightleak.core.errors import UsageError
from lightleak.core.shell import shell_word
from lightleak.report import format as formats
from lightleak.report.blocks import Block, Cell, Column, Details, Figure, Line, Lines, Page, Panels, Table
from lightleak.report.format import DASH
from lightleak.report.plot.svg import legend_key

T = TypeVar("T")

OWNER_ONLY = 0o600
"""A report may hold private rows, as its run folder does."""

TEMPLATE = "base.html.j2"


def table_of(
    label: str,
    columns: Iterable[Column[T]],
    groups: Iterable[tuple[str, Iterable[T]]],
    *,
    css: str = "",
    box: str = "",
    line_css: Callable[[T], str] = lambda item: "",
) -> Table:
    """Make a table of things: one line each, by the title of the group (empty: no heading).

    >>> table = table_of("Squares", [Column("n", str), Column("n²", lambda n: str(n * n))], [("", [2, 3])])
    >>> [cell.text for cell in table.groups[0].lines[1].cells]
    ['3', '9']
    """
    listed = [(title, list(items)) for title, items in groups]
    shown, head = [], []
    for column in columns:
        cells = [_cell(column.cell(item), column.css) for _, items in listed for item in items]
        if not column.optional or any(cell.text != DASH for cell in cells):
            shown.append(cells)
            head.append(column.title)
    lines = iter(zip(*shown, strict=True))
    found = [(title, [Line(next(lines), line_css(item)) for item in items]) for title, items in listed]
    return cells_table(label, head, found, css=css, box=box)


def cells_table(
    label: str,
    head: Sequence[str],
    groups: Iterable[tuple[str, Iterable[Line | Sequence[str | Cell]]]],
    *,
    css: str = "",
    box: str = "",
) -> Table:
    """Make a table of lines of cells, by the title of their group (empty: no heading)."""
    found = (
        (title, tuple(one if isinstance(one, Line) else line_of(*one) for one in lines)) for title, lines in groups
    )
    return Table(label, tuple(head), tuple(Lines(lines, title) for title, lines in found), css, box)


def line_of(*cells: str | Cell, css: str = "") -> Line:
    """Make a line of a table."""
    return Line(tuple(map(_cell, cells)), css)


def names_table(label: str, entries: Iterable[tuple[str, str]], box: str = "") -> Table:
    """Make a table of names and values without headings."""
    return cells_table(label, (), [("", entries)], css="plain words-table", box=box)


def figures(panels: Sequence[Figure]) -> tuple[Block, ...]:
    """Figures side by side; a single one takes the whole width."""
    return (Panels(tuple(panels)),) if len(panels) > 1 else tuple(panels)


def folded(summary: str, *blocks: Block, when: bool = True, is_open: bool = False) -> tuple[Block, ...]:
    """Blocks, below a line that unfolds them where ``when`` holds."""
    return (Details(summary, blocks, is_open),) if when else blocks


def text(template: str, *values: object) -> Markup:
    """HTML with escaped values, for a sentence with emphasis.

    >>> text("<strong>{}</strong>", "<b>")
    Markup('<strong>&lt;b&gt;</strong>')
    """
    return Markup(template).format(*values)


def fill(template: str, part: str, *given: object, **facts: object) -> Markup:
    """Return one part of a template as HTML; every value is escaped.

    Args:
        template: name of the file in ``templates``, without its ending.
        part: the macro to call.
        given: its arguments.
        facts: its arguments by name.
    """
    macro = getattr(_templates().get_template(f"{template}.html.j2").module, part)
    return Markup(macro(*given, **facts)).strip()


def render(page: Page) -> str:
    """Return the page as one HTML document; every value is escaped."""
    sections = [section for section in page.sections if section is not None and any(section.blocks)]
    facts = {"page": page, "sections": sections, "today": date.today().isoformat(), "version": lightleak.__version__}
    return _templates().get_template(TEMPLATE).render(facts)


def write(target: Path, html: str) -> None:
    """Write a file atomically, readable by its owner alone.

    Raises:
        UsageError: there is no such folder.
    """
    if not target.parent.is_dir():
        raise UsageError(f"output must lie in an existing folder, got {target}")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".report-") as folder:  # created with mode 0700
        page = Path(folder) / "page.html"
        page.write_text(html, encoding="utf-8")
        os.chmod(page, OWNER_ONLY)
        os.replace(page, target)


def _cell(value: str | Cell, css: str = "") -> Cell:
    found = value if isinstance(value, Cell) else Cell(value)
    return found if not css or found.css else Cell(found.text, found.small, css)


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("lightleak.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    macros: dict[str, Macro] = {}

    def draw(block: Any) -> Markup:
        if isinstance(block, str):
            return block if isinstance(block, Markup) else Markup("<p>{}</p>").format(block)
        return Markup(macros[type(block).__name__.lower()](block))

    environment.filters |= {name: one for name, one in vars(formats).items() if isfunction(one)}
    environment.filters |= {"draw": draw, "legend_key": legend_key, "shell_word": shell_word}
    defined = vars(environment.get_template("macros.html.j2").module)
    macros |= {name: macro for name, macro in defined.items() if isinstance(macro, Macro)}
    environment.globals |= macros
    return environment
