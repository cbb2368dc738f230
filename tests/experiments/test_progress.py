"""A bar that counts what this process, its workers and others do, each pack once."""

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from lightleak.experiments import progress
from lightleak.experiments.progress import CampaignProgress


@pytest.fixture
def told() -> list[float]:
    return []


@pytest.fixture
def campaign(tmp_path: Path, told: list[float]) -> CampaignProgress:
    """Three packs of cost 10, 20 and 30, of two units each."""
    files = {i: [f"p{i}-0.json", f"p{i}-1.json"] for i in range(3)}
    return CampaignProgress({0: 10.0, 1: 20.0, 2: 30.0}, files, tmp_path, told.append)


def test_what_others_finished_is_counted_once_and_all_adds_up(
    tmp_path: Path, told: list[float], campaign: CampaignProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign.advance(0, 4.0)
    for name in ("p1-0.json", "p1-1.json", "p2-0.json", "p2-1.json.0123.part"):
        (tmp_path / name).touch()
    campaign.look()
    assert sum(told) == 4.0  # it has looked a moment ago
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.0)
    campaign.look()
    campaign.look()
    assert sum(told) == 24.0
    campaign.advance(0, 5.0)
    assert sum(told) == 29.0
    campaign.finish()
    assert sum(told) == 60.0


def test_work_of_the_dead_is_done_again(told: list[float], campaign: CampaignProgress) -> None:
    campaign.advance(2, 25.0)
    campaign.lose(2)
    assert sum(told) == 0.0
    campaign.advance(2, 40.0)  # more than it was to be
    assert sum(told) == 30.0


def test_a_pack_that_was_finished_is_not_lost_with_its_worker(
    tmp_path: Path, told: list[float], campaign: CampaignProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.0)
    campaign.advance(0, 10.0)
    for name in ("p0-0.json", "p0-1.json"):
        (tmp_path / name).touch()
    campaign.look()
    campaign.lose(0)
    assert sum(told) == 10.0


def test_a_log_gets_lines_with_units_elapsed_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.05)
    console = Console(file=io.StringIO(), force_terminal=False, width=200)
    with progress.Bar("attacks", 40.0, 8, 2, console) as bar:
        bar(10.0)
        bar.finished(4)
        time.sleep(0.4)
    first, *between, last = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert first.startswith("2 of 8 attacks done")
    assert between and all(line.startswith("4 of 8 attacks done, 25% of the work, 0:0") for line in between)
    assert all("elapsed, about" in line and line.endswith("left") for line in between)
    assert last.startswith("4 of 8 attacks done, 0:0") and last.endswith("elapsed")
