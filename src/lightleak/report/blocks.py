"""A report as data: a page is a list of sections, a section a list of blocks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from lightleak.report.plot.chart import Style

T = TypeVar("T")


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    text: str


@dataclass(frozen=True)
class Legend:
    """What marks mean: the look of a series or the class of a line or ring (`plot.svg.legend_key`), and words.

    An empty class has no mark.
    """

    entries: Sequence[tuple[Style | str, str]]


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: what it says.
        small: lines in smaller letters below it.
        css: classes of the cell.
    """

    text: str
    small: tuple[str, ...] = ()
    css: str = ""


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
