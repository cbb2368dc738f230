"""Pages that show where the papers' numbers stand are those of the kept status."""

import importlib.util
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lightleak.core.results import ValueRow
from lightleak.reproductions.paper.values import load_paper_table, paper_tables
from lightleak.reproductions.status import Status, TableStatus, measured

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "status.py"


def script() -> Any:
    spec = importlib.util.spec_from_file_location("benchmark_status", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


status = script()


@pytest.mark.parametrize("page", [status.RESULTS, status.PAGE], ids=lambda page: page.name)
def test_pages_are_made_from_the_kept_status(page: Path) -> None:
    assert status.pages(Status.load(status.KEPT))[page] == page.read_text(encoding="utf-8"), "run make status"


def test_tables_are_those_of_the_papers_and_every_row_can_be_read() -> None:
    kept = Status.load(status.KEPT)
    assert {table.table for table in kept.tables} <= set(paper_tables())
    for table in kept.tables:
        assert len(table.cells) == len(table.rows)
        assert table.state == "run" or table.why


def table_of(name: str, rows: Iterable[ValueRow], **facts: Any) -> TableStatus:
    written = tuple(json.loads(json.dumps(row.to_dict())) for row in rows)
    shown = {"title": "Cells", "source": "Somebody, 2023", "place": "Table 1, p. 2", "state": "run"}
    return TableStatus(name=name, rows=written, **shown | facts)


def test_the_text_of_results() -> None:
    def row(**facts: Any) -> ValueRow:
        return ValueRow(metric="cell_accuracy", value_unit="percent", printed=79.3, **facts)

    rows = [
        row(value=79.0, n=9, agrees=True),
        row(value=75.0, n=9, agrees=False),
        row(value=75.0, n=1),
        row(value=75.0, n=9, measured_on="digits"),
        row(n=0),
    ]
    made = table_of(
        "tableak-table1",
        rows,
        measurements=9,
        chance=0.25,
        seconds=120.0,
        workers=2,
        command="lightleak reproduce x",
        date="2026-01-02T03:04:05+00:00",
    )
    text = status.status_markdown(Status((made, replace(made, name="tableak-table2", state="not run", why="too long"))))
    assert (
        "1 of 2 tables and figures were run, in 4 minutes of one core or GPU. Of their 5 cells, 2 can be judged" in text
    )
    assert "| tableak-table1 | Table 1, p. 2 | Cells | 1 of 2 | 25.0% | n 1 to 9 | 2.0 |" in text
    assert "| not run | " in text and "too long" in text
    left = status.status_markdown(
        Status((made,)), [load_paper_table("provfl-table2"), load_paper_table("provfl-table3")]
    )
    assert "1 of 3 tables and figures were run" in left
    assert left.endswith("* Bai et al., ProVFL (IEEE TIFS 2025): provfl-table2, provfl-table3.")


@pytest.mark.parametrize(("counts", "said"), [((9, 9), "9 batches"), ((1, 1), "1 batch"), ((2, 0, 5), "n 2 to 5")])
def test_how_often_cells_were_measured_is_what_their_n_says(counts: Sequence[int], said: str) -> None:
    rows = [ValueRow(metric="cell_accuracy", value_unit="percent", printed=79.3, value=75.0, n=n) for n in counts]
    assert measured(table_of("tableak-table1", rows, measurements=9)) == said


def test_cells_that_differ_are_listed_furthest_first_with_what_is_known_of_them() -> None:
    rows = [
        ValueRow(metric="m", cell={"n": size}, printed=50.0, value=50.0 + size, n=9, agrees=False, value_unit="percent")
        for size in range(1, 11)
    ]
    text = status.status_markdown(Status((table_of("tableak-table8", rows),)))
    (line,) = (one for one in text.splitlines() if one.startswith("* "))
    assert line.index("10: 60.0, paper 50.0") < line.index("3: 53.0, paper 50.0") and "2: 52.0" not in line
    assert "and 2 more" in line and "our copy of the file ends after 65,534" in line


def test_cells_of_the_strongest_attack_are_compared_with_those_of_the_papers() -> None:
    def row(attack: str, size: int, metric: str = "cell_accuracy", **facts: Any) -> ValueRow:
        cell = {"metric": metric, "attack": attack, "batch_size": size, "network": "mlp-100-100"}
        cell |= {"restarts": 30, "option": "pooling"} if attack == "tableak" else {}
        shown = {"metric": metric, "value_unit": "percent", "dataset": "adult", "attack": attack, "cell": cell}
        return ValueRow(**shown | facts)

    rows = [
        row("tableak", 8, printed=95.1, value=94.0, n=50),
        row("audit_max", 8, value=100.0, n=5),
        row("tableak", 16, printed=89.4, n=0),
        row("audit_max", 16, value=80.0, n=9),
        row("tableak", 32, printed=77.6, value=78.0, n=50),
        row("audit_max", 32, n=0),
        row("tableak", 64, printed=100.0, value=100.0, n=50),
        row("audit_max", 64, value=100.0, n=5),
        row("tableak", 128, printed=70.0, value=60.0, n=5, measured_on="a part"),
        row("audit_max", 128, value=90.0, n=5),
        row("tableak", 8, "rmse", printed=0.3, value=0.2, n=5),
        row("audit_max", 8, "rmse", value=0.1, n=5),
        row("random", 8, printed=53.3, value=53.0, n=50),
    ]
    text = status.status_markdown(Status((table_of("tableak-table1", rows),)))
    start = "| tableak-table1 | adult, mlp-100-100, cell_accuracy | 3 | 89.4 to 100.0 | 94.0 to 100.0 | "
    assert f"{start}`audit_max` 80.0 to 100.0 | 50; 5 to 9 | better in 1, equal in 1, worse in 1 |" in text
    assert "rmse | 1 | 0.3 | 0.2 | `audit_max` 0.1 | 5; 5 | better in 1 |" in text
