"""Where every table of the papers stands, after each table that `run_every_table` runs.

``status.json`` for programs, ``status.html`` for readers. ``benchmarks/status.py`` of a checkout merges statuses of
several runs and writes the tables of RESULTS and of the documentation.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from lightleak.core.errors import UsageError
from lightleak.core.grouping import by_key
from lightleak.core.records import json_field, read_record, write_record
from lightleak.core.results import SCHEMA_VERSION, ValueRow, read_row
from lightleak.core.stored import write_whole
from lightleak.core.summary import CONFIDENCE
from lightleak.report.blocks import Cell, Column, Page, Section, Table
from lightleak.report.format import DASH, percent
from lightleak.report.page import fill, folded, render, table_of, write
from lightleak.reproductions.comparison import RULE
from lightleak.reproductions.paper.values import load_paper_table

STATUS_FILE = "status.json"
AS_PUBLISHED = "-as-published"
"""Ends the name of a line whose runs do what the published code does where it departs from its paper."""
State = Literal["run", "not run"]


@dataclass(frozen=True, kw_only=True)
class TableStatus:
    """One table or figure.

    Attributes:
        name: of the reproduction, with `AS_PUBLISHED` where it was run so.
        title: what it shows, in our own words.
        source: authors, title and venue of the paper.
        place: number and section in the paper.
        state: whether it was run.
        why: the reason where it was not, or only in part.
        measurements: of every cell, as planned; None where numbers are read off tables or networks. A cell's own ``n``
            is in its row.
        counted: what is measured again and again: ``batches`` (or clients) or ``seeds`` (trainings).
        iterations: of a generator, where it was trained for fewer than in the paper.
        budget: minutes of one core (or GPU) that it was given.
        seconds: wall time of all runs together.
        workers: packs that ran at once.
        command: runs this table again.
        asked: the same with what was selected alone; None in the status of an earlier version.
        date: when it was run last (UTC).
        versions: of Python, torch and this package.
        cores: of the machine.
        device: where it ran.
        chance: share of the judged cells that would agree if ours were exchanged among them.
        notes: what a reader of the values must know.
        rows: rows of ``comparison.json``.
        added: by which other commands cells were filled in, and how many.
    """

    name: str
    title: str
    source: str
    place: str
    state: State
    why: str = ""
    measurements: int | None = json_field(low=1, default=None)
    counted: Literal["batches", "seeds"] = "batches"
    iterations: int | None = None
    budget: float | None = None
    seconds: float = 0.0
    workers: int = 1
    command: str = ""
    asked: str | None = None
    date: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    cores: int | None = None
    device: str = ""
    chance: float | None = None
    notes: tuple[str, ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()
    added: tuple[str, ...] = ()

    @property
    def table(self) -> str:
        """Name of the reproduction."""
        return self.name.removesuffix(AS_PUBLISHED)

    @property
    def is_published(self) -> bool:
        """Whether it was run as published; such a line is not counted."""
        return self.name.endswith(AS_PUBLISHED)

    @cached_property
    def cells(self) -> tuple[ValueRow, ...]:
        """The rows, typed.

        Raises:
            UsageError: a row is no value of a cell.
        """
        found = []
        for index, row in enumerate(self.rows):
            cell = read_row(row, where := f"{self.name}, row {index}")
            if not isinstance(cell, ValueRow):
                raise UsageError(f"{where}: expected a value of a table's cell, got a row of kind {row.get('kind')!r}")
            found.append(cell)
        return tuple(found)

    @property
    def judged(self) -> int:
        """Cells of which it is known whether they agree."""
        return sum(cell.agrees is not None for cell in self.cells)

    @property
    def agreeing(self) -> int:
        """Cells that agree."""
        return sum(cell.agrees is True for cell in self.cells)

    @property
    def differing(self) -> tuple[ValueRow, ...]:
        """Cells that differ from the paper's."""
        return tuple(cell for cell in self.cells if cell.agrees is False)

    @property
    def explanations(self) -> tuple[str, ...]:
        """Why they differ, as far as is known; of the paper's file, so that what is found later is shown as well."""
        return load_paper_table(self.table).differing if self.differing else ()

    @property
    def stand_ins(self) -> str:
        """The data that replace the paper's; empty where they are the paper's."""
        return ", ".join(sorted({cell.measured_on for cell in self.cells if cell.measured_on}))


@dataclass(frozen=True)
class Status:
    """Every table, in the order of the papers."""

    tables: tuple[TableStatus, ...] = ()

    @classmethod
    def load(cls, file: Path) -> "Status":
        """Read a status file; one that is not there has no tables.

        Raises:
            UsageError: it cannot be read.
        """
        if not file.is_file():
            return cls()
        try:
            entries = json.loads(file.read_text(encoding="utf-8"))["tables"]
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{file}: expected the status of reproductions, got something else ({error})") from error
        return cls(tuple(read_record(TableStatus, entry, f"{file}, table {i}") for i, entry in enumerate(entries)))

    def save(self, file: Path) -> None:
        """Write a status file, one table a line, so that versions of it can be compared."""
        lines = ",\n".join(json.dumps(write_record(table)) for table in self.tables)
        write_whole(file, f'{{"schema_version": {SCHEMA_VERSION}, "tables": [\n{lines}\n]}}\n')

    def of(self, name: str) -> TableStatus | None:
        """The table with this name; None where there is none."""
        return next((table for table in self.tables if table.name == name), None)

    def updated(self, table: TableStatus, order: Sequence[str]) -> "Status":
        """Return the status with this table in place of an earlier one of its name."""
        known = {one.name: one for one in self.tables} | {table.name: table}
        return Status(tuple(sorted(known.values(), key=lambda one: (order.index(one.table), one.is_published))))


def verdict(cell: ValueRow) -> str:
    """What is to be said of a cell: it agrees, differs by so much, or is not judged, and why.

    >>> verdict(ValueRow(metric="cell_accuracy", printed=79.3, value=75.0, n=10, agrees=False, value_unit="percent"))
    'differs by -4.3'
    """
    if cell.agrees is True:
        return "agrees"
    if not cell.n or cell.value is None:
        return "not run"
    if cell.agrees is False:
        return f"differs by {difference(cell)}"
    if cell.measured_on:
        return "stand-in"
    if cell.printed is None:
        return "no printed value"
    return "not judged"


def difference(cell: ValueRow) -> str:
    """Ours less the paper's, with a sign; empty where either is missing."""
    if cell.value is None or cell.printed is None:
        return ""
    decimals = 1 if cell.value_unit == "percent" else 4 if cell.value_unit == "fraction" else 2
    return f"{cell.value - cell.printed:+.{decimals}f}"


PAGE_FILE = "status.html"


def write_status_page(status: Status, folder: Path) -> None:
    """Write ``status.html``."""
    write(folder / PAGE_FILE, render(page(status)))


def page(status: Status) -> Page:
    """Make the page of all tables: what was run and agrees, and every cell, folded."""
    papers, summary = by_key(status.tables, attrgetter("source")), fill("status", "summary", **totals(status.tables))
    sections = [Section("summary", "Where the papers' numbers stand", (summary,), "summary")]
    for number, (source, tables) in enumerate(papers.items()):
        cells = [block for table in tables if table.cells for block in folded(_line(table), *_cells(table))]
        sections.append(Section(f"paper-{number}", source, (_tables(tables), *cells)))
    return Page(
        "Every table of the papers", f"{len(status.tables)} tables and figures", sections, genre="reproductions"
    )


def totals(tables: Sequence[TableStatus], left: int = 0) -> dict[str, object]:
    """What a summary tells: numbers of cells, of those judged and of those that agree, and what chance would give.

    Lines of runs as published are not counted. Papers print some values in several tables, which one measurement of
    ours answers: ``distinct`` counts pairs of a printed value and a measurement once. ``sampled`` are cells that agree
    or not by chance as well: facts and values that are always the same are left out.

    Args:
        tables: with a status.
        left: number of those without one; they count as tables that were not run.
    """
    tables = [table for table in tables if not table.is_published]
    run = [table for table in tables if table.state == "run"]
    judged = [cell for table in run for cell in table.cells if cell.agrees is not None]
    sampled = [cell for cell in judged if cell.std]
    distinct = {(cell.metric, cell.printed, cell.printed_error, cell.value, cell.std): cell.agrees for cell in judged}
    by_chance = [(table.judged, table.chance) for table in run if table.chance is not None]
    weight = sum(n for n, _ in by_chance)
    return {
        "run": len(run),
        "tables": len(tables) + left,
        "cells": sum(len(table.cells) for table in run),
        "judged": len(judged),
        "agreeing": sum(table.agreeing for table in run),
        "distinct": len(distinct),
        "distinct_agreeing": sum(map(bool, distinct.values())),
        "sampled": len(sampled),
        "sampled_agreeing": sum(cell.agrees is True for cell in sampled),
        "chance": sum(n * chance for n, chance in by_chance) / weight if weight else None,
        "minutes": sum(table.seconds * table.workers for table in run) / 60,
        "rule": RULE,
        "expected": CONFIDENCE,
    }


def _line(table: TableStatus) -> str:
    return f"{table.name}: {table.title}"


def _tables(tables: Sequence[TableStatus]) -> Table:
    columns: list[Column[TableStatus]] = [
        Column("Table", lambda table: Cell(table.name, (table.place,))),
        Column("What it shows", lambda table: Cell(table.title, (table.why,) if table.why else (), css="words")),
        Column("Agree", agreement),
        Column("By chance", lambda table: percent(table.chance) if table.chance is not None else DASH),
        Column("Measured", measured),
        Column("Minutes", lambda table: f"{table.seconds / 60:.1f}" if table.seconds else DASH),
    ]
    return table_of("Tables and figures", columns, [("", tables)], css="stack")


def agreement(table: TableStatus) -> str:
    """How many of the judged cells agree, or why none is judged."""
    if table.state == "not run":
        return "not run"
    if table.judged:
        return f"{table.agreeing} of {table.judged}"
    return table.stand_ins or "none judged"


def measured(table: TableStatus) -> str:
    """How often cells were measured, as their ``n`` says."""
    if table.state == "not run":
        return DASH
    if table.measurements is None:
        return "read off"
    # Cells may differ in n: some were measured again with more batches, others are over several values of a seed.
    counts = sorted({cell.n for cell in table.cells if cell.n} or {table.measurements})
    unit = _ONE[table.counted] if counts == [1] else table.counted
    said = f"{counts[0]} {unit}" if len(counts) == 1 else f"n {counts[0]} to {counts[-1]}"
    return said + (f", {table.iterations} iterations" if table.iterations else "")


_ONE = {"batches": "batch", "seeds": "seed"}


def _cells(table: TableStatus) -> tuple[Table | str, ...]:
    columns: list[Column[ValueRow]] = [
        Column("Cell", partial(cell_words, table)),
        Column("Paper", lambda cell: number(cell.printed, cell.value_unit)),
        Column("Ours", lambda cell: Cell(number(cell.value, cell.value_unit), tuple(filter(None, (interval(cell),))))),
        Column("n", lambda cell: str(cell.n or 0)),
        Column("Difference", difference),
        Column("Verdict", verdict),
    ]
    made = fill("status", "made", table)
    return table_of(table.title, columns, [("", table.cells)], css="stack"), made


def cell_words(table: TableStatus, cell: ValueRow) -> str:
    """A cell by the coordinates that its table varies."""
    varied = (key for key, value in cell.cell.items() if any(one.cell.get(key) != value for one in table.cells))
    return ", ".join(str(cell.cell[key]) for key in varied if cell.cell[key] is not None)


def number(value: float | None, unit: str | None) -> str:
    """A value with the decimals of its unit."""
    if value is None:
        return DASH
    if unit == "count":
        return f"{value:,.0f}"
    return f"{value:.1f}" if unit == "percent" else f"{value:.4f}" if unit == "fraction" else f"{value:.4g}"


def interval(cell: ValueRow) -> str:
    """Our 95% interval; empty where there is none."""
    if cell.low is None or cell.high is None:
        return ""
    return f"{number(cell.low, cell.value_unit)} to {number(cell.high, cell.value_unit)}"
