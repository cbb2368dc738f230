"""Cells of a status filled in from another run of the same tables, such as one of our strongest attack alone."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lightleak.core.results import ValueRow, read_row
from lightleak.report.format import counted
from lightleak.reproductions.comparison import chance_of_agreement, compared_again
from lightleak.reproductions.paper.values import load_paper_table, paper_tables
from lightleak.reproductions.status import Status, TableStatus


def merged(kept: Status, added: Status) -> Status:
    """Return a status with the tables of another: those it lacks, and cells of the others (`filled_in`)."""
    for table in added.tables:
        before = kept.of(table.name)
        kept = kept.updated(table if before is None else filled_in(before, table), paper_tables())
    return kept


def filled_in(kept: TableStatus, added: TableStatus) -> TableStatus:
    """Return a table with the cells that another run has measured more often; each cell is of one run.

    A run of the same command replaces cells that it has measured equally often, too. Runs of generators trained for
    another number of iterations are not mixed: the added one replaces the kept one.
    """
    if added.state == "not run":
        return kept if kept.state == "run" else added
    if kept.state == "not run" or kept.iterations != added.iterations:
        return added
    rows, again = {_cell(row): row for row in kept.rows}, kept.command == added.command
    better = {_cell(row): row for row in added.rows if _is_better(row, rows.get(_cell(row)), again)}
    if not better:
        return kept
    if not any(_n(row) for key, row in rows.items() if key not in better):
        return added
    rows |= better
    found = {str(row.get("dataset")) for row in better.values() if _n(row)}
    notes = [note for note in kept.notes if note.partition(": ")[0] not in found]  # that their table is missing
    number = sum(_n(row) > 0 for row in better.values())
    where = "" if kept.device == added.device else f", on {added.device}"
    said = f"{counted(number, 'cell')} by `{added.command}`, {added.date[:10]}{where}"
    return replace(
        kept,
        rows=tuple(rows.values()),
        chance=_chance(kept, rows.values()),
        seconds=kept.seconds + added.seconds * added.workers / kept.workers,
        notes=tuple(dict.fromkeys((*notes, *added.notes))),
        added=kept.added if again else (*kept.added, said),
    )


def judged_again(table: TableStatus) -> TableStatus:
    """Return a table whose cells are judged by today's rule, with what chance would give under it."""
    paper, rows = load_paper_table(table.table).paper, []
    for index, row in enumerate(table.rows):
        typed = read_row(row, f"{table.name}, row {index}")
        if isinstance(typed, ValueRow) and typed.agrees is not None:
            row = {**row, "agrees": compared_again(typed, paper).agrees}
        rows.append(row)
    return replace(table, rows=tuple(rows), chance=_chance(table, rows))


def _cell(row: Mapping[str, Any]) -> str:
    return json.dumps(row.get("cell"), sort_keys=True)


def _n(row: Mapping[str, Any]) -> int:
    return int(row.get("n") or 0)


def _is_better(row: Mapping[str, Any], before: Mapping[str, Any] | None, again: bool) -> bool:
    if before is None:
        return True
    return _n(row) > _n(before) or (again and _n(row) == _n(before))


def _chance(table: TableStatus, rows: Any) -> float | None:
    paper = load_paper_table(table.table).paper
    typed = (read_row(row, table.name) for row in rows)
    return chance_of_agreement([compared_again(row, paper) for row in typed if isinstance(row, ValueRow)])
