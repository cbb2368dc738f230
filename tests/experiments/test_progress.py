"""A bar, or lines in a log, that count each pack once."""

import io
import time

import pytest
from rich.console import Console

from lightleak.experiments import progress


def test_a_part_is_counted_once_and_starts_again_with_a_new_worker() -> None:
    console = Console(file=io.StringIO(), force_terminal=False, width=200)
    with progress.Bar("attacks", 40.0, 8, 2, console) as bar:
        bar.reach("a", 4.0)
        bar.reach("a", 9.0)
        bar.reach("b", 5.0)
        assert bar.work == 14.0
        bar.reach("a", 0.0)  # its worker died
        bar.reach("a", 10.0, units=3)
        assert bar.work == 15.0
    assert "5 of 8 attacks done, 0:0" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_log_gets_lines_with_units_elapsed_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.05)
    console = Console(file=io.StringIO(), force_terminal=False, width=200)
    with progress.Bar("attacks", 40.0, 8, 2, console) as bar:
        bar.reach("a", 10.0, units=2)
        time.sleep(0.4)
    first, *between, last = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert first.startswith("2 of 8 attacks done")
    assert between and all(line.startswith("4 of 8 attacks done, 25% of the work, 0:0") for line in between)
    assert all("elapsed, about" in line and line.endswith("left") for line in between)
    assert last.startswith("4 of 8 attacks done, 0:0") and last.endswith("elapsed")
