"""Processes that end as they should, fail, are killed, or lose their parent."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("work_in_processes.py")


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_everything_that_is_told_arrives_in_order(results: dict[str, Any]) -> None:
    assert results["counted"] == {"codes": [0, 0], "told": {"0": [0, 1, 2], "1": list(range(50))}}


def test_they_write_privately_though_their_parent_does_not(results: dict[str, Any]) -> None:
    assert results["umask"] == {"there": ["0o77"], "here": "0o22"}


def test_one_that_is_killed_ends_alone(results: dict[str, Any]) -> None:
    assert results["killed"]["codes"] == [-signal.SIGKILL, 0]
    assert results["killed"]["ended"] == {"0": -signal.SIGKILL, "1": 0}
    assert results["killed"]["told"] == [0, 1]


def test_one_that_fails_ends_the_others_and_its_error_is_raised(results: dict[str, Any]) -> None:
    assert results["fails"]["codes"] == "ValueError: this one"
    assert results["fails"]["told"] == [0, 1] or results["fails"]["told"] == [1]
    assert not results["fails"]["alive"]


def test_an_error_that_cannot_be_sent_is_told_in_words(results: dict[str, Any]) -> None:
    assert results["odd"]["codes"] == "RuntimeError: Odd: this one"


def test_an_interrupt_here_ends_all(results: dict[str, Any]) -> None:
    assert results["stopped"]["codes"] == "KeyboardInterrupt: "
    assert results["stopped"]["told"] == [0, 1] and not results["stopped"]["alive"]


def test_a_child_that_keeps_the_pipe_open_does_not_keep_its_parent_alive(results: dict[str, Any]) -> None:
    assert results["keeps the pipe"]["codes"] == [3, 0]


def test_they_end_when_their_parent_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, str(SCRIPT), "sleep"], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(parent.stdout.readline()) for _ in range(2)]
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while any(_lives(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in pids if _lives(pid)]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
