"""Telling what kind of audit left a run folder."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

import yaml

from lightleak.core.errors import UsageError
from lightleak.core.yaml_text import read_yaml_file
from lightleak.report.run_folder import RESULTS

Kind = Literal["gradient inversion", "vertical", "released-model", "defence-frontier", "tuning"]


def kind_of_runs(folders: Sequence[Path]) -> Kind:
    """What kind these runs are: their rows say so, or their config where an interrupted run has no row yet.

    A folder that cannot be read counts as gradient inversion, the kind that needs no name: reading it then says what is
    wrong.

    Raises:
        UsageError: they are of several kinds, or one folder holds several; they answer different questions.
    """
    found = {folder: _kinds(folder) for folder in folders}
    kinds: set[Kind] = set().union(*found.values())
    if len(kinds) > 1:
        listed = "; ".join(f"{folder}: {' and '.join(sorted(kinds))}" for folder, kinds in found.items())
        raise UsageError(
            f"a report is of runs of one kind ({', '.join(get_args(Kind))}), since they answer different questions: "
            f"make one report of each; got {listed}"
        )
    return kinds.pop()


def _kinds(folder: Path) -> set[Kind]:
    try:
        raw = json.loads((folder / RESULTS).read_text(encoding="utf-8"))
        if "study" in raw:  # a study's config is that of an audit: before it has a row, this alone tells them apart
            return {"tuning"}
        rows = raw["rows"]
        found = {_kind(row.get("kind")) for row in rows if isinstance(row, Mapping)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {_kind(None)}
    return found or {_kind(_config_kind(folder))}


def _config_kind(folder: Path) -> object:
    try:
        config = read_yaml_file(folder / "config.yaml")
    except (OSError, ValueError, yaml.YAMLError):
        return None
    return config.get("kind") if isinstance(config, Mapping) else None


def _kind(name: object) -> Kind:
    """The kind by its name in rows and configs; gradient inversion is the one without a name."""
    name = "defence-frontier" if name == "defense-frontier" else name
    return next((kind for kind in get_args(Kind) if kind == name), "gradient inversion")
