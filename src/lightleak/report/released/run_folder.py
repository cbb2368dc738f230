"""Reading run folders of audits of released models."""

import json
from dataclasses import dataclass
from pathlib import Path

from lightleak.report.released.entries import Entry, load_entries
from lightleak.report.released.pictures import PictureGrid, load_pictures
from lightleak.report.released.result import InversionResult, parse_result
from lightleak.report.run_folder import RESULTS, RunFolder, load_run


@dataclass(frozen=True)
class ReleasedRun:
    """What a report reads of one run.

    Attributes:
        folder: config, environment and name, read as of any other run.
        results: the rows of ``results.json``.
        entries: the entries of ``inversion.json``.
        pictures: the grids of ``pictures.json``, where images were attacked.
    """

    folder: RunFolder
    results: tuple[InversionResult, ...]
    entries: tuple[Entry, ...]
    pictures: tuple[PictureGrid, ...] = ()


def load_released_run(path: Path, name: str | None = None) -> ReleasedRun:
    """Read a run folder of an audit of a released model; only ``results.json`` has to be there.

    Raises:
        UsageError: ``results.json`` or ``inversion.json`` cannot be read, or a row lacks its attack.
    """
    folder = load_run(path, name)
    rows = json.loads((path / RESULTS).read_text(encoding="utf-8"))["rows"]
    results = tuple(parse_result(row, folder.name, f"{path / RESULTS}, row {i}") for i, row in enumerate(rows))
    return ReleasedRun(folder, results, load_entries(path, folder.name), load_pictures(path))
