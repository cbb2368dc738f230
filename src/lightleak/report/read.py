"""Reading a run folder, finished or interrupted, of any kind."""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import yaml

from lightleak.core.csv_text import without_escape
from lightleak.core.errors import UsageError
from lightleak.core.people import CSV_FILE, People, read_people
from lightleak.core.records import read_record
from lightleak.core.registry import MEMORY
from lightleak.core.results import FILE_NAME, FrontierRow, Row, UpdateRow, kind_name, read_file, read_rows
from lightleak.core.shell import shell_word
from lightleak.core.small_groups import without_small_groups
from lightleak.core.yaml_text import read_yaml

T = TypeVar("T")

OFFLINE_FILE = "capture.json"
"""Names the captures that an offline attack read; a folder that holds it cannot be resumed as an audit."""

CELL_COLUMNS = ("row", "column", "true", "reconstructed", "correct", "entropy")
STATUS = "status"
"""A column that earlier versions did not write."""

Cell = Mapping[str, str]
"""One reconstructed cell: the text of each of `CELL_COLUMNS`, and `STATUS`."""


@dataclass(frozen=True)
class Run:
    """What a report reads of one run.

    Attributes:
        name: what the report calls it.
        path: the folder.
        kind: the kind of run.
        rows: the rows of ``results.json``.
        raw: the other keys of that file.
        metrics: lines of the training's ``metrics.csv``, each with the finite numbers that it has.
        config: text of ``config.yaml``; None where there is none.
        environment: ``environment.json``; empty where there is none.
        trained: ``training.json``, the scores on the test rows once the training is over; empty where there is none.
        captures: the folder of captures that an offline attack read; None of a run that made its own.
        redact: the report names nobody, whatever the run kept.
    """

    name: str
    path: Path
    kind: str = ""
    rows: tuple[Row, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict)
    metrics: tuple[Mapping[str, float], ...] = ()
    config: str | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)
    trained: Mapping[str, Any] = field(default_factory=dict)
    captures: str | None = None
    redact: bool = False

    @cached_property
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

    @property
    def place(self) -> str:
        """The folder as a command names it: as it was given, since paths in its config start where that was."""
        return str(self.path if self.path.name not in ("", "..") else self.path.resolve())

    @property
    def is_in_memory(self) -> bool:
        """Whether its table or network was handed over in a Python session, where no command finds it."""
        data = self.settings.get("data")
        names = [row.get("target") for row in self.raw.get("rows") or ()]
        names += [data.get("name")] if isinstance(data, Mapping) else []
        return any(str(name).startswith(MEMORY) for name in names)

    def again(self, config: str | None = None) -> str:
        """Return the beginning of the command that makes such a run, from the config in its folder or another."""
        file = shell_word(config or f"{self.place}/config.yaml")
        if self.captures is None:
            return f"lightleak {'tune' if self.kind == 'tuning' else 'audit'} {file}"
        return f"lightleak attack {file} --capture {shell_word(self.captures)}"

    @property
    def left_out(self) -> Mapping[str, Any]:
        """Why attacks that were chosen do not apply, by name."""
        return self.raw.get("left_out") or {}

    @cached_property
    def people(self) -> tuple[People, ...]:
        """What each attack revealed of every person, redacted without small groups; none where people are not known."""
        found = read_people(self.raw, str(self.path / FILE_NAME))
        return tuple(map(without_small_groups, found)) if self.is_redacted else found

    @property
    def is_redacted(self) -> bool:
        """Whether it says nothing of single people."""
        return self.redact or bool(self.settings.get("redact"))

    @cached_property
    def persons(self) -> tuple[Mapping[str, str], ...]:
        """The lines of ``people.csv``; none where a redacted run, or one without people, has no such file."""
        file = self.path / CSV_FILE
        restored = str if self.settings.get("raw_csv") else without_escape
        lines = _read_csv(file) if self.people and file.is_file() else []
        return tuple({name: restored(value or "") for name, value in line.items() if name} for line in lines)

    def of(self, kind: type[T]) -> tuple[T, ...]:
        """The rows, all of that class."""
        return tuple(row for row in self.rows if isinstance(row, kind))

    def entries(self, file: str, kind: type[T], version: int = 1, name: str = "entries", **given: Any) -> tuple[T, ...]:
        """Records of a list in a JSON file of the run; none where it left no such file.

        Args:
            file: name of the file.
            kind: the dataclass to read (`core.records`).
            version: of the file's schema.
            name: key of the list.
            given: values of fields that are not read.

        Raises:
            UsageError: the file is no JSON of that schema version, or an entry cannot be read.
        """
        path = self.path / file
        raw: Any = _read_json(path) if path.is_file() else {name: [], "schema_version": version}
        if not isinstance(raw, Mapping) or not isinstance(raw.get(name), list):
            raise UsageError(f"{path}: expected a mapping with a list {name!r}")
        if raw.get("schema_version") != version:
            raise UsageError(f"{path}: schema_version must be {version}, got {raw.get('schema_version')!r}")
        return tuple(read_record(kind, one, f"{path}, entry {i}", **given) for i, one in enumerate(raw[name]))


def load_run(path: Path, name: str | None = None) -> Run:
    """Read a run folder; only ``results.json`` has to be there.

    Raises:
        UsageError: the folder or its ``results.json`` is missing or cannot be read, or holds several kinds of rows.
    """
    raw, where, name = read_file(path), str(path / FILE_NAME), name or path.resolve().name
    rows = read_rows(raw, where, name)
    if not isinstance(raw.get("left_out", {}), Mapping):
        raise UsageError(f"{where}: expected a mapping 'left_out', got {type(raw['left_out']).__name__}")
    config = path / "config.yaml"
    run = Run(
        name=name,
        path=path,
        rows=rows,
        raw={key: value for key, value in raw.items() if key != "rows"},
        metrics=_read_metrics(path / "metrics.csv"),
        config=config.read_text(encoding="utf-8") if config.is_file() else None,
        environment=_read_mapping(path / "environment.json"),
        trained=_read_mapping(path / "training.json"),
        captures=_read_mapping(path / OFFLINE_FILE).get("capture"),
    )
    kinds = {row.KIND for row in rows}
    if len(kinds) > 1:
        raise UsageError(f"{where}: expected rows of one kind, got {' and '.join(sorted(kinds))}")
    # The config of a study is that of an audit: until it has a row, only this key distinguishes the two.
    named = "tuning" if "study" in raw else kind_name(run.settings.get("kind"))
    return replace(run, kind=next(iter(kinds), named))


def load_runs(folders: Sequence[Path], redact: bool = False) -> tuple[Run, ...]:
    """Read the runs of one report, redacted or not.

    Raises:
        UsageError: a folder cannot be read or is given twice, or the runs are of several kinds, which answer different
            questions; frontiers of defenses may be given with attacks on updates.
    """
    named = zip(folders, run_names(folders), strict=True)
    runs = tuple(replace(load_run(path, name), redact=redact) for path, name in named)
    kinds = {run.kind for run in runs}
    if len(kinds) > 1 and kinds != {UpdateRow.KIND, FrontierRow.KIND}:
        found = "; ".join(f"{run.path}: {run.kind}" for run in runs)
        raise UsageError(f"all runs in a report must be of the same kind; make one report for each kind; got {found}")
    return tuple(sorted(runs, key=lambda run: run.kind != UpdateRow.KIND))


def run_names(folders: Sequence[Path]) -> list[str]:
    """What the report calls each run: the folder's name, with as many parents as it takes to tell them apart.

    >>> run_names([Path("mon/adult"), Path("tue/adult")])
    ['mon/adult', 'tue/adult']

    Raises:
        UsageError: a folder is given twice.
    """
    paths = [folder.resolve() for folder in folders]
    if len(set(paths)) < len(paths):
        raise UsageError(f"each run folder must be given once, got {', '.join(map(str, folders))}")
    deepest = max(len(path.parts) for path in paths)
    names = (["/".join(path.parts[-depth:]) for path in paths] for depth in range(1, deepest + 1))
    return next(found for found in names if len(set(found)) == len(found))


def cells_file(run: Run, reconstruction: str | None) -> Path | None:
    """File of one reconstruction; None where there is none or where it lies outside the run folder."""
    if reconstruction is None:
        return None
    file = (run.path / reconstruction).resolve()
    return file if file.is_relative_to(run.path.resolve()) and file.is_file() else None


def load_cells(run: Run, reconstruction: str | None) -> tuple[Cell, ...] | None:
    """Return the reconstructed cells of one row in long form; None where no readable file is there.

    The status is empty where an earlier version or an attack without certificates wrote the file.
    """
    file = cells_file(run, reconstruction)
    lines = [] if file is None else _read_csv(file)
    if not lines or not set(CELL_COLUMNS) <= set(lines[0]):
        return None
    restored = str if run.settings.get("raw_csv") else without_escape
    return tuple({name: restored(line.get(name) or "") for name in (*CELL_COLUMNS, STATUS)} for line in lines)


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: expected JSON, got {error}") from error


def _read_mapping(file: Path) -> Mapping[str, Any]:
    found = _read_json(file) if file.is_file() else {}
    return found if isinstance(found, Mapping) else {}


def _read_metrics(file: Path) -> tuple[Mapping[str, float], ...]:
    """Lines of a log; a run that was stopped before its first log leaves an empty file or none."""
    lines = _read_csv(file) if file.is_file() else []
    return tuple(
        {name: number for name, text in line.items() if (number := _number(text)) is not None} for line in lines
    )


def _read_csv(file: Path) -> list[dict[str, str]]:
    """Lines of a CSV file by column, all as text; none of a file that is no CSV."""
    try:
        with file.open(encoding="utf-8", newline="") as opened:
            lines = list(csv.DictReader(opened, strict=True))
    except (csv.Error, UnicodeDecodeError):
        return []
    return [] if any(None in line for line in lines) else lines


def _number(text: str | None) -> float | None:
    try:
        found = float(text or "nan")
    except ValueError:
        return None
    return found if math.isfinite(found) else None
