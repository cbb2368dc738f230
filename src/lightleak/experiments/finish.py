"""The end of a run: whatever the number of processes that share it, one of them writes results and report."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from lightleak.core.claims import Claims
from lightleak.core.ranks import detect_ranks
from lightleak.experiments.campaign import CLAIMS
from lightleak.experiments.results import RESULTS_FILE, results_of, write_results
from lightleak.report import build_report
from lightleak.report.build import FILE_NAME as REPORT_FILE

Rows = list[dict[str, Any]]
END = b"</html>"
"""Of a report that is whole."""


def leave_results(
    folder: Path,
    rows: Callable[[], Rows],
    redact: object,
    extra_keys: Sequence[str] = (),
    beside: Callable[[Rows], object] = lambda rows: None,
    per: str | None = None,
    left_out: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Write results and report of what is done in a run folder and return the content of ``results.json``.

    To be called by every process of a run, also after an interruption: the report then shows what is there, and a later
    run goes on from it. One that finds the results of its rows written leaves them as they are; where the writer dies,
    another takes over.

    Args:
        folder: the run folder.
        rows: reads the rows of what is done.
        redact: leave true and reconstructed values out of the report.
        extra_keys: see `write_results`.
        beside: writes what else the report reads.
        per: see `lightleak.metrics.summary.summarize_rows`.
        left_out: see `results_of`.
    """
    wrote = False

    def is_written() -> bool:
        return wrote or _is_written(folder, results_of(rows(), extra_keys, per, left_out))

    def write() -> None:
        nonlocal wrote
        found = rows()
        write_results(folder, found, extra_keys, per, left_out)
        beside(found)
        build_report(folder, redact=bool(redact))
        wrote = True

    Claims(folder / CLAIMS).once("results", is_written, write)
    results: dict[str, Any] = json.loads((folder / RESULTS_FILE).read_text())
    return results


def _is_written(folder: Path, expected: dict[str, Any]) -> bool:
    """Whether these are the results in the folder, and the report, which is written last, came after them."""
    try:
        results, report = folder / RESULTS_FILE, folder / REPORT_FILE
        if report.stat().st_mtime_ns < results.stat().st_mtime_ns or not report.read_bytes().rstrip().endswith(END):
            return False
        return bool(json.loads(results.read_text()) == json.loads(json.dumps(expected)))
    except (FileNotFoundError, ValueError):
        return False


def console_of_rank(console: Console | None) -> Console:
    """The console of the rank that speaks, and for all others one that nobody sees."""
    if detect_ranks().leads:
        return console or Console()
    return Console(quiet=True, force_interactive=False)
