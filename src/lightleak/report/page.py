"""A report as data: a page is a list of sections, a section a list of blocks; templates draw them and hold the prose.

Sentences live in ``templates/NAME.html.j2``, one macro for each part of a page, where they read as English with their
conditions; `fill` renders one with typed facts. In templates the functions of `report.format` are filters
(``{{ value | percent }}``), and the macros of ``macros.html.j2`` draw blocks (``{{ table(found) }}``).
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from inspect import isfunction
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.runtime import Macro
from markupsafe import Markup

import lightleak
from lightleak.core.errors import UsageError
from lightleak.report import format as formats
from lightleak.report.format import DASH

T = TypeVar("T")

OWNER_ONLY = 0o600
"""A report may hold private rows, as its run folder does."""

TEMPLATE = "base.html.j2"


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    text: str


@dataclass(frozen=True)
class Legend:
    """What marks mean: an SVG (or other) mark, empty for none, and words."""

    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: what it says.
        small: lines in smaller letters below it.
        css: classes of the cell.
        title: shown on hover.
    """

    text: str
    small: tuple[str, ...] = ()
    css: str = ""
    title: str = ""


@dataclass(frozen=True)
class Line:
    """One line of a table; the first cell is its heading."""

    cells: tuple[Cell, ...]
    css: str = ""


@dataclass(frozen=True)
class Lines:
    """Lines that belong together, below a heading where they have one."""

    lines: tuple[Line, ...]
    title: str = ""


@dataclass(frozen=True)
class Table:
    """A table in a box that scrolls by itself.

    Attributes:
        label: what it lists, for screen readers.
        head: headings of the columns; none for a table of names and values.
        groups: its lines.
        css: classes of the table.
        box: classes of the box.
    """

    label: str
    head: tuple[str, ...]
    groups: tuple[Lines, ...]
    css: str = ""
    box: str = ""


@dataclass(frozen=True)
class Figure:
    """A drawing of `report.plot`; ``plot`` are the classes of its frame, which leave room for labels."""

    drawing: str
    title: str = ""
    caption: str = ""
    legend: Legend | None = None
    plot: str = ""


@dataclass(frozen=True)
class Panels:
    """Figures side by side where there are several; ``css`` arranges them."""

    figures: tuple[Figure, ...]
    css: str = "panels"


@dataclass(frozen=True)
class Details:
    """Blocks that are folded below a line."""

    summary: str
    blocks: "tuple[Block, ...]"
    is_open: bool = False
    css: str = ""


Block: TypeAlias = str | Heading | Legend | Table | Figure | Panels | Details
"""`Markup` is HTML of a template (`fill`); any other text is a paragraph."""


@dataclass(frozen=True)
class Section:
    """One part of a page, with an entry in its contents."""

    id: str
    title: str
    blocks: Sequence[Block]
    css: str = ""


@dataclass(frozen=True)
class Page:
    """A whole report.

    Attributes:
        title: its heading.
        subject: what was measured on, in a few words.
        sections: its parts, in their order; None is left out.
        private: a warning that the file contains private data, or that it is redacted; empty where neither holds.
        genre: what kind of report it is, in the line above the heading.
    """

    title: str
    subject: str
    sections: Sequence[Section | None]
    private: str = ""
    genre: str = "privacy audit"


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column of a table of things.

    Attributes:
        title: its heading.
        cell: what stands in it.
        optional: whether it is left out where it would hold nothing but dashes.
        css: classes of its cells.
    """

    title: str
    cell: Callable[[T], str | Cell] = field(repr=False)
    optional: bool = False
    css: str = ""


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
    return Table(
        label,
        tuple(head),
        tuple(Lines(tuple(Line(next(lines), line_css(item)) for item in items), title) for title, items in listed),
        css=css,
        box=box,
    )


def names_table(label: str, entries: Iterable[tuple[str, str]], box: str = "") -> Table:
    """A table of names and values without headings."""
    lines = tuple(Line((_cell(name), _cell(value))) for name, value in entries)
    return Table(label, (), (Lines(lines),), css="plain", box=box)


def figures(panels: Sequence[Figure], css: str = "panels") -> tuple[Block, ...]:
    """Figures side by side; a single one takes the whole width."""
    return (Panels(tuple(panels), css),) if len(panels) > 1 else tuple(panels)


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
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".report-", suffix=".html")  # created with mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(html)
        os.chmod(name, OWNER_ONLY)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _cell(value: str | Cell, css: str = "") -> Cell:
    found = value if isinstance(value, Cell) else Cell(value)
    return found if not css or found.css else Cell(found.text, found.small, css, found.title)


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

    environment.filters |= {name: one for name, one in vars(formats).items() if isfunction(one)} | {"draw": draw}
    macros |= {
        name: macro
        for name, macro in vars(environment.get_template("macros.html.j2").module).items()
        if isinstance(macro, Macro)
    }
    environment.globals |= macros
    return environment
