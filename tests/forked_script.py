"""Run in a process that `tests.conftest.forked` made: takes what it was given, and runs its script."""

import os
import runpy
import sys
from typing import Any

if __name__ == "__main__":
    given: dict[str, Any] = globals()["given"]
    os.chdir(given["folder"])
    os.environ.clear()
    os.environ.update(given["environment"])
    sys.argv = [given["script"], *given["arguments"]]
    with open(given["said"], "a") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
    runpy.run_path(given["script"], run_name="__main__")
