"""The quickstart with less work, as a user starts it: interrupted twice, resumed, and equal to a run in one go."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from lightleak.cli import main
from lightleak.experiments.load import load_config
from lightleak.experiments.run import run_audit
from lightleak.experiments.took import TOOK

PATIENCE = 300  # seconds until a process that hangs is given up; a busy machine is slow
LESS = {
    "training.epochs": "6",
    "training.batch_size": "64",
    "capture": "{epochs: [0, 5], per_epoch: 1}",
    "initial": "{batch_sizes: [4, 6], batches: 2}",
    "monitor.options": "{steps: 5}",
    "attacks": "{random: {}, inverting_gradients: {steps: 200}, tableak: {steps: 500, restarts: 2}}",
    "device": "cpu",
    "workers": "0",
}
UNITS = 3 * (2 * 2 + 2)

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts ``python -m lightleak`` in a process group of its own, as a shell does."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "lightleak", *arguments],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A shell that puts the tests into the background has them ignore Ctrl-C, and so what they start.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def press_ctrl_c(process: "subprocess.Popen[str]") -> str:
    """Interrupts the whole process group, as a terminal does; returns what went to stderr."""
    assert process.poll() is None, f"ended before it could be interrupted: {process.communicate()}"
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, errors
    return errors


def wait_for(process: "subprocess.Popen[str]", condition: Callable[[], bool]) -> None:
    wait_until(lambda: condition() or process.poll() is not None)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


def group_is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows = json.loads((folder / "results.json").read_text())["rows"]
    return [{key: value for key, value in row.items() if key not in TOOK} for row in rows]


@pytest.mark.slow
def test_interrupted_in_training_and_in_attacks_it_ends_where_it_would_have_ended(
    tmp_path: Path, start: Start, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = pytestconfig.rootpath / "configs" / "quickstart.yaml"
    folder = tmp_path / "run"
    flags = [part for key, value in LESS.items() for part in (f"--{key}", value)]

    process = start("audit", str(config), "--output", "run", *flags)
    wait_for(process, (folder / "checkpoints" / "last.ckpt").is_file)
    errors = press_ctrl_c(process)
    message = "lightleak: interrupted. Finished work is kept in run; resume with: lightleak audit --resume run"
    assert errors.splitlines()[-1] == message and "Traceback" not in errors
    assert not (folder / "training.json").exists() and not (folder / "results.json").exists()

    shutil.copytree(folder, tmp_path / "trained")
    for _ in range(3):  # on a busy machine it may have ended before this process has seen three units
        process = start("audit", "--resume", "run")
        wait_for(process, lambda: len(list(folder.glob("units/*.json"))) >= 3)
        if not (folder / "report.html").is_file():
            break
        process.communicate()
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "trained", folder)
    errors = press_ctrl_c(process)
    assert errors.splitlines()[-1] == message and "Traceback" not in errors
    kept = rows_of(folder)
    assert 3 <= len(kept) < UNITS
    assert (folder / "report.html").is_file()
    wait_until(lambda: group_is_gone(process.pid))  # no worker is left behind

    # One worker from here on: what several processes did must be what one does.
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.chdir(tmp_path)
    assert main(["audit", "--resume", "run"]) == 0
    run_audit(load_config(folder / "config.yaml"), tmp_path / "whole", console=Console(file=io.StringIO()))
    whole = rows_of(tmp_path / "whole")
    assert rows_of(folder) == whole and len(whole) == UNITS
    assert all(row in whole for row in kept)
    first, second = (
        pd.read_csv(run / "metrics.csv", float_precision="round_trip") for run in (folder, tmp_path / "whole")
    )
    pd.testing.assert_frame_equal(first[sorted(first)], second[sorted(second)], check_exact=True)
    assert set(first["epoch"]) == set(range(7))
    assert first["val/accuracy"].count() == 6
    assert first["reconstruction/inverting_gradients/cell_accuracy"].count() == 2
