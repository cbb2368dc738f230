"""A report is read and drawn without the libraries that train and attack."""

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "pandas", "lightning", "torchmetrics", "optuna")


@pytest.mark.parametrize("command", [True, False])
def test_a_report_imports_nothing_that_trains(make_run, command: bool) -> None:
    folder = make_run(attacks=("tableak", "audit_max", "random"), n_batches=2, epochs=2)
    script = f"""
import sys
from pathlib import Path
if {command}:
    from lightleak.cli import main
    assert main(["report", {str(folder)!r}]) == 0
else:
    from lightleak.report import build_report
    build_report(Path({str(folder)!r}))
print(*(name for name in {HEAVY} if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].strip() == ""
    assert (Path(folder) / "report.html").is_file()
