"""Audits shared by real processes: equal to the bit whatever their number, and finished although some are killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LAUNCHERS = ("PYTEST_", "SLURM_", "LOCAL_RANK", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_", "NODE_RANK")
UNITS = 2 * 4 * 2


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, tiny: Callable[..., Any]) -> Path:
    """The script has run: sixteen units in eight packs, by one process after the other number of processes."""
    folder = tmp_path_factory.mktemp("ranks")
    config = tiny(
        training__epochs=0,
        initial__batch_sizes=[2, 3, 5, 6],
        initial__batches=2,
        attacks={"tableak": {"steps": 30, "restarts": 2}, "random": {}},
    )
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    environment = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHERS)}
    environment |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    script = Path(__file__).with_name("run_on_ranks.py")
    done = subprocess.run(
        [sys.executable, str(script), str(folder)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def results_of(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place / "run" / "results.json").read_text())
    return found


def rows_of(place: Path) -> list[dict[str, Any]]:
    """Of fresh clients, which no training changes."""
    rows = [row for row in results_of(place)["rows"] if row["source"] == "initial"]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def test_every_process_that_was_not_killed_ends_well(root: Path) -> None:
    assert json.loads((root / "codes.json").read_text()) == {
        "one": [0],
        "two": [0, 0],
        "three": [0, 0, 0],
        "killed": [-signal.SIGKILL, 0, 1],
        "workers": [0],
        "users": [-signal.SIGKILL, 0],
    }


@pytest.mark.parametrize("name", ["two", "three", "killed", "workers", "users"])
def test_results_do_not_depend_on_who_ran_them(root: Path, name: str) -> None:
    rows = rows_of(root / "one")
    assert len(rows) == UNITS and all(row["cell_accuracy"] is not None for row in rows)
    assert rows_of(root / name) == rows
    for row in rows:
        made, expected = (root / where / "run" / row["reconstruction"] for where in (name, "one"))
        assert made.read_bytes() == expected.read_bytes()


@pytest.mark.parametrize("name", ["one", "two", "three", "killed", "workers", "users"])
def test_all_that_live_return_what_one_of_them_wrote(root: Path, name: str) -> None:
    place = root / name
    results, returned = results_of(place), list(place.glob("returned-*"))
    codes = json.loads((root / "codes.json").read_text())[name]
    assert len(returned) == codes.count(0)
    assert all(json.loads(file.read_text()) == results for file in returned)
    if name != "killed":  # there the one that failed has left what was done before
        assert len(list(place.glob("write_results-*"))) == 1
    assert (place / "run" / "report.html").is_file()
    assert not list((place / "run" / "claims").iterdir()) and not list(place.rglob("*.part"))
    assert json.loads((place / "run" / "environment.json").read_text())["sessions"]


def test_only_the_first_rank_speaks(root: Path) -> None:
    printed = [(root / "three" / f"printed-{rank}.txt").read_text() for rank in range(3)]
    assert "tableak" in printed[0] and printed[1:] == ["", ""]


@pytest.mark.parametrize("name", ["killed", "workers"])
def test_the_pack_of_the_killed_was_taken_over(root: Path, name: str) -> None:
    assert (root / name / "victim").read_text() in [row["unit"] for row in rows_of(root / name)]


def test_the_training_of_the_killed_was_taken_over(root: Path) -> None:
    place = root / "users"
    assert len(list(place.glob("train-*"))) == 1
    assert {row["source"] for row in results_of(place)["rows"]} == {"initial", "training"}


def test_a_rank_that_fails_says_so_and_the_others_finish_without_it(root: Path) -> None:
    assert (root / "killed" / "error-2.txt").read_text() == "MemoryError: full"
    assert not (root / "killed" / "error-1.txt").exists()
