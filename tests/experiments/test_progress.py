"""A bar, or lines in a log, with units done and the time left."""

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from rich.console import Console

from lightleak.experiments import progress
from lightleak.experiments.pack import Pack, Report
from lightleak.experiments.progress import Bar, PackBar


@dataclass(frozen=True)
class Toy(Pack):
    """Does nothing."""

    name: str
    kind: str = "quick"  # type: ignore[misc]
    cost: float = 1.0  # type: ignore[misc]
    units: int = 1

    @property
    def ids(self) -> Sequence[str]:
        return [f"{self.name}-{i}" for i in range(self.units)]

    def run(self, folder: Path, device: torch.device, report: Report) -> None:
        raise NotImplementedError


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), force_terminal=False, width=200)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that the bars take it to be."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def lines(console: Console) -> list[str]:
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]


def test_time_left_is_told_by_the_packs_of_each_kind_however_their_costs_compare(
    console: Console, clock: list[float]
) -> None:
    quick, *slow = packs = [Toy("a", cost=1e6), *(Toy(name, "slow", 32.0) for name in "bcd")]
    bar = PackBar("attacks", packs, 0, console)
    bar.reach(quick, 0.0)
    assert bar.left is None
    clock[0] += 10
    bar.finish(quick, 1)
    assert bar.left == pytest.approx(30)  # as many seconds a unit as of the other kind
    bar.reach(slow[0], 0.0)
    clock[0] += 60
    bar.finish(slow[0], 1)
    assert bar.left == pytest.approx(120)
    bar.reach(slow[1], 0.0)
    clock[0] += 20
    assert bar.left == pytest.approx(100)  # it need not report
    clock[0] += 10
    bar.reach(slow[1], 16.0)
    assert bar.left == pytest.approx(90)


def test_packs_that_run_side_by_side_share_the_time_but_for_the_last(console: Console, clock: list[float]) -> None:
    packs = [Toy(str(i), units=2) for i in range(16)]
    bar = PackBar("attacks", packs, 0, console)
    for pack in packs[:8]:
        bar.reach(pack, 0.0)
    clock[0] += 10
    for pack in packs[:8]:
        bar.finish(pack, 2)
    assert bar.left == pytest.approx(10)
    last = PackBar("attacks", packs, 0, console)
    for pack in packs:
        last.reach(pack, 0.0)
    clock[0] += 100
    for pack in packs[1:]:
        last.finish(pack, 2)
    last.reach(packs[0], 0.5)
    assert last.left == pytest.approx(0.5 * (16 * 100) / 15.5)


def test_packs_that_never_began_say_nothing_of_the_time(console: Console, clock: list[float]) -> None:
    packs = [Toy("taken over"), Toy("a", cost=0.0), Toy("b", cost=0.0)]
    bar = PackBar("attacks", packs, 0, console)
    bar.finish(packs[0], 1)
    assert bar.left is None
    bar.reach(packs[1], 0.0)
    clock[0] += 10
    bar.finish(packs[1], 1)
    assert bar.left == pytest.approx(10)


def test_a_pack_starts_again_with_a_new_worker_and_one_that_failed_has_no_units(
    console: Console, clock: list[float]
) -> None:
    packs = [Toy("a", cost=10.0, units=3), Toy("b", cost=10.0, units=3)]
    with PackBar("attacks", packs, 2, console) as bar:
        bar.reach(packs[0], 0.0)
        clock[0] += 1
        bar.reach(packs[0], 5.0)
        assert bar.left == pytest.approx(3)
        bar.reach(packs[0], 0.0)  # its worker died
        assert bar.left is None
        bar.finish(packs[0], 3)
        bar.reach(packs[1], 0.0)
        clock[0] += 1
        bar.finish(packs[1], 0)
        assert bar.left == 0
    assert lines(console)[-1] == "5 of 8 attacks done, 0:02 elapsed"


def test_a_log_gets_lines_with_units_elapsed_and_left(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.05)
    with Bar("epochs", 8, 2, console) as bar:
        bar(2.0)
        time.sleep(0.4)
    first, *between, last = lines(console)
    assert first.startswith("2 of 8 epochs done")
    assert between and all(line.startswith("4 of 8 epochs done, 0:0") for line in between)
    assert all("elapsed, about" in line and line.endswith("left") for line in between)
    assert last.startswith("4 of 8 epochs done, 0:0") and last.endswith("elapsed")


def test_a_terminal_shows_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, force_interactive=True, width=200)
    packs = [Toy("a"), Toy("b")]
    with PackBar("attacks", packs, 0, console) as bar:
        bar.reach(packs[0], 0.0)
        time.sleep(0.02)
        bar.finish(packs[0], 1)
        bar._live.refresh()  # type: ignore[union-attr]
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1 of 2 attacks" in shown and "50%" in shown and "elapsed, about 0:00 left" in shown
