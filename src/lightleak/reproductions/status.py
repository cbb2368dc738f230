"""Where every table of the papers stands: ``status.json``, written after each table by `run_every_table`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from lightleak.core.errors import UsageError
from lightleak.core.records import json_field, read_record, write_record
from lightleak.core.results import SCHEMA_VERSION, ValueRow, read_row
from lightleak.core.stored import write_whole
from lightleak.reproductions.paper.values import load_paper_table

STATUS_FILE = "status.json"
State = Literal["run", "not run"]


@dataclass(frozen=True, kw_only=True)
class TableStatus:
    """One table or figure.

    Attributes:
        name: of the reproduction.
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
        date: when it was run last (UTC).
        versions: of Python, torch and this package.
        cores: of the machine.
        device: where it ran.
        chance: share of the judged cells that would agree if ours were exchanged among them.
        notes: what a reader of the values must know.
        rows: rows of ``comparison.json``.
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
    date: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    cores: int | None = None
    device: str = ""
    chance: float | None = None
    notes: tuple[str, ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()

    @cached_property
    def cells(self) -> tuple[ValueRow, ...]:
        """The rows, typed."""
        read = (read_row(row, f"{self.name}, row {index}") for index, row in enumerate(self.rows))
        return tuple(row for row in read if isinstance(row, ValueRow))

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
        return load_paper_table(self.name).differing if self.differing else ()

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
        return Status(tuple(known[name] for name in sorted(known, key=order.index)))


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
