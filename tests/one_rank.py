"""Run in a forked process by the fixture `leave_results`: becomes one rank of a training, and runs its script."""

import os
import runpy
import sys
from typing import Any

if __name__ == "__main__":
    given: dict[str, Any] = globals()["given"]
    os.environ.clear()
    os.environ.update(given["environment"])
    sys.argv = [given["script"], given["folder"]]
    with open(given["said"], "a") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
    runpy.run_path(given["script"], run_name="__main__")
