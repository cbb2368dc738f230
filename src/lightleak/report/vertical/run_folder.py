"""Reading vertical run folders."""

import json
from dataclasses import dataclass
from pathlib import Path

from lightleak.report.run_folder import RESULTS, RunFolder, load_run
from lightleak.report.vertical.norms import NormEntry, load_norms
from lightleak.report.vertical.result import PropertyResult, parse_result


@dataclass(frozen=True)
class VerticalRun:
    """What a report reads of one vertical run.

    Attributes:
        folder: config, environment and name, read as of any other run.
        results: the rows of ``results.json``.
        norms: the entries of ``norms.json``.
    """

    folder: RunFolder
    results: tuple[PropertyResult, ...]
    norms: tuple[NormEntry, ...]


def load_vertical_run(path: Path, name: str | None = None) -> VerticalRun:
    """Read a vertical run folder; only ``results.json`` has to be there.

    Raises:
        UsageError: ``results.json`` or ``norms.json`` cannot be read, or a row lacks its attack or property.
    """
    folder = load_run(path, name)
    rows = json.loads((path / RESULTS).read_text(encoding="utf-8"))["rows"]
    results = tuple(parse_result(row, folder.name, f"{path / RESULTS}, row {i}") for i, row in enumerate(rows))
    return VerticalRun(folder, results, load_norms(path, folder.name))
