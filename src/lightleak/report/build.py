"""From run folders to one self-contained HTML file."""

from collections.abc import Sequence
from pathlib import Path

from lightleak.core.errors import UsageError
from lightleak.core.results import ValueRow
from lightleak.report.kinds import page_of
from lightleak.report.page import render, write
from lightleak.report.read import load_runs

FILE_NAME = "report.html"
COMBINED_NAME = "combined.html"
"""The report of several runs, in the folder of the first of them: the report of that one alone stays."""


def build_report(run: Path | Sequence[Path], output: Path | None = None, redact: bool = False) -> Path:
    """Write the report of one run folder, or of several of one kind together.

    The file needs no other file, loads nothing and runs no script; only its owner may read it.

    Args:
        run: a run folder with at least ``results.json``, or several of them.
        output: the file to write; by default ``report.html`` in the run folder, and of several runs ``combined.html``
            in the folder of the first.
        redact: leave out every true and reconstructed value and keep only whether it was right; of vertical runs every
            true and estimated share, and keep only how far off the estimates are; of released models every value of a
            made-up or private row.

    Returns:
        Path of the report.

    Raises:
        UsageError: a folder is no run folder, no folder is given, or they are of different kinds.
    """
    folders = [run] if isinstance(run, Path) else list(run)
    if not folders:
        raise UsageError("a report needs at least one run folder, got none")
    runs = load_runs(folders, redact)
    if runs[0].kind == ValueRow.KIND:
        raise UsageError(f"{folders[0]}: a report needs rows of attacks; these are numbers of a paper's table alone")
    html = render(page_of(runs, redact))
    target = output or folders[0] / (FILE_NAME if len(folders) == 1 else COMBINED_NAME)
    write(target, html)
    return target
