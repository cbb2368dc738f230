"""A kept status takes cells from another run of the same table, and never mixes two runs in a cell."""

import json
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lightleak.core.summary import summarize
from lightleak.reproductions.comparison import Compared, chance_of_agreement
from lightleak.reproductions.paper.values import PaperCell, load_paper_table
from lightleak.reproductions.status import Status, TableStatus, page

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "status.py"))
NAMES = ("filled_in", "judged_again", "merged", "status_markdown")
filled_in, judged_again, merged, status_markdown = (SCRIPT[name] for name in NAMES)

TABLE = load_paper_table("tableak-table1")


def compared(attack: str, *values: float, printed: float = 70.0, dataset: str = "adult") -> Compared:
    cell = PaperCell("cell_accuracy", "percent", printed, 3.0, attack=attack, dataset=dataset)
    return Compared(cell, summarize(values), measurements=50)


def run_of(command: str, *cells: Compared, **facts: Any) -> TableStatus:
    return TableStatus(
        name="tableak-table1",
        title="Cells",
        source="Somebody",
        place="Table 1",
        state="run",
        seconds=60.0,
        command=command,
        date="2026-01-02",
        rows=tuple(json.loads(json.dumps(one.row(TABLE).to_dict())) for one in cells),
        **facts,
    )


SEVERAL = (69.0, 71.0, 70.0, 70.5, 69.5)
KEPT = run_of(
    "lightleak reproduce tableak-table1",
    compared("tableak", *SEVERAL),
    compared("random"),
    compared("audit_max"),
    notes=("german: dataset 'german' needs the file", "A fresh network"),
)


def shown(table: TableStatus) -> list[tuple[Any, ...]]:
    return [(cell.attack, cell.value, cell.n) for cell in table.cells]


def test_only_what_was_measured_less_often_is_filled_in() -> None:
    added = run_of(
        "lightleak reproduce tableak-table1 --attacks audit_max",
        compared("tableak", 1.0, 2.0),
        compared("audit_max", 90.0, 92.0),
        compared("audit_max", 95.0, dataset="german"),
    )
    found = filled_in(KEPT, added)
    assert shown(found) == [("tableak", 70.0, 5), ("random", None, 0), ("audit_max", 91.0, 2), ("audit_max", 95.0, 1)]
    assert (found.command, found.seconds) == (KEPT.command, 120.0)
    assert found.added == ("2 cells by `lightleak reproduce tableak-table1 --attacks audit_max`, 2026-01-02",)
    assert found.notes == ("A fresh network",)  # the table that was missing is there
    assert found.added[0] in status_markdown(Status((found,))) and "--attacks audit_max" in str(page(Status((found,))))
    assert filled_in(found, added) == found


def test_the_same_command_replaces_its_own_cells_and_no_others() -> None:
    again = run_of(KEPT.command, compared("tableak", *(2.0 for _ in SEVERAL)), compared("random"))
    both = replace(KEPT, rows=(KEPT.rows[0], run_of("", compared("audit_max", 90.0)).rows[0]))
    assert shown(filled_in(both, again))[:2] == [("tableak", 2.0, 5), ("audit_max", 90.0, 1)]


def test_cells_measured_on_another_stand_in_are_not_mixed() -> None:
    def on(name: str, attack: str, *values: float) -> Compared:
        return replace(compared(attack, *values), same_data=False, stand_in=name)

    kept = run_of("one", on("small", "tableak", *SEVERAL), on("small", "random", *SEVERAL))
    fewer = run_of("two", on("framed", "tableak", 30.0))
    assert filled_in(kept, fewer) == fewer
    others = run_of("two", on("small", "audit_max", 90.0))
    assert shown(filled_in(kept, others))[2:] == [("audit_max", 90.0, 1)]


def test_a_table_measured_more_often_throughout_is_taken_whole() -> None:
    more = run_of("another", compared("tableak", *SEVERAL, 70.0), compared("random", *SEVERAL))
    assert filled_in(KEPT, more) == more


@pytest.mark.parametrize("kept", [KEPT, replace(KEPT, state="not run", why="too long", rows=())])
def test_a_run_that_did_not_happen_replaces_no_other(kept: TableStatus) -> None:
    failed = replace(KEPT, state="not run", why="no such file", rows=())
    found = merged(Status((kept,)), Status((failed,)))
    assert found.tables == ((kept,) if kept.state == "run" else (failed,))


def test_what_chance_would_give_is_counted_again() -> None:
    cells = [compared("tableak", *SEVERAL), compared("random", 50.0, 51.0, 49.0, 50.0, 52.0, printed=50.0)]
    cells += [compared("audit_max", 90.0, 92.0)]
    found = filled_in(run_of("one", *cells[:1], compared("random")), run_of("two", *cells[1:]))
    assert found.chance == chance_of_agreement(cells) == 0.0
    alike = [cells[0], compared("random", *SEVERAL)]
    assert filled_in(run_of("one", alike[0]), run_of("two", alike[1])).chance == chance_of_agreement(alike) == 1.0


def test_another_length_of_training_is_not_mixed_in() -> None:
    shorter = run_of("two", compared("audit_max", 90.0), iterations=27)
    assert filled_in(KEPT, shorter) == shorter


def test_a_line_as_published_stands_beside_the_honest_one_and_is_not_counted() -> None:
    published = replace(KEPT, name="tableak-table1-as-published")
    found = merged(Status((KEPT,)), Status((published,)))
    assert found.tables == (KEPT, published)
    assert "1 of 1 table or figure" in status_markdown(found)
    assert published.explanations == KEPT.explanations


def test_kept_cells_are_judged_by_todays_rule() -> None:
    equal = run_of("lightleak reproduce tableak-table1", compared("tableak", *[71.0] * 5), compared("random", 1.0))
    by_yesterdays = replace(equal, rows=({**equal.rows[0], "agrees": False}, equal.rows[1]))
    assert [cell.agrees for cell in judged_again(by_yesterdays).cells] == [True, None]
