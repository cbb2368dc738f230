"""The status of all reproductions for readers: ``status.html``, and the tables of RESULTS and of the documentation."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from lightleak.core.results import ValueRow
from lightleak.core.summary import CONFIDENCE
from lightleak.report.blocks import Cell, Column, Page, Section, Table
from lightleak.report.compare import by_key
from lightleak.report.format import DASH, percent
from lightleak.report.page import fill, folded, render, table_of, write
from lightleak.reproductions.comparison import RULE
from lightleak.reproductions.paper.values import PaperTable
from lightleak.reproductions.status import Status, TableStatus, difference, verdict

PAGE_FILE = "status.html"


def write_status_page(status: Status, folder: Path) -> None:
    """Write ``status.html``."""
    write(folder / PAGE_FILE, render(page(status)))


def page(status: Status) -> Page:
    """Make the page of all tables: what was run and agrees, and every cell, folded."""
    papers = by_key(status.tables, _source)
    run = [table for table in status.tables if table.state == "run"]
    facts = {"run": len(run), "tables": len(status.tables), **totals(run), "rule": RULE, "expected": CONFIDENCE}
    sections = [Section("summary", "Where the papers' numbers stand", (fill("status", "summary", **facts),), "summary")]
    for number, (source, tables) in enumerate(papers.items()):
        cells = [block for table in tables if table.cells for block in folded(_line(table), *_cells(table))]
        sections.append(Section(f"paper-{number}", source, (_tables(tables), *cells)))
    return Page(
        "Every table of the papers", f"{len(status.tables)} tables and figures", sections, genre="reproductions"
    )


def totals(run: Sequence[TableStatus]) -> dict[str, object]:
    """Counts over tables: cells, those judged, those that agree, and what chance would give."""
    judged = sum(table.judged for table in run)
    by_chance = [(table.judged, table.chance) for table in run if table.chance is not None]
    weight = sum(n for n, _ in by_chance)
    return {
        "cells": sum(len(table.cells) for table in run),
        "judged": judged,
        "agreeing": sum(table.agreeing for table in run),
        "chance": sum(n * chance for n, chance in by_chance) / weight if weight else None,
        "minutes": sum(table.seconds * table.workers for table in run) / 60,
    }


def _source(table: TableStatus | PaperTable) -> str:
    return table.source


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
    return f"stand-in: {table.stand_ins}" if table.stand_ins else "none judged"


def measured(table: TableStatus) -> str:
    """How often every cell was measured."""
    if table.state == "not run":
        return DASH
    if table.measurements is None:
        return "read off"
    said = f"{table.measurements} {table.counted if table.measurements != 1 else _ONE[table.counted]}"
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


def status_markdown(status: Status, left: Sequence[PaperTable] = ()) -> str:
    """Return the tables of RESULTS and of the documentation: a line for each table, and every cell that differs.

    Args:
        status: of the tables that were run.
        left: those that were not; they are named, and count.
    """
    run = [table for table in status.tables if table.state == "run"]
    lines = [
        str(
            fill(
                "status",
                "summary_text",
                run=len(run),
                tables=len(status.tables) + len(left),
                **totals(run),
                rule=RULE,
                expected=CONFIDENCE,
            )
        ),
        "",
    ]
    for source, tables in by_key(status.tables, _source).items():
        lines += [
            f"### {source}",
            "",
            "| table | place | what it shows | agree | by chance | measured | min | made by |",
        ]
        lines += ["|" + " --- |" * 8]
        for table in tables:
            chance = percent(table.chance) if table.chance is not None else DASH
            run_by = f"`{table.command}`, {table.date[:10]}" if table.state == "run" else ""
            made = "; ".join(filter(None, (run_by, table.why)))
            cells = (table.name, table.place, table.title, agreement(table), chance, measured(table),
                     f"{table.seconds / 60:.1f}", made)  # fmt: skip
            lines.append("| " + " | ".join(cells) + " |")
        lines += ["", *_differing(tables)]
    if left:
        lines += ["### Not run under this rule yet", ""]
        papers = by_key(left, _source).items()
        lines += [f"* {source}: {', '.join(one.name for one in tables)}." for source, tables in papers]
    return "\n".join(lines)


MOST_DIFFERING = 8
"""Cells of a table that are listed one by one where they differ, those furthest from the paper."""


def _differing(tables: Sequence[TableStatus]) -> list[str]:
    lines = []
    for table in (one for one in tables if one.differing):
        furthest = sorted(table.differing, key=lambda cell: -abs((cell.value or 0.0) - (cell.printed or 0.0)))
        said = [
            f"{cell_words(table, cell)}: {number(cell.value, cell.value_unit)}"
            f"{f' [{interval(cell)}]' if interval(cell) else ''}, paper {number(cell.printed, cell.value_unit)}"
            for cell in furthest[:MOST_DIFFERING]
        ]
        more = len(furthest) - len(said)
        why = " ".join(table.explanations) or "Unexplained so far."
        lines.append(f"* `{table.name}` differs in {'; '.join(said)}{f'; and {more} more' if more > 0 else ''}. {why}")
    return [*lines, ""] if lines else []
