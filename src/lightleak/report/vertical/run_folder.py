"""Reading vertical run folders, and telling them from other kinds."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from lightleak.core.errors import UsageError
from lightleak.report.run_folder import RESULTS, RunFolder, load_run
from lightleak.report.vertical.norms import NormEntry, load_norms
from lightleak.report.vertical.result import PropertyResult, parse_result

KIND = "vertical"


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


def is_vertical(folders: Sequence[Path]) -> bool:
    """Whether these are vertical runs: their rows say so, or their config where an interrupted run has no row yet.

    A folder that cannot be read counts as any other kind: reading it then says what is wrong.

    Raises:
        UsageError: some are and some are not, or one folder holds both; they answer different questions.
    """
    found = {folder: _kinds(folder) for folder in folders}
    if any(len(kinds) > 1 for kinds in found.values()) or len(set(map(frozenset, found.values()))) > 1:
        listed = "; ".join(f"{folder}: {' and '.join(sorted(kinds))}" for folder, kinds in found.items())
        raise UsageError(
            "a report is of vertical runs or of gradient inversion runs, since they answer different questions: make "
            f"one report of each; got {listed}"
        )
    return any(KIND in kinds for kinds in found.values())


def load_vertical_run(path: Path, name: str | None = None) -> VerticalRun:
    """Read a vertical run folder; only ``results.json`` has to be there.

    Raises:
        UsageError: ``results.json`` or ``norms.json`` cannot be read, or a row lacks its attack or property.
    """
    folder = load_run(path, name)
    rows = json.loads((path / RESULTS).read_text(encoding="utf-8"))["rows"]
    results = tuple(parse_result(row, folder.name, f"{path / RESULTS}, row {i}") for i, row in enumerate(rows))
    return VerticalRun(folder, results, load_norms(path, folder.name))


def _kinds(folder: Path) -> set[str]:
    try:
        raw = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
        rows = raw["rows"]
        found = {_name(row.get("kind")) for row in rows if isinstance(row, Mapping)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {_name(None)}
    return found or {_name(_config_kind(folder))}


def _config_kind(folder: Path) -> object:
    try:
        config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return None
    return config.get("kind") if isinstance(config, Mapping) else None


def _name(kind: object) -> str:
    return KIND if kind == KIND else "gradient inversion"
