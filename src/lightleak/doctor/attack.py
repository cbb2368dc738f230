"""Check that everything works together: one audit of a synthetic table, from the command line to the report."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lightleak.core.yaml_text import yaml_of
from lightleak.doctor.finding import Check, Facts, Finding

END_TO_END = Check("attack", "end to end")
SECONDS = 600.0
"""Timeout: the audit takes two, but on a shared folder its imports can take minutes the first time."""

CONFIG: dict[str, Any] = {
    "data": {"name": "synthetic", "options": {"n_discrete": 3, "n_continuous": 2, "n_rows": 100}},
    "target": {"options": {"hidden": [50]}},
    "training": {"epochs": 1, "batch_size": 16},
    "capture": {"epochs": [0], "per_epoch": 1},
    "initial": {"batch_sizes": [1], "batches": 2},
    "attacks": {"tableak": {"restarts": 2, "steps": 200}, "random": {}},
    "device": "cpu",
    "workers": 1,
}
"""The gradient of one row through a wide layer gives the row away: nearly all cells are recovered."""

EXPECTED_CELLS = 0.8

LAUNCHERS = ("SLURM_", "LOCAL_", "TORCHELASTIC_", "MASTER_", "GROUP_", "ROLE_", "RANK", "WORLD_SIZE", "NODE_RANK")
"""Beginnings of the variables that would make the audit wait for processes that do not take part in it."""

Run = Callable[[Path, Path, Mapping[str, str]], tuple[int, str]]
"""Audits a config into a folder under an environment; returns exit code and stderr."""


def check(facts: Facts) -> list[Finding]:
    """Return the finding of an audit in its own process and folder."""
    return [end_to_end(run_audit_command, facts.variables)]


def end_to_end(run: Run, variables: Mapping[str, str]) -> Finding:
    """Audit the synthetic table and judge the results."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lightleak-doctor-") as made:
        config, folder = Path(made) / "config.yaml", Path(made) / "run"
        config.write_text(yaml_of(CONFIG))
        code, stderr = run(config, folder, alone(variables))
        seconds = time.monotonic() - began
        if code != 0:
            last = (stderr.strip().splitlines() or ["no error message"])[-1]
            fix = "fix the problems above first; if there are none, report this message"
            return END_TO_END.problem(f"lightleak audit ended with code {code}: {last}", fix)
        rows = json.loads((folder / "results.json").read_text())["rows"]
        report = (folder / "report.html").is_file()
    return judge(rows, report, seconds)


def judge(rows: list[dict[str, Any]], report: bool, seconds: float) -> Finding:
    """Check that an audit of the synthetic table recovered its cells."""
    cells = {
        attack: [row["cell_accuracy"] for row in rows if row["attack"] == attack and row["batch_size"] == 1]
        for attack in CONFIG["attacks"]
    }
    if not report or not all(cells.values()):
        missing = "report.html" if not report else "a result of " + ", ".join(a for a in cells if not cells[a])
        fix = "report this: lightleak audit left out a part of its results"
        return END_TO_END.problem(f"the audit succeeded, but without {missing}", fix)
    mean = {attack: sum(values) / len(values) for attack, values in cells.items()}
    found = f"TabLeak {mean['tableak']:.0%} of cells, a guess {mean['random']:.0%}, in {seconds:.0f} s with imports"
    if mean["tableak"] < EXPECTED_CELLS:
        fix = f"at least {EXPECTED_CELLS:.0%} was expected: is the installation altered? Run its tests (make test)"
        return END_TO_END.problem(found, fix)
    return END_TO_END.ok(found)


def alone(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment without what a launcher set: one process and one thread.

    >>> alone({"RANK": "1", "WORLD_SIZE": "2", "SLURM_JOB_ID": "7", "HOME": "/home"})
    {'HOME': '/home', 'OMP_NUM_THREADS': '1'}
    """
    kept = {name: value for name, value in variables.items() if not name.startswith(LAUNCHERS)}
    return kept | {"OMP_NUM_THREADS": "1"}


def run_audit_command(config: Path, folder: Path, variables: Mapping[str, str]) -> tuple[int, str]:
    """Run ``lightleak audit`` in its own process."""
    words = [sys.executable, "-m", "lightleak", "audit", str(config), "--output", str(folder)]
    try:
        done = subprocess.run(words, env=dict(variables), capture_output=True, text=True, timeout=SECONDS, cwd=os.sep)
    except subprocess.TimeoutExpired:
        return 124, f"it took more than {SECONDS:g} seconds"
    return done.returncode, done.stderr
