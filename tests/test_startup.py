"""Commands that compute nothing start without the libraries that compute."""

import json
import os
import subprocess
import sys

import pytest

HEAVY = ("torch", "lightning", "pandas", "scipy", "numpy")
PROGRAM = f"""
import json, sys
from lightleak.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print(json.dumps([code, [name for name in {HEAVY} if name in sys.modules]]), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("--help", 0),
        ("--version", 0),
        ("audit --help", 0),
        *((f"list {what}", 0) for what in ("attacks", "datasets", "targets", "defenses", "metrics", "reproductions")),
        ("explain exact", 0),
        ("explain exact_match_rate", 0),
        ("explain extract", 2),
        ("data list", 0),
        ("audti", 2),
    ],
)
def test_a_command_that_computes_nothing_imports_nothing_heavy(command: str, code: int) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "LIGHTLEAK_PLUGINS"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *command.split()],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert json.loads(done.stderr.splitlines()[-1]) == [code, []]
