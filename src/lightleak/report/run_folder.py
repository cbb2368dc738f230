"""Reading a run folder, finished or interrupted."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from lightleak.core.csv_text import without_escapes
from lightleak.core.errors import UsageError
from lightleak.core.yaml_text import read_yaml
from lightleak.report.result import Result, parse_result

SCHEMA_VERSION = 1
RESULTS = "results.json"
CELL_COLUMNS = ("row", "column", "true", "reconstructed", "correct", "entropy")
STATUS = "status"
"""A column that earlier versions did not write."""


@dataclass(frozen=True)
class RunFolder:
    """What a report reads of one run.

    The summary of ``results.json`` is not among it: a report also needs numbers that the summary lacks, and computes
    all of them from the rows, in the same way.

    Attributes:
        name: how the report calls the run.
        path: the folder.
        results: the rows of ``results.json``.
        metrics: ``metrics.csv`` of the training; no rows where there is none.
        config: text of ``config.yaml``; None where there is none.
        environment: ``environment.json``; empty where there is none.
        trained: ``training.json``, the scores on the test rows once the training is over; empty where there is none.
        left_out: why attacks that were chosen do not apply, by name.
    """

    name: str
    path: Path
    results: tuple[Result, ...]
    metrics: pd.DataFrame
    config: str | None
    environment: Mapping[str, Any]
    trained: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The config as a mapping; empty where there is none or it cannot be read."""
        try:
            found = read_yaml(self.config or "")
        except yaml.YAMLError:
            return {}
        return found if isinstance(found, Mapping) else {}

    @property
    def title(self) -> str | None:
        """The ``title`` of the config; None where it has none or cannot be read."""
        title = self.settings.get("title")
        return title if isinstance(title, str) and title else None


def load_run(path: Path, name: str | None = None) -> RunFolder:
    """Read a run folder; only ``results.json`` has to be there.

    Raises:
        UsageError: the folder or its ``results.json`` is missing, unreadable or of another schema version.
    """
    if not path.is_dir():
        raise UsageError(f"{path} is no run folder: expected a folder with {RESULTS}, got no folder")
    if not (path / RESULTS).is_file():
        found = ", ".join(sorted(entry.name for entry in path.iterdir())[:8]) or "an empty folder"
        raise UsageError(f"{path} is no run folder: {RESULTS} is missing, got {found}")
    raw = _read_json(path / RESULTS)
    if not isinstance(raw, Mapping) or not isinstance(raw.get("rows"), list):
        raise UsageError(f"{path / RESULTS}: expected a mapping with a list 'rows'")
    if raw.get("schema_version") != SCHEMA_VERSION:
        raise UsageError(
            f"{path / RESULTS}: schema_version must be {SCHEMA_VERSION}, got {raw.get('schema_version')!r}"
        )
    left_out = raw.get("left_out", {})
    if not isinstance(left_out, Mapping):
        raise UsageError(f"{path / RESULTS}: expected a mapping 'left_out', got {type(left_out).__name__}")
    name = name or path.resolve().name
    config = path / "config.yaml"
    return RunFolder(
        name=name,
        path=path,
        results=tuple(parse_result(row, name, f"{path / RESULTS}, row {i}") for i, row in enumerate(raw["rows"])),
        metrics=_read_metrics(path / "metrics.csv"),
        config=config.read_text(encoding="utf-8") if config.is_file() else None,
        environment=_read_mapping(path / "environment.json"),
        trained=_read_mapping(path / "training.json"),
        left_out=left_out,
    )


def cells_file(run: RunFolder, result: Result) -> Path | None:
    """File of one reconstruction; None where there is none or where it lies outside the run folder."""
    if result.reconstruction is None:
        return None
    file = (run.path / result.reconstruction).resolve()
    return file if file.is_relative_to(run.path.resolve()) and file.is_file() else None


def load_cells(run: RunFolder, result: Result) -> pd.DataFrame | None:
    """The reconstructed cells of one result in long form, every value as text; None where no readable file is there.

    Columns are ``row, column, true, reconstructed, correct, entropy, status``; the last is empty where an earlier
    version or an attack without certificates wrote the file.
    """
    file = cells_file(run, result)
    if file is None:
        return None
    try:
        # Everything as text: "NA" and "007" are values here, and a report shows what the file says.
        cells = pd.read_csv(file, dtype=str, keep_default_na=False)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError):
        return None
    if not set(CELL_COLUMNS) <= set(cells.columns) or cells.empty:
        return None
    if STATUS not in cells.columns:
        cells[STATUS] = ""
    cells = cells[[*CELL_COLUMNS, STATUS]]
    return cells if run.settings.get("raw_csv") else without_escapes(cells)


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: expected JSON, got {error}") from error


def _read_mapping(file: Path) -> Mapping[str, Any]:
    found = _read_json(file) if file.is_file() else {}
    return found if isinstance(found, Mapping) else {}


def _read_metrics(file: Path) -> pd.DataFrame:
    """A run that was stopped before its first log leaves an empty file or none."""
    if not file.is_file():
        return pd.DataFrame()
    try:
        return pd.read_csv(file).apply(pd.to_numeric, errors="coerce")
    except (pd.errors.EmptyDataError, pd.errors.ParserError):
        return pd.DataFrame()


def read_entries(file: Path, version: int) -> list[Any]:
    """The list ``entries`` of a JSON file that a run may have left; empty where it left none.

    Raises:
        UsageError: the file is no JSON of that schema version.
    """
    if not file.is_file():
        return []
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: expected JSON, got {error}") from error
    if not isinstance(raw, Mapping) or not isinstance(raw.get("entries"), list):
        raise UsageError(f"{file}: expected a mapping with a list 'entries'")
    if raw.get("schema_version") != version:
        raise UsageError(f"{file}: schema_version must be {version}, got {raw.get('schema_version')!r}")
    return list(raw["entries"])
