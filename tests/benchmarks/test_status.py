"""Pages that show where the papers' numbers stand are those of the kept status."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from lightleak.reproductions.paper.values import paper_tables
from lightleak.reproductions.status import Status

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
    assert {table.name for table in kept.tables} <= set(paper_tables())
    for table in kept.tables:
        assert len(table.cells) == len(table.rows)
        assert table.state == "run" or table.why
