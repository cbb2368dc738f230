"""Writes the tables of the papers into RESULTS.md and docs/reproduction-status.md, from benchmarks/status.json.

make status                       # both pages, from the status file that is kept here
python benchmarks/status.py DIR   # first take over the tables of DIR/status.json (`lightleak reproduce --all`), and of
                                  # tables that are here the cells that were measured more often there
"""

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from lightleak.core.grouping import by_key
from lightleak.core.results import ValueRow
from lightleak.core.summary import Summary
from lightleak.report.format import DASH, counted, percent
from lightleak.report.page import fill
from lightleak.reproductions.comparison import FEWEST, Compared, chance_of_agreement
from lightleak.reproductions.paper.values import (
    PaperCell,
    PaperTable,
    load_paper_table,
    measurements,
    paper_tables,
)
from lightleak.reproductions.reproduce import reproduction_class
from lightleak.reproductions.reproduction import SET_BY_THE_PAPER
from lightleak.reproductions.status import (
    STATUS_FILE,
    Status,
    TableStatus,
    agreement,
    cell_words,
    interval,
    measured,
    number,
    totals,
)

HERE = Path(__file__).parent
KEPT = HERE / STATUS_FILE
RESULTS, PAGE = HERE / "RESULTS.md", HERE.parent / "docs" / "reproduction-status.md"
BEGIN, END = "<!-- made by make status from benchmarks/status.json -->", "<!-- end of what make status makes -->"
HEAD = """# Where the papers' numbers stand

Every table and figure of the four papers that was run here: how many of its cells agree with ours
under one rule that was stated before they were run; its last clause was added on 2026-11-27, as five
values that are all 100% had been taken for exact. Since the same day cells of Lawschool and Census-Income
are not judged, as only a part of their rows is at hand (117 of 158 and 6 of 10 had agreed in TabLeak's and
ProVFL's tables, 6 of 10 of Lawschool in ProVFL's). `lightleak reproduce --all` makes this list
([how](reproduce.md#every-table)); every cell with both values, n, interval, difference and verdict is in
`benchmarks/status.json`.

"""


def pages(status: Status) -> dict[Path, str]:
    """Return the text of every page that shows a status."""
    run = {table.name for table in status.tables if not table.is_published}
    left = [load_paper_table(name) for name in paper_tables() if name not in run]
    text, results = status_markdown(status, left), RESULTS.read_text(encoding="utf-8")
    before, _, rest = results.partition(BEGIN)
    _, _, after = rest.partition(END)
    return {RESULTS: f"{before}{BEGIN}\n\n{text}\n{END}{after}", PAGE: HEAD + text.rstrip() + "\n"}


def status_markdown(status: Status, left: Sequence[PaperTable] = ()) -> str:
    """Return the tables of RESULTS and of the documentation: a line for each table, and every cell that differs.

    Args:
        status: of the tables that were run.
        left: those that were not; they are named, and count.
    """
    lines = [str(fill("status", "summary_text", **totals(status.tables, len(left)))), ""]
    for source, tables in by_key(status.tables, attrgetter("source")).items():
        lines += [
            f"### {source}",
            "",
            "| table | place | what it shows | agree | by chance | measured | min | made by |",
        ]
        lines += ["|" + " --- |" * 8]
        for table in tables:
            chance = percent(table.chance) if table.chance is not None else DASH
            run_by = f"`{table.command}`, {table.date[:10]}" if table.state == "run" else ""
            made = "; ".join(filter(None, (run_by, table.why, *table.added)))
            cells = (table.name, table.place, table.title, agreement(table), chance, measured(table),
                     f"{table.seconds / 60:.1f}", made)  # fmt: skip
            lines.append("| " + " | ".join(cells) + " |")
        lines += ["", *_differing(tables), *_against_strongest(tables)]
    if left:
        lines += ["### Not run under this rule yet", ""]
        papers = by_key(left, attrgetter("source")).items()
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


STRONGEST_HEAD = (
    "The same cells by this project's strongest attack; one value is repeated where it lacks the option that a table",
    "varies. It is compared with the best mean of the paper's attack as run here, or as printed where that was not",
    "run; intervals are not considered.",
    "",
    "| table | where | cells | printed | the paper's attack here | strongest attack | n of both | it is |",
    "|" + " --- |" * 8,
)


def _against_strongest(tables: Sequence[TableStatus]) -> list[str]:
    """A line for every dataset and network whose cells were also measured with this project's strongest attack."""
    lines = []
    for table in tables:
        strongest = reproduction_class(str(load_paper_table(table.table).run)).strongest
        ran = [row for row in table.cells if row.attack in strongest.values() and row.n]
        compared = [(row, [one for one in table.cells if _is_same_cell(one, row, strongest)]) for row in ran]
        for where, members in by_key((pair for pair in compared if pair[1]), lambda pair: _where(pair[0])).items():
            ours, theirs = [row for row, _ in members], [row for _, rows in members for row in rows]
            cells = (table.name, where, str(len(members)), _range(theirs, "printed"), _range(theirs, "value"),
                     f"`{ours[0].attack}` {_range(ours, 'value')}", f"{_range(theirs, 'n')}; {_range(ours, 'n')}",
                     _outcome(members))  # fmt: skip
            lines.append("| " + " | ".join(cells) + " |")
    return [*STRONGEST_HEAD, *lines, ""] if lines else []


def _is_same_cell(one: ValueRow, other: ValueRow, strongest: Mapping[str, str]) -> bool:
    """Whether a cell of the paper's attack is the second row's, which may vary fewer coordinates, on the same data."""
    if strongest.get(str(one.attack)) != other.attack or _reference(one) is None:
        return False
    is_on_same_data = one.measured_on == other.measured_on if one.n else not other.measured_on
    return is_on_same_data and _coordinates(other).items() <= _coordinates(one).items()


def _coordinates(row: ValueRow) -> dict[str, Any]:
    own = ("attack", *SET_BY_THE_PAPER)
    return {key: value for key, value in row.cell.items() if key not in own and value is not None}


def _where(row: ValueRow) -> str:
    network = row.cell.get("network")
    return ", ".join(str(part) for part in (row.measured_on or row.dataset, network, row.metric) if part)


def _reference(row: ValueRow) -> float | None:
    """What the paper's attack reaches here, or in the paper where it was not run here."""
    return row.value if row.n else row.printed


def _outcome(members: Sequence[tuple[ValueRow, Sequence[ValueRow]]]) -> str:
    """In how many cells the strongest attack is better than the best of the paper's, and in how many not."""
    counts = dict.fromkeys(("better", "equal", "worse"), 0)
    for row, others in members:
        sign = -1.0 if row.metric in ("absolute_error", "rmse") else 1.0
        best = max(sign * value for one in others if (value := _reference(one)) is not None)
        gain = sign * (row.value or 0.0) - best
        counts["equal" if math.isclose(gain, 0.0, abs_tol=1e-9) else "better" if gain > 0 else "worse"] += 1
    return ", ".join(f"{word} in {n}" for word, n in counts.items() if n)


def _range(rows: Sequence[ValueRow], field: str) -> str:
    found = [value for row in rows if row.n or field == "printed" if (value := getattr(row, field)) is not None]
    if not found:
        return DASH
    unit = "count" if field == "n" else rows[0].value_unit
    return " to ".join(dict.fromkeys(number(end, unit) for end in (min(found), max(found))))


def merged(kept: Status, added: Status) -> Status:
    """Return a status with the tables of another: those it lacks, and cells of the others (`filled_in`)."""
    for table in added.tables:
        before = kept.of(table.name)
        kept = kept.updated(table if before is None else filled_in(before, table), paper_tables())
    return kept


def filled_in(kept: TableStatus, added: TableStatus) -> TableStatus:
    """Return a table with the cells that another run has measured more often; each cell is of one run.

    A run of the same command replaces cells that it has measured equally often, too. Runs of generators trained for
    another number of iterations, and cells measured on other data, are not mixed: the added run replaces the kept one.
    """
    if added.state == "not run":
        return kept if kept.state == "run" else added
    rows, again = {_cell(row): row for row in kept.rows}, kept.command == added.command
    if kept.state == "not run" or kept.iterations != added.iterations or _are_of_other_data(rows, added.rows):
        return added
    better = {_cell(row): row for row in added.rows if _is_better(row, rows.get(_cell(row)), again)}
    if not better:
        return kept
    if not any(_n(row) for key, row in rows.items() if key not in better):
        return added
    rows |= better
    found = {str(row.get("dataset")) for row in better.values() if _n(row)}
    notes = [note for note in kept.notes if note.partition(": ")[0] not in found]  # that their table is missing
    filled_cells = sum(_n(row) > 0 for row in better.values())
    where = "" if kept.device == added.device else f", on {added.device}"
    said = f"{counted(filled_cells, 'cell')} by `{added.command}`, {added.date[:10]}{where}"
    filled = replace(
        kept,
        rows=tuple(rows.values()),
        seconds=kept.seconds + added.seconds * added.workers / kept.workers,
        notes=tuple(dict.fromkeys((*notes, *added.notes))),
        added=kept.added if again else (*kept.added, said),
    )
    return _with_chance(filled)


def judged_again(table: TableStatus) -> TableStatus:
    """Return a table whose cells are judged by today's rule, with what chance would give under it."""
    paper, rows = load_paper_table(table.table).paper, []
    for row, cell in zip(table.rows, table.cells, strict=True):
        rows.append(row if cell.agrees is None else {**row, "agrees": compared_again(cell, paper).agrees})
    return _with_chance(replace(table, rows=tuple(rows)))


def _cell(row: Mapping[str, Any]) -> str:
    return json.dumps(row.get("cell"), sort_keys=True)


def _are_of_other_data(kept: Mapping[str, Mapping[str, Any]], added: Iterable[Mapping[str, Any]]) -> bool:
    """Whether some cell of both was measured on other data, such as another stand-in."""
    pairs = ((kept[_cell(row)], row) for row in added if _cell(row) in kept)
    return any(_n(one) and _n(row) and one.get("measured_on") != row.get("measured_on") for one, row in pairs)


def _n(row: Mapping[str, Any]) -> int:
    return int(row.get("n") or 0)


def _is_better(row: Mapping[str, Any], before: Mapping[str, Any] | None, again: bool) -> bool:
    if before is None:
        return True
    return _n(row) > _n(before) or (again and _n(row) == _n(before))


def _with_chance(table: TableStatus) -> TableStatus:
    paper = load_paper_table(table.table).paper
    return replace(table, chance=chance_of_agreement([compared_again(cell, paper) for cell in table.cells]))


def compared_again(row: ValueRow, paper: str) -> Compared:
    """Return the comparison behind a row of a table of this paper, as far as agreement depends on it."""
    of_paper, n = measurements(paper, row.metric), row.n or 0
    spread = None if row.printed_error is None else row.printed_error * math.sqrt(of_paper)
    cell = PaperCell(row.metric, row.value_unit or "", _or_nan(row.printed), spread)
    ours = Summary(_or_nan(row.value), _or_nan(row.std), n, _or_nan(row.low), _or_nan(row.high))
    is_judged = row.agrees is not None
    return Compared(cell, ours, is_judged, row.measured_on, is_judged and n < FEWEST, measurements=of_paper)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


if __name__ == "__main__":
    status = Status.load(KEPT)
    for folder in sys.argv[1:]:
        status = merged(status, Status.load(Path(folder) / STATUS_FILE))
    status = Status(tuple(judged_again(table) for table in status.tables))
    status.save(KEPT)
    for file, text in pages(status).items():
        file.write_text(text, encoding="utf-8")
