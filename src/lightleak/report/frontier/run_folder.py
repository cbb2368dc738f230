"""Reading the run folder of a defence frontier."""

import json
from dataclasses import dataclass
from pathlib import Path

from lightleak.report.frontier.result import FrontierResult, parse_result
from lightleak.report.run_folder import RESULTS, RunFolder, load_run


@dataclass(frozen=True)
class FrontierRun:
    """What a report reads of one run.

    Attributes:
        folder: config, environment and name, read as of any other run.
        results: the rows of ``results.json``.
    """

    folder: RunFolder
    results: tuple[FrontierResult, ...]


def load_frontier_run(path: Path, name: str | None = None) -> FrontierRun:
    """Read a run folder; only ``results.json`` has to be there.

    Raises:
        UsageError: ``results.json`` cannot be read, or a row names no attack.
    """
    folder = load_run(path, name)
    rows = json.loads((path / RESULTS).read_text(encoding="utf-8"))["rows"]
    results = tuple(parse_result(row, folder.name, f"{path / RESULTS}, row {i}") for i, row in enumerate(rows))
    return FrontierRun(folder, results)
